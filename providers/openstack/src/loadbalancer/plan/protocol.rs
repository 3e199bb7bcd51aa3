//! Listeners and pools of another protocol: Octavia cannot change it.
//!
//! A pool gets its members before it replaces the old one. A load balancer has one listener for a port, so the old one goes
//! first, without its pool, when Octavia refuses the new one for nothing but the port or the quota. Before that it looks at
//! the rights and most of the body. If it or the driver refuses the new one afterwards, the old one is made again.

use ccm_kit::balancer::Kind;
use serde_json::json;

use super::super::observed::Balancer;
use super::super::step::Write;
use super::super::wanted::{Port, Settings};
use super::ports::{found, part_of};
use super::{Changed, Draft, Fields, LISTENER, POOL};
use crate::client::octavia::{Listener, Pool};

impl Draft<'_> {
    /// Whether a port has no pool of its protocol yet.
    pub(super) fn makes_pools(&self, balancer: &Balancer, settings: &Settings) -> bool {
        let has = |port: &Port| {
            let pool = found(balancer, port).and_then(|listener| balancer.pool_of(listener));
            pool.is_some_and(|pool| pool.protocol == settings.pool_protocol(port))
        };
        !balancer.is_unread && !settings.ports.iter().all(has)
    }

    /// Deletes a listener that stands in the way of one of another protocol. Its pool is there until its successor is.
    pub(super) fn replace_listener(
        &mut self,
        balancer: &Balancer,
        settings: &Settings,
        former: &Listener,
        index: usize,
        port: &Port,
    ) {
        let body = self.new_listener(balancer, settings, index, port).below(LISTENER.key);
        self.part = part_of(Kind::Frame, port);
        self.delete_part(balancer, &LISTENER, &former.id, &former.name, "its protocol cannot be changed");
        self.amend(|mut step| {
            if let Write::Octavia { successor, .. } = &mut step.write.write {
                *successor = Some(body);
            }
            step
        });
    }

    /// Makes a deleted listener again if Octavia refuses its successor, which the last step creates.
    pub(super) fn or_restore(&mut self, balancer: &Balancer, former: &Listener) {
        let mut fields = Fields::default();
        fields.put("name", &*former.name);
        fields.put("protocol", &*former.protocol);
        fields.put("protocol_port", former.protocol_port);
        fields.put("connection_limit", former.connection_limit);
        fields.put("loadbalancer_id", &*balancer.lb.id);
        if let Some(is_up) = former.admin_state_up {
            fields.put("admin_state_up", is_up);
        }
        if !former.insert_headers.is_empty() {
            fields.put("insert_headers", json!(former.insert_headers));
        }
        for (name, text) in [
            ("description", &former.description),
            ("default_pool_id", &former.default_pool_id),
            ("default_tls_container_ref", &former.default_tls_container_ref),
            ("client_ca_tls_container_ref", &former.client_ca_tls_container_ref),
            ("client_authentication", &former.client_authentication),
            ("client_crl_container_ref", &former.client_crl_container_ref),
            ("tls_ciphers", &former.tls_ciphers),
        ] {
            fields.put_text(name, text);
        }
        for (name, list) in [
            ("tags", &former.tags),
            ("allowed_cidrs", &former.allowed_cidrs),
            ("sni_container_refs", &former.sni_container_refs),
            ("tls_versions", &former.tls_versions),
            ("alpn_protocols", &former.alpn_protocols),
        ] {
            if !list.is_empty() {
                fields.put(name, list.clone());
            }
        }
        for (name, number) in [
            ("timeout_client_data", former.timeout_client_data),
            ("timeout_member_connect", former.timeout_member_connect),
            ("timeout_member_data", former.timeout_member_data),
            ("timeout_tcp_inspect", former.timeout_tcp_inspect),
            ("hsts_max_age", former.hsts_max_age),
        ] {
            if let Some(number) = number {
                fields.put(name, number);
            }
        }
        let is_hsts =
            [("hsts_include_subdomains", former.hsts_include_subdomains), ("hsts_preload", former.hsts_preload)];
        for (name, is_on) in is_hsts.into_iter().filter(|(_, is_on)| *is_on) {
            fields.put(name, is_on);
        }
        self.create_part(balancer, &LISTENER, former.name.clone(), fields, "its successor is refused");
        if let Some(restore) = self.steps.pop() {
            self.amend(|step| step.restore(restore));
        }
    }

    /// Replaces a pool when its successor has members: until then it serves.
    pub(super) fn retire_pool(
        &mut self,
        balancer: &Balancer,
        port: &Port,
        listener: Option<&Listener>,
        former: &Pool,
        new: &str,
    ) {
        self.part = part_of(Kind::Retire, port);
        if let Some(listener) = listener {
            let mut changed = Changed::default();
            changed.field("default_pool_id", &former.id, &new.to_owned());
            self.update_part(balancer, &LISTENER, &listener.id, &listener.name, changed, "its pool is replaced");
        }
        if balancer.is_of_one_listener(former) {
            self.delete_part(balancer, &POOL, &former.id, &former.name, "its protocol cannot be changed");
        }
    }
}

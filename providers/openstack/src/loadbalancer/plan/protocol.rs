//! Listeners and pools of another protocol: Octavia cannot change it.
//!
//! A pool gets its members before it replaces the old one. A load balancer has one listener for a port, so the old one goes
//! first, without its pool, and is made again if Octavia refuses the new one.

use ccm_kit::balancer::Kind;
use serde_json::json;

use super::super::observed::Balancer;
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

    /// Makes a deleted listener again if Octavia refuses its successor, which the last step creates.
    pub(super) fn or_restore(&mut self, balancer: &Balancer, former: &Listener) {
        let mut fields = Fields::default();
        fields.put("name", &*former.name);
        fields.put("protocol", &*former.protocol);
        fields.put("protocol_port", former.protocol_port);
        fields.put("connection_limit", former.connection_limit);
        fields.put("loadbalancer_id", &*balancer.lb.id);
        fields.put_text("default_pool_id", &former.default_pool_id);
        fields.put_text("default_tls_container_ref", &former.default_tls_container_ref);
        if !former.insert_headers.is_empty() {
            fields.put("insert_headers", json!(former.insert_headers));
        }
        for (name, list) in [("tags", &former.tags), ("allowed_cidrs", &former.allowed_cidrs)] {
            if !list.is_empty() {
                fields.put(name, list.clone());
            }
        }
        for (name, timeout) in [
            ("timeout_client_data", former.timeout_client_data),
            ("timeout_member_connect", former.timeout_member_connect),
            ("timeout_member_data", former.timeout_member_data),
            ("timeout_tcp_inspect", former.timeout_tcp_inspect),
        ] {
            if let Some(timeout) = timeout {
                fields.put(name, timeout);
            }
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

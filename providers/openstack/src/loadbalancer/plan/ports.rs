//! Listener, pool and members of each port.

use std::collections::BTreeSet;

use ccm_provider::{ErrorClass, ProviderError, Verb};
use serde_json::{Value, json};

use super::super::desired::{Port, Settings, transport};
use super::super::names;
use super::super::observed::{Balancer, service_tags};
use super::super::step::{Step, Write, made};
use super::{Changed, Draft, Fields, LISTENER, POOL, change, part, refused};
use crate::client::octavia::{ERROR, Listener, Member, Pool};
use crate::client::operation::{MEMBER_CREATE, MEMBER_DELETE, MEMBERS_UPDATE};

const FORWARDED: &str = "X-Forwarded-For";
const SOURCE_IP: &str = "SOURCE_IP";

/// Whether a listener has the port of the Service.
pub(super) fn same_port(listener: &Listener, port: &Port) -> bool {
    listener.protocol_port == port.port && transport(&listener.protocol) == port.transport()
}

/// A pool or listener: its ID, or the placeholder of its future ID.
pub(super) struct Place<'a, T> {
    pub(super) id: String,
    pub(super) found: Option<&'a T>,
}

impl Draft<'_> {
    /// Plans all ports, and deletes the leftovers of former ones.
    pub(super) fn ports(
        &mut self,
        balancer: &Balancer,
        settings: &Settings,
        hosts_only: bool,
    ) -> Result<(), ProviderError> {
        for port in &settings.ports {
            self.must_be_free(balancer, port)?;
        }
        // A listener of another protocol may occupy the port of a new one.
        if !hosts_only {
            for listener in self.left_over(balancer, settings) {
                self.delete_listener(balancer, listener);
            }
            self.delete_loose_pools(balancer);
        }
        let subnet = self.observed.member_subnet(self.place, settings);
        for (index, port) in settings.ports.iter().enumerate() {
            let found = balancer
                .listeners
                .iter()
                .find(|listener| listener.protocol_port == port.port && listener.protocol == port.protocol);
            let listener = match (found, hosts_only) {
                (Some(found), _) => Place { id: found.id.clone(), found: Some(found) },
                (None, false) => {
                    self.create_listener(balancer, settings, index, port);
                    Place { id: made(&part("listener", index, self.item)), found: None }
                }
                (None, true) => {
                    let text = format!(
                        "loadbalancer {} does not contain required listener for port {} and protocol {}",
                        balancer.lb.id, port.port, port.protocol
                    );
                    return Err(ProviderError::new(ErrorClass::Conflict, text));
                }
            };
            if let (Some(listener), false) = (listener.found, hosts_only) {
                self.update_listener(balancer, settings, listener);
            }
            let pool = self.pool(balancer, settings, index, port, &listener);
            self.members(balancer, settings, port, &pool, subnet.as_deref());
            self.monitor(balancer, settings, index, port, &pool);
        }
        Ok(())
    }

    /// Fails if another Service or program has a listener on this port.
    fn must_be_free(&self, balancer: &Balancer, port: &Port) -> Result<(), ProviderError> {
        let taken = |listener: &&Listener| same_port(listener, port) && !self.is_ours(listener);
        match balancer.listeners.iter().find(taken) {
            None => Ok(()),
            Some(listener) => {
                let whose =
                    service_tags(&listener.tags).next().map(|tag| format!(", used by {tag}")).unwrap_or_default();
                Err(refused(format!("the listener port {} already exists ({}{whose})", port.port, listener.protocol)))
            }
        }
    }

    /// Nothing is on a user's balancer before the Service joins it.
    fn is_ours(&self, listener: &Listener) -> bool {
        self.claim.has_listener(self.item, listener)
    }

    fn left_over<'b>(&self, balancer: &'b Balancer, settings: &Settings) -> Vec<&'b Listener> {
        let is_used = |listener: &Listener| {
            settings.ports.iter().any(|port| listener.protocol_port == port.port && listener.protocol == port.protocol)
        };
        // A listener with tags of other Services is theirs too.
        let others = |listener: &Listener| service_tags(&listener.tags).any(|tag| !self.claim.owns(self.item, tag));
        let listeners = balancer.listeners.iter().filter(|listener| !listener.id.is_empty());
        listeners.filter(|listener| self.is_ours(listener) && !is_used(listener) && !others(listener)).collect()
    }

    pub(super) fn delete_listener(&mut self, balancer: &Balancer, listener: &Listener) {
        if let Some(pool) = balancer.pool_of(listener).filter(|pool| balancer.is_of_one_listener(pool)) {
            self.delete_part(balancer, &POOL, &pool.id, &pool.name, "its listener goes");
        }
        self.delete_part(balancer, &LISTENER, &listener.id, &listener.name, "no port of the Service needs it");
    }

    /// Deletes the pools of this Service whose listener was deleted without them.
    pub(super) fn delete_loose_pools(&mut self, balancer: &Balancer) {
        let is_loose = |pool: &&Pool| pool.listeners.is_empty() && names::is_part(&pool.name, "pool", &self.item.name);
        for pool in balancer.pools.iter().filter(is_loose).collect::<Vec<_>>() {
            self.delete_part(balancer, &POOL, &pool.id, &pool.name, "its listener is gone");
        }
    }

    /// The fields of a new listener.
    fn listener_fields(&self, settings: &Settings, index: usize, port: &Port) -> Fields {
        let timeouts = &settings.timeouts;
        let mut fields = Fields::default();
        fields.put("name", part("listener", index, self.item));
        fields.put("protocol", &*port.protocol);
        fields.put("protocol_port", port.port);
        fields.put("connection_limit", settings.connection_limit);
        if self.features.tags {
            let tags = std::iter::once(&self.item.name).chain(&settings.tags.listener);
            fields.put("tags", tags.map(String::as_str).collect::<Vec<_>>());
        }
        if self.features.timeouts {
            fields.put("timeout_client_data", timeouts.client_data);
            fields.put("timeout_member_connect", timeouts.member_connect);
            fields.put("timeout_member_data", timeouts.member_data);
            fields.put("timeout_tcp_inspect", timeouts.tcp_inspect);
        }
        if settings.forwards_client_address {
            fields.put("insert_headers", json!({FORWARDED: "true"}));
        }
        fields.put_text("default_tls_container_ref", &settings.tls_container);
        if self.features.allowed_cidrs {
            fields.put("allowed_cidrs", sources(settings));
        }
        fields
    }

    /// A listener with all its parts, for a balancer that is created in one call.
    pub(super) fn listener_tree(&self, settings: &Settings, index: usize) -> Option<Value> {
        let port = settings.ports.get(index)?;
        let subnet = self.observed.member_subnet(self.place, settings);
        let mut pool = self.pool_fields(settings, index, port);
        let members = self.desired_members(settings, port, subnet.as_deref());
        pool.put("members", members.iter().map(Member::body).collect::<Vec<_>>());
        if let Some(monitor) = self.desired_monitor(settings, index, port) {
            pool.put("healthmonitor", monitor.fields());
        }
        let mut listener = self.listener_fields(settings, index, port);
        listener.put("default_pool", pool);
        Some(listener.into())
    }

    fn create_listener(&mut self, balancer: &Balancer, settings: &Settings, index: usize, port: &Port) {
        let mut fields = self.listener_fields(settings, index, port);
        fields.put("loadbalancer_id", &*balancer.lb.id);
        let name = part("listener", index, self.item);
        self.create_part(balancer, &LISTENER, name, fields, "a port of the Service needs it");
    }

    fn update_listener(&mut self, balancer: &Balancer, settings: &Settings, listener: &Listener) {
        let mut changed = Changed::default();
        if self.features.tags {
            // Tags of other Services stay.
            let is_old = self.claim.is_former();
            let renamed = |tag: &String| names::renamed(tag, &self.item.name).filter(|_| is_old);
            let mut tags: Vec<String> =
                listener.tags.iter().map(|tag| renamed(tag).unwrap_or_else(|| tag.clone())).collect();
            for tag in std::iter::once(&self.item.name).chain(&settings.tags.listener) {
                if !tags.contains(tag) {
                    tags.push(tag.clone());
                }
            }
            // The rename writes the tags of the parts that it renames.
            let is_renamed = renamed(&listener.name).is_some();
            if !is_renamed || tags.len() != listener.tags.len() {
                changed.tags(&listener.tags, &tags);
            }
        }
        changed.field("connection_limit", &listener.connection_limit, &settings.connection_limit);
        let forwards = listener.insert_headers.get(FORWARDED).is_some_and(|value| value == "true");
        if forwards != settings.forwards_client_address {
            let mut headers = listener.insert_headers.clone();
            match settings.forwards_client_address {
                true => drop(headers.insert(FORWARDED.to_owned(), "true".to_owned())),
                false => drop(headers.remove(FORWARDED)),
            }
            let shown = |on: bool| if on { FORWARDED } else { "" };
            changed.changes.push(change("insert_headers", shown(forwards), shown(!forwards)));
            changed.body.insert("insert_headers".to_owned(), json!(headers));
        }
        if !settings.tls_container.is_empty() {
            changed.field("default_tls_container_ref", &listener.default_tls_container_ref, &settings.tls_container);
        }
        if self.features.timeouts {
            let timeouts = &settings.timeouts;
            let mut field = |name, before: Option<i64>, after: i64| changed.field(name, &before, &Some(after));
            field("timeout_client_data", listener.timeout_client_data, timeouts.client_data);
            field("timeout_member_connect", listener.timeout_member_connect, timeouts.member_connect);
            field("timeout_member_data", listener.timeout_member_data, timeouts.member_data);
            field("timeout_tcp_inspect", listener.timeout_tcp_inspect, timeouts.tcp_inspect);
        }
        if self.features.allowed_cidrs {
            let set = |cidrs: &[String]| -> BTreeSet<String> { cidrs.iter().map(|cidr| normalized(cidr)).collect() };
            let desired = sources(settings);
            if set(&listener.allowed_cidrs) != set(&desired) {
                changed.field("allowed_cidrs", &listener.allowed_cidrs, &desired);
            }
        }
        changed.again(&listener.provisioning_status, &listener.name);
        self.update_part(balancer, &LISTENER, &listener.id, &listener.name, changed, "it differs from the Service");
    }

    fn pool_fields(&self, settings: &Settings, index: usize, port: &Port) -> Fields {
        let mut fields = Fields::default();
        fields.put("name", part("pool", index, self.item));
        fields.put("protocol", settings.pool_protocol(port));
        fields.put("lb_algorithm", &*settings.algorithm);
        if settings.is_sticky {
            fields.put("session_persistence", json!({"type": SOURCE_IP}));
        }
        if !settings.tags.pool.is_empty() && self.features.tags {
            fields.put("tags", settings.tags.pool.clone());
        }
        fields
    }

    /// The pool of a listener: unchanged, changed, or recreated.
    fn pool<'b>(
        &mut self,
        balancer: &'b Balancer,
        settings: &Settings,
        index: usize,
        port: &Port,
        listener: &Place<'b, Listener>,
    ) -> Place<'b, Pool> {
        let found = listener.found.and_then(|listener| balancer.pool_of(listener));
        let protocol = settings.pool_protocol(port);
        match found {
            Some(pool) if pool.protocol == protocol => {
                self.update_pool(balancer, settings, index, pool);
                return Place { id: pool.id.clone(), found: Some(pool) };
            }
            Some(pool) => self.delete_part(balancer, &POOL, &pool.id, &pool.name, "its protocol cannot be changed"),
            None => {}
        }
        let mut fields = self.pool_fields(settings, index, port);
        fields.put("listener_id", &*listener.id);
        let name = part("pool", index, self.item);
        self.create_part(balancer, &POOL, name.clone(), fields, "a port of the Service needs it");
        Place { id: made(&name), found: None }
    }

    fn update_pool(&mut self, balancer: &Balancer, settings: &Settings, index: usize, pool: &Pool) {
        let differs = "it differs from the Service";
        let is_sticky = pool.session_persistence.as_ref().is_some_and(|persistence| persistence.kind == SOURCE_IP);
        let mut changed = Changed::default();
        // A name that contains that of the balancer was set by this or the Go program, maybe for another port.
        let is_named = names::is_part(&pool.name, "pool", &self.item.name) || pool.name.contains(&*balancer.lb.name);
        if !is_named && !self.is_renamed(&pool.name) {
            changed.field("name", &pool.name, &part("pool", index, self.item));
        }
        if is_sticky != settings.is_sticky && (settings.is_sticky || pool.session_persistence.is_some()) {
            let shown = |on: bool| if on { SOURCE_IP } else { "" };
            changed.changes.push(change("session_persistence", shown(is_sticky), shown(settings.is_sticky)));
            let persistence = if settings.is_sticky { json!({"type": SOURCE_IP}) } else { Value::Null };
            changed.body.insert("session_persistence".to_owned(), persistence);
        }
        if self.features.tags {
            let more = settings.tags.pool.iter().filter(|tag| !pool.tags.contains(*tag));
            changed.tags(&pool.tags, &pool.tags.iter().chain(more).cloned().collect::<Vec<_>>());
        }
        changed.again(&pool.provisioning_status, &pool.name);
        self.update_part(balancer, &POOL, &pool.id, &pool.name, changed, differs);
        // A separate call: an algorithm that Octavia does not know must not block the other changes.
        let mut changed = Changed::default();
        changed.field("lb_algorithm", &pool.lb_algorithm, &settings.algorithm);
        let planned = self.steps.len();
        self.update_part(balancer, &POOL, &pool.id, &pool.name, changed, differs);
        if let Some(Step { write: Write::Octavia { may_fail, .. }, .. }) = self.steps.get_mut(planned) {
            *may_fail = Some(self.item.subject.clone());
        }
    }

    fn desired_members(&self, settings: &Settings, port: &Port, subnet: Option<&str>) -> Vec<Member> {
        if port.node_port == 0 {
            return Vec::new();
        }
        let monitor_port = settings.health_check_port.filter(|_| self.checks_kube_proxy(settings, port));
        let serial = self.env.config.load_balancer.serial_calls;
        let member = |target: &super::super::desired::Target| Member {
            name: match serial {
                true => names::serial_member(&target.node, &target.address, port.node_port),
                false => target.node.clone(),
            },
            address: target.address.clone(),
            protocol_port: port.node_port,
            monitor_port,
            subnet_id: subnet.unwrap_or_default().to_owned(),
            ..Member::default()
        };
        settings.members.iter().map(member).collect()
    }

    fn members(
        &mut self,
        balancer: &Balancer,
        settings: &Settings,
        port: &Port,
        pool: &Place<'_, Pool>,
        subnet: Option<&str>,
    ) {
        let desired = self.desired_members(settings, port, subnet);
        let empty = Vec::new();
        let present = pool.found.and_then(|pool| balancer.members.get(&pool.id)).unwrap_or(&empty);
        let is_whole = pool.found.is_none_or(|pool| balancer.whole.contains(&pool.id));
        let key = |member: &Member| {
            let monitor_port = member.monitor_port.filter(|_| is_whole);
            (member.address.clone(), member.protocol_port, member.name.clone(), monitor_port)
        };
        let keys = |members: &[Member]| -> BTreeSet<_> { members.iter().map(key).collect() };
        let (mut before, after) = (keys(present), keys(&desired));
        let failed: Vec<&Member> = present.iter().filter(|member| member.provisioning_status == ERROR).collect();
        // Members in ERROR are written again.
        before.retain(|kept| failed.iter().all(|member| key(member) != *kept));
        if before == after && failed.is_empty() {
            return;
        }
        let names = |keys: &BTreeSet<(String, i32, String, Option<i32>)>| {
            keys.iter().map(|(address, ..)| address.clone()).collect::<Vec<_>>().join(" ")
        };
        let (gone, new): (BTreeSet<_>, BTreeSet<_>) =
            (before.difference(&after).cloned().collect(), after.difference(&before).cloned().collect());
        let is_same =
            |one: &Member, other: &Member| (&one.address, one.protocol_port) == (&other.address, other.protocol_port);
        if self.env.config.load_balancer.serial_calls {
            let mut surplus: Vec<&Member> = present.iter().collect();
            surplus.retain(|member| !after.contains(&key(member)) || failed.contains(member));
            for member in desired.iter().filter(|member| new.contains(&key(member))) {
                // A pool has one member per address and port, and should never be empty.
                if let Some(at) = surplus.iter().position(|other| is_same(member, other)) {
                    self.delete_member(balancer, &pool.id, surplus.remove(at));
                }
                self.create_member(balancer, &pool.id, member);
            }
            surplus.into_iter().for_each(|member| self.delete_member(balancer, &pool.id, member));
            return;
        }
        let path = format!("pools/{}/members", pool.id);
        let body = desired.iter().map(|member| {
            let mut fields = member.fields();
            // A field that is left out keeps its value.
            let keeps = |other: &Member| is_same(member, other) && other.monitor_port.is_some();
            if member.monitor_port.is_none() && present.iter().any(keeps) {
                fields.put("monitor_port", Value::Null);
            }
            fields.into()
        });
        let call = (MEMBERS_UPDATE, path, Some(json!({ "members": body.collect::<Vec<Value>>() })));
        let changes = vec![change("members", &names(&gone), &names(&new))];
        let id = pool.found.map_or(&*pool.id, |pool| &pool.name);
        self.octavia(&balancer.lb.id, call, (Verb::Update, "Pool", id), changes, "the nodes changed");
    }

    fn create_member(&mut self, balancer: &Balancer, pool: &str, member: &Member) {
        let call = (MEMBER_CREATE, format!("pools/{pool}/members"), Some(json!({"member": member.body()})));
        self.octavia(&balancer.lb.id, call, (Verb::Create, "Member", &member.name), Vec::new(), "the nodes changed");
    }

    fn delete_member(&mut self, balancer: &Balancer, pool: &str, member: &Member) {
        let call = (MEMBER_DELETE, format!("pools/{pool}/members/{}", member.id), None);
        self.octavia(&balancer.lb.id, call, (Verb::Delete, "Member", &member.name), Vec::new(), "the nodes changed");
    }
}

impl Member {
    fn body(&self) -> Value {
        self.fields().into()
    }

    /// The fields as sent to Octavia.
    fn fields(&self) -> Fields {
        let mut fields = Fields::default();
        fields.put("name", &*self.name);
        fields.put("address", &*self.address);
        fields.put("protocol_port", self.protocol_port);
        fields.put_text("subnet_id", &self.subnet_id);
        if let Some(port) = self.monitor_port {
            fields.put("monitor_port", port);
        }
        fields
    }
}

fn sources(settings: &Settings) -> Vec<String> {
    settings.sources.iter().map(ToString::to_string).collect()
}

/// Octavia keeps CIDRs as sent, host bits included.
fn normalized(cidr: &str) -> String {
    ccm_provider::address::parse_cidr(cidr).map_or_else(|| cidr.to_owned(), |net| net.trunc().to_string())
}

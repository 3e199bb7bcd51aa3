//! Listener, pool and members of each port.

use std::collections::BTreeSet;

use ccm_kit::balancer::{Kind, Part, placeholder};
use ccm_provider::{ProviderError, Verb};
use serde_json::{Value, json};

use super::super::names;
use super::super::observed::{Balancer, node_port_of, service_tags};
use super::super::step::Step;
use super::super::wanted::{NodePort, Port, Settings, Target, transport};
use super::bodies::change;
use super::{Changed, Draft, Fields, LISTENER, POOL, part, refused};
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

/// The node ports behind a pool.
#[derive(Debug, Clone, Copy)]
struct Behind {
    /// 0: none.
    node_port: i32,
    /// The port that the health monitor asks.
    monitor_port: Option<i32>,
}

impl Draft<'_> {
    /// Updates the members of each listener that exists, from what is observed and the node ports of the Service.
    pub(super) fn hosts(&mut self, balancer: &Balancer) -> Result<(), ProviderError> {
        if balancer.is_unread {
            return Ok(());
        }
        let hosts = &self.item.hosts;
        // Their subnet may be that of a node.
        if hosts.member_subnet.is_none() && hosts.vip.follows_nodes() && !hosts.vip.port.is_empty() {
            self.must_be_read()?;
        }
        let subnet = self.observed.member_subnet(self.place, self.item);
        let ours: Vec<&Listener> = balancer.listeners.iter().filter(|listener| self.is_ours(listener)).collect();
        for listener in &ours {
            let Some(pool) = balancer.pool_of(listener) else {
                self.missing_pool(balancer, listener, subnet.as_deref());
                continue;
            };
            // A listener that the Service no longer has keeps its node port until an ensure removes it.
            let present = || balancer.members.get(&pool.id)?.first().map(|member| member.protocol_port);
            let asked = node_port_of(listener, &ours, &hosts.node_ports).map(|port| port.node_port);
            let Some(node_port) = asked.or_else(present) else { continue };
            let of_kube_proxy = |member: &Member| member.monitor_port.is_some();
            let asks = match balancer.unread_monitors {
                None => balancer.monitors.iter().any(|it| it.id == pool.healthmonitor_id && it.kind == "HTTP"),
                // The members have its port.
                Some(_) => balancer.members.get(&pool.id).is_some_and(|members| members.iter().any(of_kube_proxy)),
            };
            let behind = Behind { node_port, monitor_port: hosts.health_check_port.filter(|_| asks) };
            self.part = Part::of(Kind::Members, label(listener.protocol_port, &listener.protocol));
            self.members(balancer, behind, &Place { id: pool.id.clone(), found: Some(pool) }, subnet.as_deref());
        }
        let has = |port: &&NodePort| {
            ours.iter().any(|listener| node_port_of(listener, &ours, &hosts.node_ports) == Some(port))
        };
        match hosts.node_ports.iter().find(|port| !has(port)) {
            None => Ok(()),
            Some(NodePort { port, transport, .. }) => Err(ProviderError::unknown(format!(
                "loadbalancer {} does not contain required listener for port {port} and protocol {transport}",
                balancer.lb.id
            ))),
        }
    }

    /// Makes a pool again that was deleted by hand, if the settings of the Service are known.
    fn missing_pool(&mut self, balancer: &Balancer, listener: &Listener, subnet: Option<&str>) {
        let Some(settings) = &self.item.settings else { return };
        let ports = settings.ports.iter().enumerate();
        let is_of = |port: &Port| listener.protocol_port == port.port && listener.protocol == port.protocol;
        for (index, port) in ports.filter(|(_, port)| is_of(port)) {
            let listener = Place { id: listener.id.clone(), found: Some(listener) };
            let pool = self.pool(balancer, settings, index, port, &listener);
            let behind = self.behind(settings, port);
            self.part = part_of(Kind::Members, port);
            self.members(balancer, behind, &pool, subnet);
            self.part = part_of(Kind::Settings, port);
            self.monitor(balancer, settings, index, port, &pool);
        }
    }

    /// Plans all ports, and deletes the leftovers of former ones. The members of what stays are first.
    pub(super) fn ports(&mut self, balancer: &Balancer, settings: &Settings) {
        let subnet = self.observed.member_subnet(self.place, self.item);
        for port in &settings.ports {
            self.delete_former_check(balancer, settings, port);
        }
        let first = self.steps.len();
        for port in &settings.ports {
            if let Some(pool) = serving_pool(balancer, port) {
                let behind = self.behind(settings, port);
                self.part = part_of(Kind::Members, port);
                self.members(balancer, behind, &Place { id: pool.id.clone(), found: Some(pool) }, subnet.as_deref());
            }
        }
        // Of the settings, only these deletions are before them.
        self.steps.iter_mut().skip(first).for_each(|step| step.needs = &[Kind::Claim, Kind::Frame, Kind::Settings]);
        // A listener of another protocol may occupy the port of a new one. The others serve until their successors do,
        // if there are any and these do not need their room.
        let is_replaced = |listener: &Listener| settings.ports.iter().any(|port| same_port(listener, port));
        let is_alone = !self.features.port_per_transport;
        let is_in_the_way = |listener: &Listener| {
            is_replaced(listener) || is_alone && settings.ports.iter().any(|port| port.port == listener.protocol_port)
        };
        let has_successor = settings.ports.iter().any(|port| found(balancer, port).is_none());
        let goes_first = !has_successor || self.observed.short.contains(&self.place);
        let (left_over, later): (Vec<&Listener>, Vec<&Listener>) =
            self.left_over(balancer, settings).into_iter().partition(|listener| goes_first || is_in_the_way(listener));
        for listener in &left_over {
            match settings.ports.iter().enumerate().find(|(_, port)| same_port(listener, port)) {
                Some((index, port)) => self.replace_listener(balancer, settings, listener, index, port),
                None => {
                    self.part = Part::of(Kind::Retire, label(listener.protocol_port, &listener.protocol));
                    self.delete_listener(balancer, listener);
                }
            }
        }
        self.delete_loose_pools(balancer);
        for (index, port) in settings.ports.iter().enumerate() {
            let listener = match found(balancer, port) {
                Some(found) => Place { id: found.id.clone(), found: Some(found) },
                None => {
                    self.part = part_of(Kind::Frame, port);
                    self.create_listener(balancer, settings, index, port);
                    if let Some(former) = left_over.iter().find(|listener| same_port(listener, port)) {
                        self.or_restore(balancer, former);
                    }
                    Place { id: placeholder(&part("listener", index, self.item)), found: None }
                }
            };
            if let Some(listener) = listener.found {
                self.part = Part::of(Kind::Settings, listener.id.clone());
                self.update_listener(balancer, settings, listener);
            }
            let pool = self.pool(balancer, settings, index, port, &listener);
            if self.kept_pool(balancer, settings, port).is_none() {
                let behind = self.behind(settings, port);
                self.part = part_of(Kind::Members, port);
                self.members(balancer, behind, &pool, subnet.as_deref());
            }
            self.part = part_of(Kind::Settings, port);
            self.monitor(balancer, settings, index, port, &pool);
            if let Some(former) = pool_at(balancer, port).filter(|_| pool.found.is_none()) {
                self.retire_pool(balancer, port, listener.found, former, &pool.id);
            }
        }
        let first = self.steps.len();
        for listener in later {
            self.part = Part::of(Kind::Retire, label(listener.protocol_port, &listener.protocol));
            self.delete_listener(balancer, listener);
        }
        self.steps.iter_mut().skip(first).for_each(|step| step.needs_all = true);
    }

    /// The pool of a port, if it stays and its members can be changed.
    fn kept_pool<'b>(&self, balancer: &'b Balancer, settings: &Settings, port: &Port) -> Option<&'b Pool> {
        let pool = serving_pool(balancer, port).filter(|_| found(balancer, port).is_some())?;
        (pool.protocol == settings.pool_protocol(port)).then_some(pool)
    }

    fn behind(&self, settings: &Settings, port: &Port) -> Behind {
        let asks = self.checks_kube_proxy(settings, port);
        let monitor_port = self.item.hosts.health_check_port.filter(|_| asks);
        Behind { node_port: port.node_port, monitor_port }
    }

    /// Fails if another Service or program has a listener on this port.
    pub(super) fn must_be_free(&self, balancer: &Balancer, port: &Port) -> Result<(), ProviderError> {
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
    pub(super) fn is_ours(&self, listener: &Listener) -> bool {
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
            self.part = Part::of(Kind::Retire, pool.name.clone());
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
        let subnet = self.observed.member_subnet(self.place, self.item);
        let mut pool = self.pool_fields(settings, index, port);
        let members = self.wanted_members(self.behind(settings, port), subnet.as_deref());
        pool.put("members", members.iter().map(Member::body).collect::<Vec<_>>());
        if let Some(monitor) = self.wanted_monitor(settings, index, port) {
            pool.put("healthmonitor", monitor.fields());
        }
        let mut listener = self.listener_fields(settings, index, port);
        listener.put("default_pool", pool);
        Some(listener.into())
    }

    /// The fields of a listener for a balancer that exists.
    pub(super) fn new_listener(&self, balancer: &Balancer, settings: &Settings, index: usize, port: &Port) -> Fields {
        let mut fields = self.listener_fields(settings, index, port);
        fields.put("loadbalancer_id", &*balancer.lb.id);
        fields
    }

    fn create_listener(&mut self, balancer: &Balancer, settings: &Settings, index: usize, port: &Port) {
        let fields = self.new_listener(balancer, settings, index, port);
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
            let wanted = sources(settings);
            if set(&listener.allowed_cidrs) != set(&wanted) {
                changed.field("allowed_cidrs", &listener.allowed_cidrs, &wanted);
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
        if let Some(pool) = found.filter(|pool| pool.protocol == protocol) {
            self.part = Part::of(Kind::Settings, pool.id.clone());
            self.update_pool(balancer, settings, index, pool);
            return Place { id: pool.id.clone(), found: Some(pool) };
        }
        self.part = part_of(Kind::Frame, port);
        let mut fields = self.pool_fields(settings, index, port);
        match found {
            // A listener has one pool: that of the other protocol serves until this one can.
            Some(_) => fields.put("loadbalancer_id", &*balancer.lb.id),
            None => fields.put("listener_id", &*listener.id),
        }
        let name = part("pool", index, self.item);
        self.create_part(balancer, &POOL, name.clone(), fields, "a port of the Service needs it");
        Place { id: placeholder(&name), found: None }
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
        if !changed.body.is_empty() {
            self.part.of = format!("algorithm of {}", pool.name).into();
            self.update_part(balancer, &POOL, &pool.id, &pool.name, changed, differs);
            self.amend(Step::optional);
        }
    }

    fn wanted_members(&self, behind: Behind, subnet: Option<&str>) -> Vec<Member> {
        let Behind { node_port, monitor_port } = behind;
        if node_port == 0 {
            return Vec::new();
        }
        let serial = self.env.config.load_balancer.serial_calls;
        let member = |target: &Target| Member {
            name: match serial {
                true => names::serial_member(&target.node, &target.address, node_port),
                false => target.node.clone(),
            },
            address: target.address.clone(),
            protocol_port: node_port,
            monitor_port,
            subnet_id: subnet.unwrap_or_default().to_owned(),
            ..Member::default()
        };
        self.item.hosts.members.iter().map(member).collect()
    }

    fn members(&mut self, balancer: &Balancer, behind: Behind, pool: &Place<'_, Pool>, subnet: Option<&str>) {
        let mut wanted = self.wanted_members(behind, subnet);
        let empty = Vec::new();
        let present = pool.found.and_then(|pool| balancer.members.get(&pool.id)).unwrap_or(&empty);
        let is_whole = pool.found.is_none_or(|pool| balancer.whole.contains(&pool.id));
        if self.item.keeps_subnets(&balancer.lb) {
            self.keep_subnets(&mut wanted, present);
        }
        let is_serial = self.env.config.load_balancer.serial_calls;
        let key = |member: &Member| {
            let monitor_port = member.monitor_port.filter(|_| is_whole);
            // With serial calls, another name would take a member that serves away.
            let name = if is_serial { String::new() } else { member.name.clone() };
            (member.address.clone(), member.protocol_port, name, monitor_port)
        };
        let keys = |members: &[Member]| -> BTreeSet<_> { members.iter().map(key).collect() };
        let (mut before, after) = (keys(present), keys(&wanted));
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
        if is_serial {
            let mut surplus: Vec<&Member> = present.iter().collect();
            surplus.retain(|member| !after.contains(&key(member)) || failed.contains(member));
            for member in wanted.iter().filter(|member| new.contains(&key(member))) {
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
        let body = wanted.iter().map(|member| {
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

    /// Puts members into the subnets that they have, and new ones of an unknown class into that of another.
    fn keep_subnets(&self, wanted: &mut [Member], present: &[Member]) {
        let is_known = |member: &&Member| !member.subnet_id.is_empty();
        let other = present.iter().find(is_known).map(|member| &member.subnet_id);
        for member in wanted {
            let own = present.iter().find(|present| is_same(member, present)).filter(is_known);
            let is_open = self.item.hosts.is_class_unknown || member.subnet_id.is_empty();
            if let Some(subnet) = own.map(|own| &own.subnet_id).or(other.filter(|_| is_open)) {
                member.subnet_id.clone_from(subnet);
            }
        }
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

/// Whether two members are the same for Octavia.
fn is_same(one: &Member, other: &Member) -> bool {
    (&one.address, one.protocol_port) == (&other.address, other.protocol_port)
}

/// The listener of a port.
pub(super) fn found<'b>(balancer: &'b Balancer, port: &Port) -> Option<&'b Listener> {
    let is_of = |listener: &&Listener| listener.protocol_port == port.port && listener.protocol == port.protocol;
    balancer.listeners.iter().find(is_of)
}

/// The pool behind a port, of whatever protocol.
fn pool_at<'b>(balancer: &'b Balancer, port: &Port) -> Option<&'b Pool> {
    balancer.pool_of(balancer.listeners.iter().find(|listener| same_port(listener, port))?)
}

/// The pool behind a port, of whatever protocol, if its members can be changed: Octavia refuses that in ERROR.
pub(super) fn serving_pool<'b>(balancer: &'b Balancer, port: &Port) -> Option<&'b Pool> {
    let listener = balancer.listeners.iter().find(|listener| same_port(listener, port))?;
    let is_changeable = |status: &str| status != ERROR;
    let pool = balancer.pool_of(listener).filter(|pool| is_changeable(&pool.provisioning_status))?;
    is_changeable(&listener.provisioning_status).then_some(pool)
}

pub(super) fn part_of(kind: Kind, port: &Port) -> Part {
    Part::of(kind, label(port.port, &port.protocol))
}

/// `TCP 80`: one for the listeners that exclude each other.
pub(super) fn label(port: i32, protocol: &str) -> String {
    format!("{} {port}", transport(protocol))
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

//! Changes of a load balancer: of all Services together, and each Service's apart, so that one may be left out. Pure.

use std::sync::Arc;

use serde_json::{Value, json};

use super::claim;
use super::env::Env;
use super::json::{self, same};
use super::names::{self, SHARED_PROBE};
use super::observed::Observed;
use super::tags;
use super::wanted::Item;
use super::wanted::ports::{Probe, Rule};
use crate::client::id::ArmId;

/// All changes of a load balancer.
#[derive(Debug, Clone)]
pub(crate) struct BalancerChange {
    pub(crate) name: String,
    pub(crate) id: ArmId,
    /// As it was read; a new one has no `id`.
    pub(crate) before: Arc<Value>,
    /// In the order of the Services.
    pub(crate) edits: Vec<Edit>,
    /// Whether this plan writes it before: it is read again.
    pub(crate) is_second: bool,
}

/// The part of one Service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Edit {
    pub(crate) place: usize,
    /// `namespace/name`
    pub(crate) key: String,
    pub(crate) fingerprint: u64,
    /// How the names of its objects begin.
    pub(crate) base: String,
    /// Frontends to add, or to change, by name.
    pub(crate) frontends: Vec<Value>,
    /// Names of frontends to remove.
    pub(crate) drops: Vec<String>,
    pub(crate) rules: Vec<Value>,
    pub(crate) probes: Vec<Value>,
    /// The names of the pools that it needs, and of those that it has for itself.
    pub(crate) pools: Vec<String>,
    pub(crate) own_pools: Vec<String>,
    /// New public IP addresses that it needs.
    pub(crate) needs: Vec<ArmId>,
    /// Private link services that must be deleted before.
    pub(crate) waits: Vec<ArmId>,
    /// The frontends of the load balancer from which the Service moves to this: they go before.
    pub(crate) follows: Vec<ArmId>,
    /// Whether the Service moves from this load balancer to another of the kind.
    pub(crate) moves: bool,
    /// Whether the Service leaves this load balancer because another one serves it.
    pub(crate) leaves: bool,
    /// The other one, which has its part before.
    pub(crate) joins: Option<ArmId>,
    /// The pools of the other one, which get members before.
    pub(crate) fills: Vec<ArmId>,
    /// Whether the security group admits its clients before.
    pub(crate) admits: bool,
    /// Whether the published address is on no load balancer until this is written.
    pub(crate) is_cut_off: bool,
}

impl BalancerChange {
    pub(crate) fn new(env: &Env, name: &str, present: Option<&Arc<Value>>) -> Self {
        let id = env.balancer_id(name);
        let fresh = || {
            let mut fresh =
                json!({"name": name, "location": env.location, "sku": {"name": "Standard"}, "properties": {}});
            if let Some(zone) = env.edge_zone() {
                json::overlay(&mut fresh, &json!({"extendedLocation": zone}));
            }
            fresh
        };
        let before = present.cloned().unwrap_or_else(|| fresh().into());
        Self { name: name.to_owned(), id, before, edits: Vec::new(), is_second: false }
    }

    /// Whether the last write of it has failed: what is shown may not be there.
    pub(crate) fn has_failed(&self) -> bool {
        same(json::property(&self.before, "provisioningState"), "Failed")
    }

    pub(crate) fn is_new(&self) -> bool {
        json::text(&self.before, &["id"]).is_empty()
    }

    /// The load balancer with the changes of the Services that `may` take part.
    pub(crate) fn after(&self, env: &Env, may: impl Fn(&Edit) -> bool) -> Value {
        let mut after = Value::clone(&self.before);
        self.edits.iter().filter(|edit| may(edit)).for_each(|edit| edit.apply(&mut after));
        remove_unused_shared_probe(&mut after);
        tags::set_configured(&mut after, &env.tags, &env.system_tags);
        remove_new_empty_lists(&self.before, &mut after);
        after
    }

    /// The same without the parts of Services.
    fn bare(&self) -> Self {
        let (name, id, before) = (self.name.clone(), self.id.clone(), self.before.clone());
        Self { name, id, before, edits: Vec::new(), is_second: self.is_second }
    }

    /// The same in two writes: the second has the Services that come from other load balancers, and those that are first on
    /// one of the other kind.
    pub(crate) fn parted(&self, env: &Env) -> (Self, Self) {
        let is_second = |edit: &Edit| !edit.follows.is_empty() || edit.rules.is_empty() && !edit.moves;
        let (second, first): (Vec<Edit>, Vec<Edit>) = self.edits.iter().cloned().partition(is_second);
        let first = Self { edits: first, ..self.bare() };
        if second.is_empty() {
            return (first, self.bare());
        }
        let before = first.after(env, |_| true).into();
        (first, Self { before, edits: second, is_second: true, ..self.bare() })
    }

    /// The same in two writes: the second has the Services that leave because another one serves them. Those that are
    /// deleted are in the first if others are.
    pub(crate) fn without_leaving(&self, env: &Env) -> (Self, Self) {
        let stays = |edit: &Edit| !edit.pools.is_empty();
        let has_others = self.edits.iter().any(stays);
        let (second, first): (Vec<Edit>, Vec<Edit>) =
            self.edits.iter().cloned().partition(|edit| edit.leaves || !has_others);
        let first = Self { edits: first, ..self.bare() };
        let before = first.after(env, |_| true).into();
        let is_second = self.is_second || !first.edits.is_empty();
        (first, Self { before, edits: second, is_second, ..self.bare() })
    }

    /// Whether nothing is left on it.
    pub(crate) fn is_empty(after: &Value) -> bool {
        json::items(after, "frontendIPConfigurations").is_empty()
    }
}

impl Edit {
    /// The empty part of a Service in a load balancer.
    pub(super) fn of(place: usize, item: &Item, observed: &Observed, balancer: &Value) -> Self {
        let (key, base) = (item.key.clone(), item.names.base.clone());
        let has_name = |pool: &&Value| item.own_pools.iter().any(|name| same(name, json::name(pool)));
        let pools = json::items(balancer, "backendAddressPools").iter().filter(has_name);
        let own = pools.filter(|pool| claim::is_own_pool(observed, item, balancer, pool));
        let own_pools = own.map(|pool| json::name(pool).to_owned()).collect();
        Self { place, key, fingerprint: item.fingerprint, base, own_pools, ..Self::default() }
    }

    /// Changes a load balancer.
    pub(crate) fn apply(&self, balancer: &mut Value) {
        for name in &self.pools {
            if json::named(json::items(balancer, "backendAddressPools"), name).is_none() {
                json::items_mut(balancer, "backendAddressPools").push(json!({"name": name, "properties": {}}));
            }
        }
        let frontends = json::items_mut(balancer, "frontendIPConfigurations");
        frontends.retain(|frontend| !self.drops.iter().any(|name| same(name, json::name(frontend))));
        self.frontends.iter().for_each(|frontend| put(frontends, frontend));
        let rules = json::items_mut(balancer, "loadBalancingRules");
        let is_wanted = |list: &[Value], name: &str| json::named(list, name).is_some();
        rules.retain(|rule| !self.owns(rule) || is_wanted(&self.rules, json::name(rule)));
        self.rules.iter().for_each(|rule| put(rules, rule));
        rules.iter_mut().for_each(keep_one_pool);
        let probed: Vec<String> = rules
            .iter()
            .filter(|rule| !self.owns(rule))
            .map(|rule| json::reference(rule, "probe").to_owned())
            .collect();
        let is_probed = |probe: &Value| probed.iter().any(|id| !id.is_empty() && same(id, json::text(probe, &["id"])));
        let probes = json::items_mut(balancer, "probes");
        probes.retain(|probe| !self.owns(probe) || is_wanted(&self.probes, json::name(probe)) || is_probed(probe));
        self.probes.iter().for_each(|probe| put(probes, probe));
        if json::items(balancer, "backendAddressPools").iter().any(|pool| self.leaves(pool)) {
            let used = used_pools(balancer);
            let pools = json::items_mut(balancer, "backendAddressPools");
            pools.retain(|pool| !self.leaves(pool) || used.iter().any(|id| same(id, json::text(pool, &["id"]))));
        }
    }

    /// Whether a pool is one of the Service that it does not need any more.
    fn leaves(&self, pool: &Value) -> bool {
        let is_in = |names: &[String]| names.iter().any(|name| same(name, json::name(pool)));
        is_in(&self.own_pools) && !is_in(&self.pools)
    }

    /// Whether it would change a load balancer.
    pub(crate) fn changes(&self, balancer: &Value) -> bool {
        let of = |name: &str| json::items(balancer, name);
        let (frontends, rules, probes) = (of("frontendIPConfigurations"), of("loadBalancingRules"), of("probes"));
        let lacks = |present: &[Value], wanted: &[Value]| {
            wanted.iter().any(|wanted| json::named(present, json::name(wanted)).is_none_or(|it| !has_all(it, wanted)))
        };
        let has_more = |present: &[Value], wanted: &[Value]| {
            present.iter().any(|it| self.owns(it) && json::named(wanted, json::name(it)).is_none())
        };
        let pools = of("backendAddressPools");
        self.drops.iter().any(|name| json::named(frontends, name).is_some())
            || lacks(frontends, &self.frontends)
            || lacks(rules, &self.rules)
            || lacks(probes, &self.probes)
            || has_more(rules, &self.rules)
            || has_more(probes, &self.probes)
            || self.pools.iter().any(|name| json::named(pools, name).is_none())
            || pools.iter().any(|pool| self.leaves(pool))
    }

    /// Whether clients that this serves must go elsewhere: to another address or port.
    pub(super) fn redirects(&self, balancer: &Value) -> bool {
        let frontends = json::items(balancer, "frontendIPConfigurations");
        let keeps = |rule: &Value| {
            let wanted = json::named(&self.rules, json::name(rule));
            wanted.is_some_and(|wanted| {
                PASSED.iter().all(|field| has_all(field_of(rule, field), field_of(wanted, field)))
            })
        };
        let mut own = self.own_rules(balancer).peekable();
        let replaces = |frontend: &Value| json::named(frontends, json::name(frontend)).is_some();
        let is_served = own.peek().is_some() && !self.rules.is_empty();
        is_served && (self.frontends.iter().any(replaces) || !own.all(keeps))
    }

    pub(super) fn own_rules<'v>(&self, balancer: &'v Value) -> impl Iterator<Item = &'v Value> {
        json::items(balancer, "loadBalancingRules").iter().filter(|rule| self.owns(rule))
    }

    fn owns(&self, object: &Value) -> bool {
        names::is_of(json::name(object), &self.base)
    }
}

/// What decides about the address and the port with which traffic passes a rule, and arrives at a node.
const PASSED: [&str; 5] = ["protocol", "frontendPort", "backendPort", "enableFloatingIP", "frontendIPConfiguration"];

fn field_of<'v>(object: &'v Value, field: &str) -> &'v Value {
    json::at(object, &["properties", field])
}

/// A rule names its pool twice: the list must not name the former one.
fn keep_one_pool(rule: &mut Value) {
    let pool = json::reference(rule, "backendAddressPool").to_owned();
    let list = json::items(rule, "backendAddressPools");
    if !list.is_empty() && !list.iter().any(|one| same(json::text(one, &["id"]), &pool)) {
        json::object_mut(rule, "properties").remove("backendAddressPools");
    }
}

/// The IDs of the pools that something of a load balancer refers to.
fn used_pools(balancer: &Value) -> Vec<String> {
    let lists = ["loadBalancingRules", "outboundRules", "inboundNatRules"].into_iter();
    let users = lists.flat_map(|list| json::items(balancer, list));
    let of = |user: &Value| json::reference(user, "backendAddressPool").to_owned();
    users.map(of).filter(|id| !id.is_empty()).collect()
}

/// Lists that were absent and are still empty.
fn remove_new_empty_lists(before: &Value, after: &mut Value) {
    let had = |name: &String| json::at(before, &["properties", name]).is_array();
    let is_empty = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    json::object_mut(after, "properties").retain(|name, value| !is_empty(value) || had(name));
}

/// Adds an object, or sets its fields in the one of the same name.
fn put(list: &mut Vec<Value>, wanted: &Value) {
    match list.iter_mut().find(|present| same(json::name(present), json::name(wanted))) {
        Some(present) if !has_all(present, wanted) => {
            // The name stays as it is spelt.
            let mut properties = wanted.clone();
            if let Some(fields) = properties.as_object_mut() {
                fields.remove("name");
            }
            json::overlay(present, &properties);
        }
        Some(_) => {}
        None => {
            let mut fresh = json!({});
            json::overlay(&mut fresh, wanted);
            list.push(fresh);
        }
    }
}

/// Whether an object has all the wanted fields. Texts are compared without case, and false and an absent field are equal.
fn has_all(present: &Value, wanted: &Value) -> bool {
    match (present, wanted) {
        (present, Value::Object(fields)) => {
            let field = |key: &String| present.get(key).unwrap_or(&Value::Null);
            fields.iter().all(|(key, wanted)| has_all(field(key), wanted))
        }
        (Value::String(present), Value::String(wanted)) => same(present, wanted),
        (Value::Null, Value::Bool(false)) | (Value::Bool(false), Value::Null) => true,
        (present, wanted) => present == wanted,
    }
}

/// The shared probe goes with the last rule that uses it.
fn remove_unused_shared_probe(balancer: &mut Value) {
    let end = format!("/probes/{SHARED_PROBE}");
    let is_used = |rule: &Value| json::reference(rule, "probe").to_lowercase().ends_with(&end);
    if json::named(json::items(balancer, "probes"), SHARED_PROBE).is_some()
        && !json::items(balancer, "loadBalancingRules").iter().any(is_used)
    {
        json::items_mut(balancer, "probes").retain(|probe| !same(json::name(probe), SHARED_PROBE));
    }
}

/// A rule as an object.
pub(super) fn rule(env: &Env, balancer: &ArmId, pool: &ArmId, frontend: &str, rule: &Rule) -> Value {
    let probe = rule.probe.as_ref().map(|name| json!({"id": balancer.child("probes", name).as_str()}));
    let properties = json!({
        "protocol": rule.protocol,
        "frontendPort": rule.frontend_port,
        "backendPort": rule.backend_port,
        "enableFloatingIP": rule.has_floating_ip,
        "idleTimeoutInMinutes": rule.idle_minutes,
        "loadDistribution": rule.distribution,
        "disableOutboundSnat": env.disables_outbound_snat,
        "frontendIPConfiguration": {"id": frontend},
        "backendAddressPool": {"id": pool.as_str()},
        // A null removes it from a rule that has one.
        "probe": probe,
        "enableTcpReset": rule.resets,
    });
    json!({"name": rule.name, "properties": properties})
}

/// A probe as an object.
pub(super) fn probe(probe: &Probe) -> Value {
    json!({"name": probe.name, "properties": {
        "protocol": probe.protocol,
        "port": probe.port,
        "intervalInSeconds": probe.interval,
        "probeThreshold": probe.count,
        "requestPath": probe.path,
    }})
}

/// A rule, NAT rule or NAT pool that already has a wanted port of a frontend, and its kind.
pub(super) fn taken<'v>(
    balancer: &'v Value,
    frontend: &str,
    base: &str,
    rule: &Rule,
) -> Option<(&'static str, &'v Value)> {
    let is_of = |object: &Value| {
        let protocol = json::property(object, "protocol");
        let is_any = same(protocol, "All") || rule.protocol == "All";
        same(json::reference(object, "frontendIPConfiguration"), frontend) && (is_any || same(protocol, rule.protocol))
    };
    let port = i64::from(rule.frontend_port);
    let number = |object: &Value, field: &str| json::number(object, &["properties", field]).unwrap_or_default();
    let has_port = |object: &Value| {
        is_of(object) && (number(object, "frontendPort") == port || port == 0 || number(object, "frontendPort") == 0)
    };
    let has_range = |object: &Value| {
        let range = number(object, "frontendPortRangeStart")..=number(object, "frontendPortRangeEnd");
        is_of(object) && (range.contains(&port) || port == 0)
    };
    let rules = json::items(balancer, "loadBalancingRules").iter();
    // Azure lets high-availability ports share an address with single ports where both have floating IP.
    let floats = |other: &Value| {
        let is_one_of_all = same(json::property(other, "protocol"), "All") != (rule.protocol == "All");
        is_one_of_all && rule.has_floating_ip && json::at(other, &["properties", "enableFloatingIP"]) == true
    };
    let rules = rules.filter(|other| !names::is_of(json::name(other), base) && has_port(other) && !floats(other));
    let nat = json::items(balancer, "inboundNatRules").iter().filter(|other| has_port(other));
    let pools = json::items(balancer, "inboundNatPools").iter().filter(|other| has_range(other));
    let kinds = [
        ("load balancing rule", rules.collect::<Vec<_>>()),
        ("inbound NAT rule", nat.collect()),
        ("inbound NAT pool", pools.collect()),
    ];
    kinds.into_iter().find_map(|(kind, found)| Some((kind, *found.first()?)))
}

/// Why a Service cannot have a rule.
pub(super) fn conflict(balancer: &Value, frontend: &str, base: &str, rule: &Rule) -> Option<String> {
    let (kind, other) = taken(balancer, frontend, base, rule)?;
    let frontend = frontend.rsplit('/').next().unwrap_or_default();
    Some(format!(
        "{} {} of the rule {} is already used by the {kind} {} of the frontend {frontend}; use another port or address",
        rule.protocol,
        rule.frontend_port,
        rule.name,
        json::name(other)
    ))
}

/// The frontends of a load balancer that are its Service's, or that it shares.
pub(crate) fn claimed<'v>(observed: &Observed, item: &Item, balancer: &'v Value) -> Vec<(&'v Value, claim::Frontend)> {
    let frontends = json::items(balancer, "frontendIPConfigurations").iter();
    let with_claim = frontends.map(|frontend| (frontend, claim::frontend(observed, item, frontend)));
    with_claim.filter(|(_, claim)| *claim != claim::Frontend::Foreign).collect()
}

/// What is sent: subnets are references.
pub(crate) fn body(mut balancer: Value) -> Value {
    for frontend in json::items_mut(&mut balancer, "frontendIPConfigurations") {
        let subnet = json::at(frontend, &["properties", "subnet"]);
        if subnet.get("properties").is_some() {
            let reference = json!({"id": json::text(subnet, &["id"])});
            json::object_mut(frontend, "properties").insert("subnet".to_owned(), reference);
        }
    }
    balancer
}

//! Plans the writes from the observed to the desired state. Pure.
//!
//! Upstream: `gce_loadbalancer_external.go` and `gce_loadbalancer_internal.go`. Each Service is planned separately,
//! shared objects once for all of them. Steps are then sorted by their [`Rank`], so a plan may stop after any prefix.
//! If a forwarding rule exists, so does everything behind it.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Change, Finding, ProviderError, Risk, ServiceAction, Verb};
use serde_json::{Value, json};

use super::claim::{Owner, is_foreign, real_scheme};
use super::env::Env;
use super::hosts::Host;
use super::observed::Observed;
use super::parts;
use super::step::{Act, Rank, Step};
use super::wanted::{Item, Settings, Wanted};
use crate::annotations::{Scheme, Tier};
use crate::client::Write;
use crate::client::balancing::ForwardingRule;
use crate::client::operation::{BACKEND_SERVICE_UPDATE, FORWARDING_RULE_CREATE, FORWARDING_RULE_DELETE, Operation};
use crate::client::resource::{Collection, Scope, last_part};
use crate::ownership::ClusterNames;

mod address;
mod checks;
mod external;
mod firewalls;
mod groups;
mod hosts;
mod internal;
mod leave;
mod members;
mod needs;

#[cfg(test)]
mod tests;

pub(super) use address::in_use;
pub(super) use checks::{left_check_firewall, replaces_shared};
pub(super) use groups::hosts as group_hosts;
pub(super) use hosts::{existing, is_found};
pub(super) use needs::{Needs, needs_rule};

/// The most addresses that are reserved at the same time, unless failures leave some for their next attempt: the default
/// quota of a region is 8, and users have reservations, too.
const RESERVATIONS: usize = 4;

/// A plan for one item under construction.
pub(super) struct Draft<'a> {
    env: &'a Env,
    observed: &'a Observed,
    place: usize,
    item: &'a Item,
    /// The shared objects that the Services of this work need.
    needed: &'a Needed,
    /// Whether another address may be reserved in this pass.
    may_reserve: bool,
    steps: Vec<Step>,
    findings: Vec<Finding>,
    /// An error that does not prevent the steps.
    partly: Option<ProviderError>,
    /// The reason why no firewall rule can be created: a host without a tag.
    untagged: Option<ProviderError>,
}

/// The shared objects that the Services of one work need.
#[derive(Debug, Default)]
pub(super) struct Needed {
    /// The health check of the nodes, by kind.
    checks: BTreeSet<Scheme>,
    /// The instance groups.
    groups: bool,
    /// The backend services that Services share, by name.
    backends: BTreeSet<String>,
}

impl Needed {
    fn of(observed: &Observed, wanted: &Wanted) -> Self {
        let mut needed = Self::default();
        for item in wanted.items.values() {
            if item.hosts_only() {
                let kind = existing(observed, item).unwrap_or(item.scheme);
                needed.checks.insert(kind);
                needed.groups |= kind == Scheme::Internal;
                needed.backends.extend(observed.rule(&item.names).and_then(backend_name));
            }
            let Some(settings) = &item.settings else { continue };
            if settings.health_port.is_none() {
                needed.checks.insert(item.scheme);
            }
            if item.scheme == Scheme::Internal {
                needed.groups = true;
                needed.backends.extend(shared_backend_name(observed, settings));
            }
        }
        needed
    }
}

/// The plan for all items.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) steps: Vec<Step>,
    pub(super) findings: Vec<Finding>,
    pub(super) failed: BTreeMap<usize, ProviderError>,
}

/// Plans all items. One that cannot be ensured has an error and the steps for its hosts.
pub(super) fn plan(env: &Env, observed: &Observed, wanted: &Wanted) -> Steps {
    let mut all = Steps::default();
    let needed = Needed::of(observed, wanted);
    let (mut in_groups, mut reservations) = (BTreeMap::new(), observed.reserving.len());
    for (place, item) in &wanted.items {
        let draft = |may_reserve| Draft {
            env,
            observed,
            place: *place,
            item,
            needed: &needed,
            may_reserve,
            steps: Vec::new(),
            findings: Vec::new(),
            partly: None,
            untagged: None,
        };
        let (draft, kind, error) = with_hosts(|| draft(reservations < RESERVATIONS));
        reservations += draft.steps.iter().filter(|step| step.rank == Rank::Reserve).count();
        if kind == Some(Scheme::Internal) || kind.is_some() && draft.has_former_groups() {
            in_groups.insert(*place, item);
        }
        all.findings.extend(item.findings.iter().cloned().chain(draft.findings));
        all.steps.extend(draft.steps);
        all.failed.extend(error.map(|error| (*place, error)));
    }
    let (steps, findings) = groups::plan(env, observed, &in_groups);
    all.steps.extend(steps);
    all.findings.extend(findings);
    all.steps.sort_by_key(Step::stage);
    share(&mut all.steps);
    all
}

/// The plan for an item, the kind of the balancer whose hosts it has, and the error if it cannot be ensured: then the
/// plan is that for the hosts of what exists, which follow the nodes whatever else the Service asks for. The groups
/// behind an internal balancer follow them even if its backend service is not known.
fn with_hosts<'a>(draft: impl Fn() -> Draft<'a>) -> (Draft<'a>, Option<Scheme>, Option<ProviderError>) {
    let mut whole = draft();
    let (observed, item) = (whole.observed, whole.item);
    let error = match whole.item() {
        Ok(()) => {
            let wanted = item.settings.as_ref().map(|_| item.scheme);
            let kind = if item.hosts_only() { existing(observed, item) } else { wanted };
            let partly = whole.partly.take().or_else(|| whole.unread_zone());
            return (whole, kind, partly);
        }
        // What it has of its former kind is deleted.
        Err(error) if error.is_implemented_elsewhere() => {
            let unread = whole.partly.take().or_else(|| whole.unread_zone_of_former());
            return (whole, None, Some(unread.unwrap_or(error)));
        }
        Err(error) => error,
    };
    let mut hosts = draft();
    if item.follows() {
        let serves = |kind: &Scheme| *kind == item.scheme || hosts.has_former_hosts(*kind);
        let found = existing(observed, item).filter(serves);
        if let Some(kind) = found.filter(|_| hosts.hosts().is_ok()) {
            return (hosts, Some(kind), Some(error));
        }
    }
    (draft(), hosts.groups_are_known().then_some(Scheme::Internal), Some(error))
}

/// Steps for shared objects that several items plan are done once, for all of them: deletions with the last, others with
/// the first.
fn share(steps: &mut Vec<Step>) {
    let key = |step: &Step| format!("{:?} {}", step.rank, step.act.write());
    let mut items: BTreeMap<String, BTreeSet<usize>> = BTreeMap::new();
    for step in steps.iter().filter(|step| step.is_shared) {
        items.entry(key(step)).or_default().extend(&step.items);
    }
    let mut is_first = |step: &mut Step| match step.is_shared {
        true => items.remove(&key(step)).map(|items| step.items = items).is_some(),
        false => true,
    };
    steps.retain_mut(|step| step.verb == Verb::Delete || is_first(step));
    steps.reverse();
    steps.retain_mut(|step| step.verb != Verb::Delete || is_first(step));
    steps.reverse();
}

/// The kinds of load balancers whose objects are deleted.
pub(super) fn leaving(item: &Item, rule: Option<&ForwardingRule>) -> BTreeSet<Scheme> {
    let real = rule.map(real_scheme);
    let mut going = item.begun.clone();
    match item.action {
        ServiceAction::UpdateHosts => return BTreeSet::new(),
        ServiceAction::Delete => {
            going.extend(real);
            if item.owner != Owner::Other {
                going.insert(item.scheme);
            }
        }
        ServiceAction::Ensure => {
            going.extend(real);
            going.remove(&item.scheme);
        }
    }
    going
}

/// The name of the backend service of a rule.
pub(crate) fn backend_name(rule: &ForwardingRule) -> Option<String> {
    Some(last_part(&rule.backend_service).to_owned()).filter(|name| !name.is_empty())
}

/// The name of the shared backend service, if this Service uses it.
pub(super) fn shared_backend_name(observed: &Observed, settings: &Settings) -> Option<String> {
    let name = || ClusterNames(&observed.cluster_id).shared_backend_service(&settings.protocol, &settings.affinity);
    settings.shares_backend.then(name)
}

/// The addresses whose reservations are looked up for a Service whose rule will be created: the requested one, and that
/// of the rule which is replaced. Also the requested address at which other traffic will be denied.
pub(super) fn addresses_to_look_for(env: &Env, observed: &Observed, item: &Item) -> BTreeSet<String> {
    let denied = firewalls::address_to_deny(env, observed, item);
    let Some(wanted) = address_to_look_for(env, observed, item) else { return denied.into_iter().collect() };
    let rule = observed.rule(&item.names).filter(|rule| real_scheme(rule) == item.scheme);
    let old = rule.map(|rule| rule.ip_address.clone()).filter(|ip| !ip.is_empty());
    old.into_iter().chain([wanted]).chain(denied).collect()
}

/// The requested address of a Service whose rule will be created, if any.
pub(super) fn address_to_look_for(env: &Env, observed: &Observed, item: &Item) -> Option<String> {
    let settings = item.settings.as_ref().filter(|_| !item.hosts_only())?;
    let rule = observed.rule(&item.names).filter(|rule| real_scheme(rule) == item.scheme);
    let wanted = match item.scheme {
        Scheme::External => {
            let tier = external::tier(observed, item, settings, rule);
            external::makes_rule(env, observed, item, settings, rule).then(|| external::ip(settings, rule, tier))
        }
        Scheme::Internal => internal::makes_rule(env, observed, item, settings, rule)
            .then(|| internal::ip(env, observed, settings, rule)),
    };
    wanted.flatten()
}

/// The objects that use the shared objects of a kind.
pub(super) fn users_of(scheme: Scheme) -> Collection {
    match scheme {
        Scheme::External => Collection::TargetPools,
        Scheme::Internal => Collection::BackendServices,
    }
}

/// Fails if something was not read that the plan for an item needs: it may exist.
pub(super) fn is_read(env: &Env, observed: &Observed, item: &Item) -> Result<(), ProviderError> {
    if observed.unread.is_empty() {
        return Ok(());
    }
    let mut needs = Needs { rules: [item.names.balancer.clone()].into(), ..Needs::default() };
    needs.add(env, observed, item, false);
    needs.add_replaced(observed, item);
    needs.addresses.extend(addresses_to_look_for(env, observed, item));
    let network = || observed.unread(Collection::Networks, "").filter(|_| internal::needs_network(env, observed, item));
    needs.unread(observed).or_else(network).map_or(Ok(()), |error| Err(error.clone()))
}

impl<'a> Draft<'a> {
    fn item(&mut self) -> Result<(), ProviderError> {
        if self.item.hosts_only() {
            return self.hosts();
        }
        let mixed = || Err(super::wanted::refused(super::wanted::MIXED));
        if self.item.is_mixed && self.item.owner == Owner::Us {
            return mixed();
        }
        is_read(self.env, self.observed, self.item)?;
        let rule = self.observed.rule(&self.item.names);
        for scheme in leaving(self.item, rule) {
            self.leave(scheme);
        }
        let rule = rule.filter(|rule| real_scheme(rule) == self.item.scheme);
        if self.item.action == ServiceAction::Delete {
            return Ok(());
        }
        if !self.is_ours() {
            return Err(ProviderError::ImplementedElsewhere);
        }
        if self.item.is_mixed {
            return mixed();
        }
        let Some(settings) = &self.item.settings else { return Ok(()) };
        self.former_hosts();
        match self.item.scheme {
            Scheme::External => self.external(settings, rule),
            Scheme::Internal => self.internal(settings, rule),
        }
    }

    /// Whether the load balancer of the requested kind is this provider's.
    fn is_ours(&self) -> bool {
        let rule = self.observed.rule(&self.item.names).filter(|rule| real_scheme(rule) == self.item.scheme);
        match self.item.owner {
            Owner::Us => !rule.is_some_and(is_foreign),
            Owner::UsIfThere => rule.is_some_and(|rule| !is_foreign(rule)),
            Owner::Other => false,
        }
    }

    /// The reason why the groups of a zone are left as they are.
    fn unread_zone(&self) -> Option<ProviderError> {
        self.observed.unread_of(Collection::InstanceGroups)?;
        let mut needs = Needs::default();
        needs.add(self.env, self.observed, self.item, false);
        needs.unread_zone(self.observed).cloned()
    }

    /// The same for groups of which only those of the Service's former kind may have to be deleted.
    fn unread_zone_of_former(&self) -> Option<ProviderError> {
        let former = leaving(self.item, self.observed.rule(&self.item.names));
        let of_groups = former.contains(&Scheme::Internal) && !self.env.options.skips_groups;
        self.observed.unread_of(Collection::InstanceGroups).filter(|_| of_groups).cloned()
    }

    fn cluster(&self) -> ClusterNames<'a> {
        ClusterNames(&self.observed.cluster_id)
    }

    fn write(&self, operation: Operation, name: &str) -> Write {
        let scope = match operation.collection {
            Collection::Firewalls | Collection::HttpHealthChecks | Collection::HealthChecks => Scope::Global,
            _ => self.env.region(),
        };
        Write::new(operation, scope, name)
    }

    fn push(&mut self, rank: Rank, act: Act, what: What) {
        self.push_in_order(rank, 0, act, what);
    }

    fn push_in_order(&mut self, rank: Rank, order: u32, act: Act, what: What) {
        let What { verb, kind, changes, reason } = what;
        let risk = match (verb, kind) {
            (Verb::Delete | Verb::Detach, "ForwardingRule" | "TargetPool" | "BackendService") => Risk::Disruptive,
            (Verb::Delete | Verb::Detach, _) => Risk::Brief,
            _ => Risk::None,
        };
        let balancer = Some(self.item.names.balancer.clone());
        // Both kinds of balancers have a firewall rule of this name.
        if verb == Verb::Delete && self.steps.iter().any(|step| step.rank == rank && step.act.write() == act.write()) {
            return;
        }
        let id = act.write().name.clone();
        let (part, needs) = parts::of(self.item.action, rank, verb, &act);
        self.steps.push(Step {
            items: [self.place].into(),
            is_shared: false,
            balancer,
            rank,
            order,
            part,
            needs,
            act,
            verb,
            kind,
            id,
            changes,
            reason,
            risk,
            restore: Vec::new(),
            releases: false,
        });
    }

    /// Adds a step for an object that Services may share.
    fn push_as(&mut self, is_shared: bool, rank: Rank, act: Act, what: What) {
        let before = self.steps.len();
        self.push(rank, act, what);
        for step in self.steps.iter_mut().skip(before).filter(|_| is_shared) {
            (step.is_shared, step.balancer) = (true, None);
        }
    }

    /// Deletes an object that has the name of the balancer.
    fn delete(&mut self, rank: Rank, operation: Operation, kind: &'static str, reason: &'static str) {
        let write = self.write(operation, &self.item.names.balancer);
        self.push(rank, Act::Send(write), what(Verb::Delete, kind, reason));
    }

    /// Deletes a rule that cannot be updated, before the objects behind it change.
    fn delete_rule(&mut self, changes: Vec<Change>) {
        let write = self.write(FORWARDING_RULE_DELETE, &self.item.names.balancer);
        let what = what(Verb::Delete, "ForwardingRule", "it cannot be changed and is made again");
        self.push(Rank::OldRule, Act::Send(write), What { changes, ..what });
    }

    /// Creates a forwarding rule. One that was deleted for it comes back if the new one is refused, with the protocol of
    /// its backend service.
    fn insert_rule(&mut self, body: Value, has_address: bool) {
        let tier = body.get("networkTier").and_then(Value::as_str).map(Tier::of);
        let write = self.write(FORWARDING_RULE_CREATE, &self.item.names.balancer).body(body);
        let act = if has_address { Act::Send(write) } else { Act::InsertRule(write) };
        self.push(Rank::Rules, act, what(Verb::Create, "ForwardingRule", "everything behind it is there"));
        let name = &self.item.names.balancer;
        let is_planned = |rank, verb| self.steps.iter().any(|step| step.rank == rank && step.verb == verb);
        let goes = is_planned(Rank::OldRule, Verb::Delete) || self.former().is_some();
        let rule = self.observed.rule(&self.item.names).filter(|_| goes);
        let backend = rule.filter(|_| self.former().is_none()).and_then(|_| self.observed.backends.get(name));
        let backend = backend.filter(|_| is_planned(Rank::Pools, Verb::Update));
        let backend = backend.map(|backend| {
            let write = self.write(BACKEND_SERVICE_UPDATE, name).body(json!({"protocol": backend.protocol}));
            (Act::PatchLatest(write), Verb::Update, "BackendService")
        });
        // Only an address of the same kind and tier is reserved.
        let moves = |rule: &&ForwardingRule| {
            self.former().is_some() || tier.is_some_and(|tier| external::tier_of(rule) != tier)
        };
        let at_any = rule.filter(|rule| real_scheme(rule) == Scheme::External).filter(moves).is_some();
        let rule = rule.map(|rule| {
            let write = self.write(FORWARDING_RULE_CREATE, name).body(rule.again());
            (Act::RestoreRule { write, at_any }, Verb::Create, "ForwardingRule")
        });
        if let Some(step) = self.steps.last_mut() {
            let of = |(act, verb, kind)| Step { act, verb, kind, ..step.clone() };
            step.restore = backend.into_iter().chain(rule).map(of).collect();
        }
    }
}

/// The description of a step.
struct What {
    verb: Verb,
    kind: &'static str,
    changes: Vec<Change>,
    reason: &'static str,
}

fn what(verb: Verb, kind: &'static str, reason: &'static str) -> What {
    What { verb, kind, changes: Vec::new(), reason }
}

fn update(kind: &'static str, changes: Vec<Change>, reason: &'static str) -> What {
    What { verb: Verb::Update, kind, changes, reason }
}

fn change(field: &'static str, before: &str, after: &str) -> Change {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Change { field: field.into(), before: some(before), after: some(after) }
}

pub(super) fn instance_url(env: &Env, host: &Host) -> String {
    env.links.of(Collection::Instances, &Scope::zone(&host.zone), &host.name)
}

/// The body of calls that add or remove instances.
pub(super) fn instances_body(env: &Env, hosts: &[Host]) -> Value {
    let list: Vec<Value> = hosts.iter().map(|host| json!({"instance": instance_url(env, host)})).collect();
    json!({ "instances": list })
}

/// Sets a field of a body.
pub(super) fn put(body: &mut Value, field: &str, value: impl Into<Value>) {
    if let Value::Object(fields) = body {
        fields.insert(field.to_owned(), value.into());
    }
}

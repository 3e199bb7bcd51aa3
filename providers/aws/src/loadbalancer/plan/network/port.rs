//! Listeners and target groups of all Service ports.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Finding, Risk, Verb};

use super::group::{self, Chosen};
use super::{Context, step};
use crate::client::elbv2::Listener;
use crate::client::write::{ElbV2Write, ListenerSettings};
use crate::client::{DEFAULT_POLICY, Id, Write};
use crate::loadbalancer::claim::{self, Claim, Unread};
use crate::loadbalancer::observed::TargetGroup;
use crate::loadbalancer::step::{Kind, Planned, Step};
use crate::loadbalancer::wanted::Port;

/// Before a listener leaves its group, the new one exists and has its targets.
const FILLED: &[Kind] = &[Kind::Frame, Kind::Members];

struct Matched<'a> {
    port: &'a Port,
    listener: Option<&'a Listener>,
    chosen: Chosen<'a>,
}

/// The plan under construction. It tracks which group each remaining listener forwards to, and so when a group can be
/// deleted.
struct PortPlan<'c, 'a> {
    context: &'c Context<'a>,
    planned: Planned,
    /// Target group by listener (ARNs), for existing listeners that remain.
    leads_to: BTreeMap<&'a str, Option<String>>,
    needed: BTreeSet<String>,
    /// ARNs of the groups that were deleted or reported.
    deleted: BTreeSet<&'a str>,
}

pub(super) fn plan(context: &Context<'_>) -> Planned {
    let listeners = context.existing().map(|existing| &*existing.listeners).unwrap_or_default();
    let mut matched = Vec::new();
    let mut errors = Vec::new();
    // Also those of ports that cannot be planned, which stay as they are.
    let mut kept: BTreeSet<&str> = BTreeSet::new();
    for port in &context.network.ports {
        let listener = find(listeners, port);
        kept.extend(listener.map(|listener| &*listener.arn));
        let current = listener.and_then(|listener| listener.target_group.as_deref());
        match group::choose(context, port, current) {
            Ok(chosen) => matched.push(Matched { port, listener, chosen }),
            Err(error) => errors.push(error),
        }
    }
    let mut surplus: Vec<&Listener> = listeners.iter().filter(|listener| !kept.contains(&*listener.arn)).collect();
    surplus.sort_by(|a, b| (a.port, &a.protocol, &a.arn).cmp(&(b.port, &b.protocol, &b.arn)));

    let mut plan = PortPlan {
        context,
        planned: Planned { errors, ..Planned::default() },
        leads_to: listeners.iter().map(|listener| (&*listener.arn, listener.target_group.clone())).collect(),
        needed: matched.iter().filter_map(|one| one.chosen.arn().map(str::to_owned)).collect(),
        deleted: BTreeSet::new(),
    };
    for one in &matched {
        let towards = one.listener.is_none().then_some("CreateListener");
        let prepared = group::prepare(context, one.port, &one.chosen).into_iter();
        plan.planned.steps.extend(prepared.map(|mut step| {
            step.purpose.towards = towards;
            step
        }));
        match one.listener {
            Some(listener) => plan.modify(one, listener),
            None => {
                // A port has one listener: one of another protocol must be deleted first.
                let (conflicting, others) = surplus.into_iter().partition(|listener| listener.port == one.port.port);
                surplus = others;
                let conflicting: Vec<&Listener> = conflicting;
                let former = conflicting.first().copied();
                for listener in conflicting {
                    let delete = plan.delete(listener, "the port's protocol changed, which takes a new listener");
                    let delete = delete.part(Kind::Frame, one.port.key()).needs(FILLED);
                    let besides = group::filling(context, one.port, &one.chosen);
                    plan.planned.steps.push(Step { besides, ..delete });
                }
                plan.create(one, former);
            }
        }
        plan.sweep(&one.port.key());
    }
    for listener in surplus {
        let delete = plan.delete(listener, "the Service has no such port");
        // It serves until the listeners of all ports do.
        plan.planned.steps.push(delete.part(Kind::Retire, ""));
        plan.sweep("");
    }
    let unattached = context.observed.unattached_target_groups.iter();
    plan.discard(unattached.collect(), "left over: no listener forwards to it and no port needs it", None);
    plan.planned
}

/// The listener of a port: the one with its protocol, else one whose protocol can be changed in place (TCP and TLS).
pub(super) fn find<'a>(listeners: &'a [Listener], port: &Port) -> Option<&'a Listener> {
    let on_port = || listeners.iter().filter(|listener| listener.port == port.port);
    let stream = |protocol: &str| ["TCP", "TLS"].contains(&protocol);
    let alike = || on_port().find(|listener| stream(&listener.protocol) && stream(&port.protocol));
    on_port().find(|listener| listener.protocol == port.protocol).or_else(alike)
}

impl<'a> PortPlan<'_, 'a> {
    /// `former`: the listener that was deleted for this one.
    fn create(&mut self, one: &Matched<'_>, former: Option<&Listener>) {
        let insert = |listener| {
            let (balancer, tags) = (self.context.balancer(), self.context.tags.clone());
            ElbV2Write::CreateListener { balancer, listener, tags }
        };
        let (write, restore) = (insert(wanted(one)), former.and_then(again).map(insert));
        let reason = format!("the Service has port {}", one.port.port);
        let summary = self.listener_step(Verb::Create, one.port.port, reason, write);
        let create = with_changes(summary, differences(self.context, one, None));
        let create = create.part(Kind::Frame, one.port.key());
        self.planned.steps.push(Step { restore: restore.map(Write::ElbV2), ..create });
    }

    fn modify(&mut self, one: &Matched<'_>, listener: &'a Listener) {
        let changes = differences(self.context, one, Some(listener));
        let moved = changes.iter().any(|(field, ..)| *field == TARGET_GROUP);
        if !changes.is_empty() {
            let modify = |desired| ElbV2Write::ModifyListener { listener: listener.arn.clone(), desired };
            // If the TLS settings are refused, the listener moves without them.
            let former = again(listener).filter(|_| moved && changes.len() > 1 && may_lead(listener, one.port));
            let restore = former.map(|former| modify(ListenerSettings { target_group: one.chosen.id(), ..former }));
            let mut desired = wanted(one);
            if desired.protocol == "TLS" && listener.protocol != "TLS" {
                // AWS has a default for a new listener, not for one that gets TLS.
                desired.ssl_policy.get_or_insert_with(|| DEFAULT_POLICY.to_owned());
            }
            let write = modify(desired);
            let reason = if moved { "it must forward to the right target group" } else { "its settings differ" };
            let summary = self.listener_step(Verb::Update, one.port.port, reason, write).risk(Risk::Brief);
            let modify = with_changes(summary, changes).part(Kind::Frame, one.port.key());
            let modify = Step { restore: restore.map(Write::ElbV2), ..modify };
            // Traffic does not move to a group without its targets.
            let besides = || group::filling(self.context, one.port, &one.chosen);
            self.planned.steps.push(if moved { Step { besides: besides(), ..modify.needs(FILLED) } } else { modify });
        }
        if moved {
            self.leads_to.insert(&listener.arn, one.chosen.arn().map(str::to_owned));
        }
    }

    fn delete(&mut self, listener: &'a Listener, reason: &str) -> Step {
        let write = ElbV2Write::DeleteListener { listener: listener.arn.clone() };
        let summary = self.listener_step(Verb::Delete, listener.port, reason, write).risk(Risk::Disruptive);
        self.leads_to.remove(&*listener.arn);
        summary.change("protocol", Some(listener.protocol.clone()), None)
    }

    fn listener_step(&self, verb: Verb, port: i32, reason: impl Into<String>, write: ElbV2Write) -> Step {
        step(verb, "Listener", &format!("{}:{port}", self.context.desired.name), reason, write)
    }

    /// Deletes the groups that no listener forwards to any more, after a change of this port's listener.
    fn sweep(&mut self, of: &str) {
        let used = self.context.existing().map(|existing| &*existing.target_groups).unwrap_or_default();
        let is_led_to = |arn: &String| self.leads_to.values().flatten().any(|to| to == arn);
        let left = used.iter().filter(|found| !is_led_to(&found.group.arn));
        self.discard(left.collect(), "no listener forwards to it any more", Some(of));
    }

    fn discard(&mut self, groups: Vec<&'a TargetGroup>, reason: &str, of: Option<&str>) {
        for found in groups {
            if self.needed.contains(&found.group.arn) || !self.deleted.insert(&found.group.arn) {
                continue;
            }
            let Context { desired, observed, env, .. } = *self.context;
            match claim::target_group(desired, observed, found, env) {
                Claim::Unread(why @ (Unread::NotShown | Unread::Hidden)) => {
                    self.planned.errors.push(claim::group_not_shown(found, why));
                }
                claim if claim.is_ours() => {
                    let of = of.unwrap_or(&found.group.name);
                    self.planned.steps.push(group::delete(found, reason).part(Kind::Retire, of.to_owned()));
                }
                _ => self.planned.findings.push(kept(found)),
            }
        }
    }
}

fn wanted(one: &Matched<'_>) -> ListenerSettings {
    ListenerSettings {
        port: one.port.port,
        protocol: one.port.protocol.clone(),
        certificate: one.port.certificate.clone(),
        ssl_policy: one.port.ssl_policy.clone(),
        target_group: one.chosen.id(),
    }
}

/// A listener as it was.
fn again(listener: &Listener) -> Option<ListenerSettings> {
    Some(ListenerSettings {
        port: listener.port,
        protocol: listener.protocol.clone(),
        certificate: listener.certificates.first().cloned(),
        ssl_policy: listener.ssl_policy.clone(),
        target_group: Id::Known(listener.target_group.clone()?),
    })
}

/// Whether a listener can forward to the group of a port with the protocol that it has.
fn may_lead(listener: &Listener, port: &Port) -> bool {
    listener.protocol == port.traffic_protocol || (&*listener.protocol, &*port.traffic_protocol) == ("TLS", "TCP")
}

const TARGET_GROUP: &str = "target group";

type Changes = Vec<(&'static str, Option<String>, Option<String>)>;

fn with_changes(step: Step, changes: Changes) -> Step {
    changes.into_iter().fold(step, |step, (field, before, after)| step.change(field, before, after))
}

/// The differences of a listener, or of one that is to be created: field, before, after.
fn differences(context: &Context<'_>, one: &Matched<'_>, listener: Option<&Listener>) -> Changes {
    let port = one.port;
    let is = |get: fn(&Listener) -> Option<String>| listener.and_then(get);
    let mut changes = vec![
        ("protocol", is(|listener| Some(listener.protocol.clone())), Some(port.protocol.clone())),
        ("certificate", is(|listener| listener.certificates.first().cloned()), port.certificate.clone()),
    ];
    // With TLS, an unannotated policy is AWS's default or was set manually.
    if port.certificate.is_none() || port.ssl_policy.is_some() {
        changes.push(("TLS policy", is(|listener| listener.ssl_policy.clone()), port.ssl_policy.clone()));
    }
    changes.retain(|(_, before, after)| before != after);
    let target_group = listener.and_then(|listener| listener.target_group.as_deref());
    if target_group.is_none() || target_group != one.chosen.arn() {
        let before = target_group.map(|arn| group::name(context, arn).to_owned());
        changes.push((TARGET_GROUP, before, Some(one.chosen.name.clone())));
    }
    changes
}

fn kept(found: &TargetGroup) -> Finding {
    Finding::warning(
        "target group",
        "no port needs it, but it is not tagged as created for this Service, or another load balancer uses it; it is \
                  left unchanged: delete it if it is not needed",
    )
    .value(found.group.name.clone())
}

//! The cluster's side: controllers of the object, lease holders, nodes of a load balancer. Pure.

use std::collections::BTreeSet;

use ccm_controllers::{lifecycle, node, route, service};
use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{REASON_NO_ROUTE, TAINT_UNINITIALIZED};
use ccm_provider::{Fact, Lookup, Node, NodeName, NodeRef, ProviderError, Step};
use ccm_runtime::election::{ElectionConfig, Seen};
use ccm_runtime::{ApiError, InstanceView};
use jiff::Timestamp;

use super::events::ago;
use super::{Object, Previewed};
use crate::options::Chosen;
use crate::options::Options;
use crate::options::migration::Lease;

/// The maximum number of nodes named in one line.
const NAMED: usize = 5;

#[derive(Debug, Clone, Copy)]
pub(super) struct Needed {
    pub(super) name: &'static str,
    /// The task of the controller for the object.
    does: &'static str,
    /// Whether the object is waiting for that controller.
    now: bool,
}

/// The controllers that handle an object.
pub(super) fn needed(object: &Object) -> Vec<Needed> {
    match object {
        Object::Service(_) => vec![Needed { name: service::NAME, does: "manages this load balancer", now: true }],
        Object::Node(node) => {
            let new = node.has_taint(TAINT_UNINITIALIZED);
            let unwell = lifecycle::decide::needs_answer(node) || lifecycle::decide::recovered(node);
            let mut needed = vec![
                Needed { name: node::NAME, does: "initializes it and keeps its addresses", now: new },
                Needed { name: lifecycle::NAME, does: "checks whether its instance exists", now: unwell && !new },
            ];
            if let Some(reason) = unreachable(node) {
                let ours = reason == REASON_NO_ROUTE;
                needed.push(Needed { name: route::NAME, does: "creates the routes to its pods", now: ours });
            }
            needed
        }
    }
}

/// The reason for which the node's network is unavailable, if it is.
pub(super) fn unreachable(node: &Node) -> Option<&str> {
    node.network_unavailable
        .as_ref()
        .filter(|(status, _)| *status == ConditionStatus::True)
        .map(|(_, reason)| &**reason)
}

/// Adds those results of a pass over all routes that concern one node. Failures concern every node.
pub(super) fn add_routes(previewed: &mut Previewed, routes: Previewed, node: &NodeName) {
    let to = format!(" to {node}");
    let of_node = |step: &Step| match &*step.kind {
        "Route" => step.id.ends_with(&to),
        _ => step.id == node.as_str(),
    };
    previewed.plans.extend(routes.plans.into_iter().filter_map(|mut plan| {
        plan.steps.retain(of_node);
        plan.findings.retain(|finding| finding.key == format!("node {node}"));
        (!plan.steps.is_empty() || !plan.findings.is_empty()).then_some(plan)
    }));
    previewed.unplanned.extend(routes.unplanned);
    previewed.warnings.extend(routes.warnings);
    previewed.skipped.extend(routes.skipped);
}

/// Whether the flags enable them. `skipped`: enabled controllers that do not run, with the reason.
pub(super) fn controllers(options: &Options, skipped: &[(&'static str, String)], needed: &[Needed]) -> Vec<Fact> {
    let state = |needed: &Needed| {
        let Chosen { controller, on, .. } =
            options.controllers.iter().find(|known| known.controller.name == needed.name)?;
        let reason = skipped.iter().find(|(name, _)| *name == needed.name).map(|(_, reason)| reason);
        let lease = options.migration.as_ref().map(|m| m.lease_of(controller.name, controller.aliases));
        Some(match (on, reason, lease) {
            (false, ..) => Err((
                "disabled by --controllers".to_owned(),
                format!("add {} to --controllers, unless another program does this", needed.name),
            )),
            (true, Some(reason), _) => {
                let text = format!("does not run: {reason}");
                Err((text, "change that, unless another program does this".to_owned()))
            }
            (true, None, Some(Lease::NotOurs)) => Err((
                "--leader-migration-config says that another component runs it".to_owned(),
                "see that component".to_owned(),
            )),
            (true, None, Some(Lease::Migration)) => Ok("under the lease of the leader migration"),
            (true, None, _) => Ok("enabled"),
        })
    };
    let fact = |needed: &Needed| match state(needed) {
        Some(Ok(text)) => Fact::good(needed.name, format!("{text}; it {}", needed.does)),
        Some(Err((text, hint))) if needed.now => Fact::bad(needed.name, text, hint),
        Some(Err((text, _))) => Fact::good(needed.name, format!("{text}; nothing else here {}", needed.does)),
        None if needed.now => Fact::bad(needed.name, "not part of this program", "use one that has it"),
        None => Fact::good(needed.name, "not part of this program"),
    };
    needed.iter().map(fact).collect()
}

/// The names of the leases under which these controllers run.
pub(super) fn leases(options: &Options, own: &ElectionConfig, needed: &[Needed]) -> BTreeSet<String> {
    let name = |needed: &Needed| {
        let controller = &options.controllers.iter().find(|known| known.controller.name == needed.name)?.controller;
        match &options.migration {
            Some(migration) => match migration.lease_of(controller.name, controller.aliases) {
                Lease::Main => Some(own.name.clone()),
                Lease::Migration => Some(migration.lease_name.clone()),
                Lease::NotOurs => None,
            },
            None => Some(own.name.clone()),
        }
    };
    needed.iter().filter_map(name).collect()
}

/// The leader; the error is the reason why it is unknown.
pub(in crate::commands) fn lease(
    label: &str,
    seen: Result<Option<Seen>, ApiError>,
    usual: std::time::Duration,
    now: Timestamp,
) -> Result<Fact, String> {
    let about = format!("lease {label}");
    let start = "start the controller manager, or give the --leader-elect-resource-name and -namespace that it has";
    let seen = match seen {
        Ok(Some(seen)) => seen,
        Ok(None) => {
            return Ok(Fact::bad(about, "does not exist: no replica is active under this name", start));
        }
        Err(error) if error.is_forbidden() => {
            return Err(format!("{about}: may not be read: grant get on leases of coordination.k8s.io ({error})"));
        }
        Err(error) => return Err(format!("{about}: {error}")),
    };
    let renewed = seen.renewed.map_or_else(|| "at an unknown time".to_owned(), |renewed| ago(renewed, now));
    if seen.holder.is_empty() {
        return Ok(Fact::bad(about, format!("released {renewed}, without a holder: no replica is active"), start));
    }
    let lasts = seen.duration.unwrap_or(usual);
    let expired =
        seen.renewed.is_some_and(|renewed| now.duration_since(renewed).unsigned_abs() > lasts && renewed < now);
    if expired {
        let lasts = ccm_provider::duration::format(lasts);
        let text =
            format!("held by {}, last renewed {renewed} and valid for {lasts}: no replica is active", seen.holder);
        let hint =
            "see why that replica is gone and no other takes over; if it does run, compare the clocks of the machines";
        return Ok(Fact::bad(about, text, hint));
    }
    Ok(Fact::good(about, format!("held by {}, renewed {renewed}", seen.holder)))
}

/// The nodes of the load balancers, and the reasons that exclude the others.
pub(super) fn hosts(nodes: &[NodeRef], view: Option<&InstanceView>) -> Fact {
    let about = "hosts";
    if nodes.is_empty() {
        let text = "the cluster has no node, so that the load balancer has no hosts";
        return Fact::bad(about, text, "add nodes; they become hosts automatically");
    }
    let left_out: Vec<(&Node, String)> =
        nodes.iter().filter_map(|node| node.left_out_of_balancers().map(|why| (&**node, why))).collect();
    let named = left_out.iter().take(NAMED).map(|(node, why)| format!("{}: {why}", node.name));
    let mut reasons = named.collect::<Vec<_>>().join("; ");
    if let Some(more) = left_out.len().checked_sub(NAMED).filter(|more| *more > 0) {
        reasons.push_str(&format!("; and {more} more"));
    }
    let candidates: Vec<&NodeRef> = nodes.iter().filter(|node| node.left_out_of_balancers().is_none()).collect();
    if candidates.is_empty() {
        let text = format!("none of {} nodes is a host of the load balancer ({reasons})", nodes.len());
        return Fact::bad(about, text, "remove the label or the taint, or add nodes");
    }
    let foreign = |node: &NodeRef| view.is_some_and(|view| view.is_foreign(node.provider_id.as_deref()));
    let strangers = candidates.iter().filter(|node| foreign(node)).count();
    let new = candidates.iter().filter(|node| !foreign(node) && node.has_taint(TAINT_UNINITIALIZED)).count();
    let hosts = candidates.len() - strangers - new;
    let mut text = format!("{hosts} of {} nodes are hosts of the load balancer", nodes.len());
    let notes = [
        (!reasons.is_empty()).then(|| format!("not {reasons}")),
        (strangers > 0).then(|| format!("{strangers} of another cloud")),
        (new > 0).then(|| format!("{new} not initialized yet")),
    ];
    for note in notes.into_iter().flatten() {
        text.push_str("; ");
        text.push_str(&note);
    }
    match hosts {
        0 if new > 0 => Fact::waiting("the initialization of nodes", text),
        0 => Fact::bad(about, text, "add nodes of this cloud"),
        _ => Fact::good(about, text),
    }
}

/// The cloud's answer about the node, as the controllers receive it; an error if the cloud gave no answer.
pub(super) fn lookup(answer: &Lookup) -> Result<Fact, ProviderError> {
    let about = "the cloud";
    Ok(match answer {
        Lookup::Found(instance) => match (&instance.metadata, &instance.shutdown) {
            (Err(error), _) => return Err(error.clone()),
            (_, Err(error)) if !error.is_not_implemented() => return Err(error.clone()),
            (Ok(None), _) => Fact::waiting(about, "knows the instance, and has no metadata for it yet"),
            (_, Ok(true)) => Fact::bad(about, "the instance is stopped", "start it, or delete the Node"),
            _ => Fact::good(about, "knows the instance"),
        },
        Lookup::Gone(evidence) => Fact::bad(
            about,
            evidence.to_string(),
            "a node that is not Ready is then deleted; if the machine exists, correct the provider ID or the name of \
             the node",
        ),
        Lookup::Foreign => Fact::good(about, "is not asked: the node belongs to another one"),
        Lookup::Unknown(error) => return Err(error.clone()),
    })
}

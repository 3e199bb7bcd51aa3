//! The end of a classic balancer, from whatever state an earlier attempt left.

use ccm_provider::{Finding, Risk, Severity, Verb};

use super::step;
use crate::annotations::Kind;
use crate::client::Id;
use crate::client::write::ElbWrite;
use crate::loadbalancer::desired::Desired;
use crate::loadbalancer::observe::{Classic, Observed};
use crate::loadbalancer::plan::{Env, Planned, Step};
use crate::loadbalancer::security_groups::{delete as groups, nodes};

/// The writes that leave nothing of this Service's classic balancer: the rules on the nodes' groups, then the balancer, then
/// its own group. Group and rules are found without the balancer too, so that a deletion or creation that died in between
/// leaves nothing.
///
/// What lacks our marks stays, with a finding.
pub(crate) fn delete(desired: &Desired, observed: &Observed, env: &Env, reason: &str) -> Planned {
    if let Some(foreign) = observed.classic.as_ref().filter(|found| !env.ownership.is_member(&found.tags)) {
        return Planned { steps: Vec::new(), findings: vec![kept(foreign)] };
    }
    let attached = observed.classic.as_ref().map(|found| &*found.balancer.security_groups).unwrap_or_default();
    let removal = groups::unneeded(Kind::Classic, desired, attached, &[], observed, env);
    let mut steps = removal.cut;
    steps.extend(way_of_main_group(desired, attached, observed, env));
    if let Some(found) = &observed.classic {
        let balancer = found.balancer.name.clone();
        let write = ElbWrite::DeleteLoadBalancer { balancer };
        steps.push(step(Verb::Delete, "LoadBalancer", &found.balancer.name, reason, write).risk(Risk::Disruptive));
    }
    steps.extend(removal.delete);
    Planned { steps, findings: removal.findings }
}

/// Closes what had been opened for a group of the user's. (A group of ours goes with all that refers to it.)
fn way_of_main_group(desired: &Desired, attached: &[String], observed: &Observed, env: &Env) -> Vec<Step> {
    let ids: Vec<Id> = attached.iter().cloned().map(Id::Known).collect();
    let Some(main) = nodes::main_group(&ids, desired, observed, env).and_then(Id::known) else { return Vec::new() };
    let ours = |group| groups::is_ours(Kind::Classic, desired, attached, group, env);
    match observed.groups.get(main).is_some_and(ours) {
        true => Vec::new(),
        false => groups::cut_group_that_stays(main, observed, env),
    }
}

fn kept(found: &Classic) -> Finding {
    Finding {
        severity: Severity::Warning,
        key: "load balancer".to_owned(),
        value: Some(found.balancer.name.clone()),
        message: "not deleted: it is not marked as belonging to this cluster; delete it if it is not needed".to_owned(),
    }
}

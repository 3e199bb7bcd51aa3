//! Health of targets, and its usual causes. Pure.
//!
//! States and reasons: `TargetHealth` in the reference of Elastic Load Balancing v2.

use std::collections::BTreeMap;

use ccm_provider::{Fact, FactState};

use crate::loadbalancer::observed::TargetGroup;
use crate::loadbalancer::wanted::first_few;

struct Meaning {
    state: FactState,
    text: &'static str,
    hint: &'static str,
}

const NO_ANSWER: &str = "check that the node port answers on the node, that the nodes' security group allows it (`ccm plan` shows \
                         missing rules), and that network ACLs do";

/// The health of a target group. `local`: nodes without a pod of the Service fail their health check by design.
pub(super) fn of_group(group: &TargetGroup, local: bool) -> Fact {
    let about = format!("target group {}", group.group.name);
    let mut kinds: BTreeMap<(&str, &str), Vec<&str>> = BTreeMap::new();
    for health in &group.targets {
        kinds.entry((&health.state, &health.reason)).or_default().push(&health.target.id);
    }
    if kinds.is_empty() {
        return Fact::bad(about, "no node is registered", "check that the Service has nodes: `ccm plan` shows them");
    }
    let healthy = kinds.contains_key(&("healthy", ""));
    let mut worst = FactState::Good;
    let mut hints = Vec::new();
    let mut texts = Vec::new();
    for ((state, reason), ids) in &kinds {
        let meaning = meaning(state, reason);
        let expected = local && healthy && *state == "unhealthy";
        let said = match (*state, expected) {
            ("healthy", _) => String::new(),
            (_, true) => ": expected with externalTrafficPolicy Local where the node has no ready pod".to_owned(),
            (_, false) => format!(": {}", meaning.text),
        };
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        let which = if *state == "healthy" { String::new() } else { format!(" {}", first_few(ids)) };
        texts.push(format!("{} {state}{reason}{which}{said}", ids.len()));
        if !expected {
            worst = worst.max(meaning.state);
            hints.extend((meaning.state == FactState::Bad).then_some(meaning.hint));
        }
    }
    hints.dedup();
    let hint = (worst == FactState::Bad).then(|| hints.join("; "));
    Fact { about, state: worst, text: texts.join("; "), hint }
}

fn meaning(state: &str, reason: &str) -> Meaning {
    let good = |text| Meaning { state: FactState::Good, text, hint: "" };
    let waiting = |text| Meaning { state: FactState::Waiting, text, hint: "" };
    let bad = |text, hint| Meaning { state: FactState::Bad, text, hint };
    match (state, reason) {
        ("healthy", _) => good(""),
        ("initial", "Elb.RegistrationInProgress") => waiting("being registered"),
        ("initial", _) => waiting("health checks have started"),
        ("draining", _) => waiting("being deregistered; open connections may finish"),
        (_, "Target.Timeout") => bad("the health check times out", NO_ANSWER),
        (_, "Target.FailedHealthChecks") => bad("the health check gets no connection, or an error", NO_ANSWER),
        (_, "Target.ResponseCodeMismatch") => bad(
            "the HTTP status of the health check is not 2xx or 3xx",
            "check what answers on the health-check port; with externalTrafficPolicy Local it is kube-proxy, and the node \
             has no ready pod",
        ),
        (_, "Target.InvalidState") => bad("the instance is stopped or terminated", "start it, or delete its node"),
        (_, "Target.NotInUse") => bad(
            "no listener forwards to the group, or the load balancer is not in the zone of the instance",
            "give the load balancer a subnet of that zone too (annotation …-subnets at its creation), or switch \
             cross-zone load balancing on",
        ),
        (_, "Target.NotRegistered") => waiting("not registered"),
        (_, "Target.DeregistrationInProgress") => waiting("being deregistered"),
        (_, "Target.IpUnusable") => bad("the address belongs to a load balancer", "correct the targets"),
        (_, "Target.HealthCheckDisabled") => good("health checks are off"),
        (_, "Elb.InternalError") => waiting("an internal error of AWS"),
        ("unavailable", _) => waiting("the health is unknown"),
        ("unused", _) => waiting("not in use"),
        _ => bad("unhealthy", NO_ANSWER),
    }
}

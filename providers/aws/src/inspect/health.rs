//! Health of targets, and its usual causes. Pure.
//!
//! States and reasons: `TargetHealth` in the reference of Elastic Load Balancing v2.

use ccm_kit::inspect::{Health, Member, members};
use ccm_provider::Fact;

use crate::client::elbv2::TargetHealth;
use crate::loadbalancer::observed::TargetGroup;

const NO_ANSWER: &str = "check that the node port answers on the node, that the nodes' security group allows it (`ccm plan` shows \
                         missing rules), and that network ACLs do";

/// The health of a target group. `local`: nodes without a pod of the Service fail their health check by design.
pub(super) fn of_group(group: &TargetGroup, local: bool) -> Fact {
    let all = group.targets.iter().map(|TargetHealth { target, state, reason }| {
        let (health, meaning) = match meaning(state, reason) {
            (Health::Bad(hint), meaning) if state == "unhealthy" => (Health::Failing(hint), meaning),
            other => other,
        };
        let reason = if reason.is_empty() { String::new() } else { format!(" ({reason})") };
        Member { name: &target.id, state: format!("{state}{reason}"), health, meaning }
    });
    members(format!("target group {}", group.group.name), "", local, all)
}

fn meaning(state: &str, reason: &str) -> (Health, &'static str) {
    use Health::{Bad, Good, Serving, Waiting};
    match (state, reason) {
        ("healthy", _) => (Serving, ""),
        ("initial", "Elb.RegistrationInProgress") => (Waiting, "being registered"),
        ("initial", _) => (Waiting, "health checks have started"),
        ("draining", _) => (Waiting, "being deregistered; open connections may finish"),
        (_, "Target.Timeout") => (Bad(NO_ANSWER), "the health check times out"),
        (_, "Target.FailedHealthChecks") => (Bad(NO_ANSWER), "the health check gets no connection, or an error"),
        (_, "Target.ResponseCodeMismatch") => (
            Bad(
                "check what answers on the health-check port; with externalTrafficPolicy Local it is kube-proxy, and the \
                 node has no ready pod",
            ),
            "the HTTP status of the health check is not 2xx or 3xx",
        ),
        (_, "Target.InvalidState") => (Bad("start it, or delete its node"), "the instance is stopped or terminated"),
        (_, "Target.NotInUse") => (
            Bad("give the load balancer a subnet of that zone too (annotation …-subnets at its creation), or switch \
                 cross-zone load balancing on"),
            "no listener forwards to the group, or the load balancer is not in the zone of the instance",
        ),
        (_, "Target.NotRegistered") => (Waiting, "not registered"),
        (_, "Target.DeregistrationInProgress") => (Waiting, "being deregistered"),
        (_, "Target.IpUnusable") => (Bad("correct the targets"), "the address belongs to a load balancer"),
        (_, "Target.HealthCheckDisabled") => (Good, "health checks are off"),
        (_, "Elb.InternalError") => (Waiting, "an internal error of AWS"),
        ("unavailable", _) => (Waiting, "the health is unknown"),
        ("unused", _) => (Waiting, "not in use"),
        _ => (Bad(NO_ANSWER), "unhealthy"),
    }
}

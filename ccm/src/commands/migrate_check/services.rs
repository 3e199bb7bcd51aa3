//! Services, routes and volumes: the writes when this program takes over.

use std::sync::Arc;

use ccm_controllers::persistent_volume::{LIST, REFUSED};
use ccm_controllers::preview::Unplanned;
use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{Check, Finding, Plan, Risk, Service, Severity, Step};

use super::joined;
use crate::commands::output::counted;
use crate::commands::previewed::Previewed;

pub(super) const PLAN: &str = "service-plan";
/// At the end of a plan with a disruptive step.
pub(super) const LOSS: &str = "; traffic may be lost";
const FINALIZER: &str = "service-finalizer";
const ANNOTATIONS: &str = "service-annotations";

/// All checks of Services. `lint`: the findings of `ccm lint` for one. `runs`: whether service-lb-controller runs;
/// without it Services are not handled. `classes`: those with a controller here.
pub(super) fn checks(
    services: &[Arc<Service>],
    lint: &dyn Fn(&Service) -> Vec<Finding>,
    previewed: &Previewed,
    runs: bool,
    classes: &[(&str, &str)],
) -> Vec<Check> {
    let mut checks = Vec::new();
    if !runs {
        let with = services.iter().filter(|service| service.has_finalizer());
        let names: Vec<String> = with.map(|service| service.key().to_string()).collect();
        if !names.is_empty() {
            checks.push(Check::warning(
                FINALIZER,
                format!("service {}", joined(&names)),
                format!(
                    "it has the finalizer {FINALIZER_LOAD_BALANCER}, and no controller here removes it: its \
                         deletion would hang"
                ),
                "enable service-lb-controller",
            ));
        }
        return checks;
    }
    for service in services {
        let class = service.spec.load_balancer_class.as_deref();
        let elsewhere = class.filter(|class| classes.iter().all(|(known, _)| known != class));
        checks.extend(of_service(service, elsewhere));
        if service.is_load_balancer() && elsewhere.is_none() {
            checks.extend(findings(service, lint(service)));
        }
    }
    checks.extend(previewed.plans.iter().filter(|plan| plan.subject.starts_with("service ")).filter_map(planned));
    if checks.is_empty() && !previewed.lacks("service ") {
        let count = services.iter().filter(|service| service.wants_load_balancer()).count();
        checks.push(Check::good(
            "services",
            "",
            format!("Services of type LoadBalancer that stay as they are: {count}"),
        ));
    }
    checks
}

/// Planned writes to other objects than nodes and Services, failed plans, and warnings of the controllers.
///
/// `reported`: whether another finding already reports the cause.
pub(super) fn others(previewed: &Previewed, reported: impl Fn(&Unplanned) -> bool) -> Vec<Check> {
    let of_others = |plan: &&Plan| !plan.subject.starts_with("service ") && !plan.subject.starts_with("node ");
    let (volumes, rest): (Vec<&Plan>, Vec<&Plan>) =
        previewed.plans.iter().filter(of_others).partition(|plan| plan.subject.starts_with("persistentvolume "));
    let mut checks: Vec<Check> = rest.into_iter().filter_map(planned).collect();
    let written: Vec<&Plan> = volumes.into_iter().filter(|plan| !plan.is_empty()).collect();
    if let Some(first) = written.first() {
        let names: Vec<&str> =
            written.iter().filter_map(|plan| plan.subject.split_once(' ')).map(|(_, name)| name).collect();
        let text = format!("labels would be added: {}", steps(first));
        let fix = "none, if this is intended; ccm plan shows all";
        checks.push(Check::warning("volume-labels", format!("persistentvolume {}", joined(&names)), text, fix));
    }
    let explain = "see ccm explain for nodes and Services";
    for unplanned in previewed.unplanned.iter().filter(|unplanned| !reported(unplanned)) {
        let text = format!("could not be planned: {}", unplanned.error);
        checks.push(Check::error("plan", &*unplanned.subject, text, explain));
    }
    for warning in &previewed.warnings {
        let text = format!("{} ({})", warning.message, warning.reason);
        checks.push(Check::warning("plan", &*warning.subject, text, explain));
    }
    for (controller, reason) in &previewed.skipped {
        checks.push(match reason.starts_with(REFUSED) {
            true => Check::warning(
                "unread",
                LIST,
                format!("their labels are not checked: {reason}"),
                "grant it, then check again",
            ),
            false => Check::good("controllers", *controller, format!("would not run: {reason}")),
        });
    }
    checks
}

/// Whether this error in a Service is the reason why it could not be planned.
pub(super) fn is_cause(check: &Check, unplanned: &Unplanned) -> bool {
    check.check == ANNOTATIONS
        && check.severity == Severity::Error
        && check.subject == unplanned.subject
        && unplanned.error.to_string().contains(&check.message)
}

/// `elsewhere`: its class, if no controller here handles it.
fn of_service(service: &Service, elsewhere: Option<&str>) -> Option<Check> {
    let subject = format!("service {}", service.key());
    let has_address = !service.status.load_balancer.ingress.is_empty();
    match (elsewhere, service.has_finalizer()) {
        (_, true) if !service.is_load_balancer() => Some(Check::warning(
            FINALIZER,
            subject,
            format!(
                "it is of type {} and has the finalizer {FINALIZER_LOAD_BALANCER}: what is left of its load balancer would be deleted",
                service.spec.kind
            ),
            "none, if this is intended",
        )),
        (_, true) if service.metadata.deletion_timestamp.is_some() => Some(Check::warning(
            FINALIZER,
            subject,
            "it is being deleted and waits for its load balancer to go: this program would delete it",
            "none, if this is intended",
        )),
        (Some(class), true) => Some(Check::warning(
            "service-class",
            subject,
            format!(
                "it has loadBalancerClass {class} and the finalizer {FINALIZER_LOAD_BALANCER}: it is left alone until it is deleted"
            ),
            "see who provides its load balancer; if it is that of the class, remove the finalizer",
        )),
        (Some(class), false) => {
            Some(Check::good("service-class", subject, format!("it is left alone: it has loadBalancerClass {class}")))
        }
        (None, false) if service.is_load_balancer() && has_address => Some(Check::warning(
            FINALIZER,
            subject,
            format!(
                "it has an address and not the finalizer {FINALIZER_LOAD_BALANCER}: somebody else may have given it (MetalLB, kube-vip), and this program would too"
            ),
            "if somebody else provides it, recreate it with a loadBalancerClass, or run with --controllers=*,-service; else nothing: the finalizer is added",
        )),
        (None, _) => None,
    }
}

fn findings(service: &Service, findings: Vec<Finding>) -> Vec<Check> {
    let check = |finding: Finding| {
        let (subject, text) = (format!("service {}", service.key()), finding.to_string());
        let fix = "see ccm lint";
        match finding.severity {
            Severity::Error => Some(Check::error(ANNOTATIONS, subject, text, fix)),
            Severity::Warning => Some(Check::warning(ANNOTATIONS, subject, text, fix)),
            Severity::Info => None,
        }
    };
    findings.into_iter().filter_map(check).collect()
}

/// A plan as a finding, if it has writes.
fn planned(plan: &Plan) -> Option<Check> {
    if plan.is_empty() {
        return None;
    }
    let check = plan.subject.split(' ').next().unwrap_or_default();
    let check = format!("{}-plan", check.strip_suffix('s').unwrap_or(check));
    let text = format!("{} would be made: {}", counted(plan.steps.len(), "write"), steps(plan));
    let fix = match plan.subject.strip_prefix("service ") {
        Some(name) => format!("none, if this is intended; ccm plan service/{name} shows it whole"),
        None => "none, if this is intended; ccm plan shows it whole".to_owned(),
    };
    let disruptive = plan.steps.iter().any(|step| step.risk == Risk::Disruptive);
    Some(match disruptive {
        true => Check::error(&check, &*plan.subject, format!("{text}{LOSS}"), fix),
        false => Check::warning(&check, &*plan.subject, text, fix),
    })
}

/// `create LoadBalancer a, update Service default/a and 4 more`; `ccm plan` prints all.
fn steps(plan: &Plan) -> String {
    let step = |step: &Step| format!("{} {} {}", step.verb.as_str(), step.kind, step.id);
    joined(&plan.steps.iter().map(step).collect::<Vec<_>>())
}

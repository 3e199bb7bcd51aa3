//! Checks of configuration files and Services without a cloud.

use ccm_kit::annotations::Annotations;
use ccm_provider::{Finding, Lint, Service};

use crate::annotations::{LB_INTERNAL, lint, ports, scheme_of};
use crate::loadbalancer::wanted::ports::probes_without_path;
use crate::start::config::Config;
use crate::start::identity::problems;

/// [`Lint`] of Azure, with the tables and checks that the provider uses at run time.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    fn service(&self, service: &Service) -> Vec<Finding> {
        if !service.is_load_balancer() || service.spec.load_balancer_class.is_some() {
            return Vec::new();
        }
        let annotations = Annotations::read(&service.metadata.annotations);
        let mut findings = lint(annotations, scheme_of(annotations));
        findings.extend(ports::review(service));
        findings.extend(capitals(annotations));
        findings.extend(probes_without_path(service).into_iter().map(|text| Finding::warning("spec.ports", text)));
        findings
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        let (config, mut findings) = Config::read(text, &|_| None);
        findings.extend(problems(&config.identity));
        findings
    }
}

/// The Go program has such a Service on the external load balancer.
fn capitals(annotations: Annotations<'_>) -> Option<Finding> {
    let value = annotations.text(LB_INTERNAL.row).filter(|value| *value != "true")?;
    let text = format!(
        "{value:?} counts as \"true\" here, not in the Go program: a take-over moves the Service to the internal load balancer and \
         deletes its public IP address; remove the annotation to stay external, or write \"true\""
    );
    let is_internal = annotations.readable(&LB_INTERNAL) == Some(true);
    is_internal.then(|| Finding::warning(LB_INTERNAL.row.key, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_whose_app_protocol_makes_a_probe_on_the_root_is_a_warning() {
        let check = |annotations: serde_json::Value, protocol: &str| {
            let ports = serde_json::json!([{"port": 80, "appProtocol": protocol, "protocol": "TCP"}]);
            let spec = serde_json::json!({"type": "LoadBalancer", "ports": ports});
            let service = serde_json::json!({"metadata": {"annotations": annotations}, "spec": spec});
            Checks.service(&serde_json::from_value(service).unwrap())
        };
        let findings = check(serde_json::json!({}), "http");
        assert!(findings[0].message.contains("makes an HTTP probe on \"/\""), "{findings:?}");
        assert_eq!(check(serde_json::json!({}), "tcp"), []);
        let path = "service.beta.kubernetes.io/azure-load-balancer-health-probe-request-path";
        assert_eq!(check(serde_json::json!({path: "/healthz"}), "http"), []);
    }

    #[test]
    fn a_service_that_only_the_go_program_has_outside_is_a_warning() {
        for (value, warns) in [("true", false), ("True", true), ("false", false), ("yes", false)] {
            let annotations = serde_json::json!({LB_INTERNAL.row.key: value});
            let spec = serde_json::json!({"type": "LoadBalancer"});
            let service = serde_json::json!({"metadata": {"annotations": annotations}, "spec": spec});
            let findings = Checks.service(&serde_json::from_value(service).unwrap());
            assert_eq!(findings.iter().any(|found| found.message.contains("deletes its public IP")), warns, "{value}");
        }
    }

    #[test]
    fn a_file_is_checked_with_its_login() {
        let keys: Vec<String> =
            Checks.config("resourceGroup: g\nlocation: l\n").into_iter().map(|found| found.key).collect();
        assert_eq!(keys, ["subscriptionId", "aadClientId"]);
    }
}

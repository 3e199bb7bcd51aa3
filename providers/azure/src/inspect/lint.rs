//! Checks of configuration files and Services without a cloud.

use ccm_kit::annotations::Annotations;
use ccm_provider::{Finding, Lint, Service};

use crate::annotations::{lint, scheme_of};
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
        findings.extend(probes_without_path(service).into_iter().map(|text| Finding::warning("spec.ports", text)));
        findings
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        let (config, mut findings) = Config::read(text, &|_| None);
        findings.extend(problems(&config.identity));
        findings
    }
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
    fn a_file_is_checked_with_its_login() {
        let keys: Vec<String> =
            Checks.config("resourceGroup: g\nlocation: l\n").into_iter().map(|found| found.key).collect();
        assert_eq!(keys, ["subscriptionId", "aadClientId"]);
    }
}

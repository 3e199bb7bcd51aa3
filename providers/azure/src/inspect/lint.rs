//! Checks of configuration files and Services without a cloud.

use ccm_kit::annotations::Annotations;
use ccm_provider::{ErrorClass, Finding, Lint, ProviderError, Service, Severity};

use crate::annotations::{LB_INTERNAL, lint, ports, scheme_of};
use crate::loadbalancer::wanted::ports::probes_without_path;
use crate::loadbalancer::wanted::refusal;
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
        // The API server requires ports.
        let refused = refusal(service).filter(|_| !service.spec.ports.is_empty());
        for finding in refused.iter().flat_map(of_error) {
            let is_known = |known: &Finding| known.severity == Severity::Error && known.key == finding.key;
            if !findings.iter().any(is_known) {
                findings.push(finding);
            }
        }
        findings
    }

    /// What needs one is refused.
    fn needs_node_ports(&self) -> bool {
        false
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        let (config, mut findings) = Config::read(text, &|_| None);
        findings.extend(problems(&config.identity).into_iter().map(unless_in_environment));
        findings
    }
}

/// What a login lacks may be in the environment of the program, which is not here.
fn unless_in_environment(finding: Finding) -> Finding {
    let may_be = ["aadClientId", "tenantId", "aadFederatedTokenFile"].contains(&&*finding.key);
    if !may_be || finding.severity < Severity::Error {
        return finding;
    }
    let text = "unless AZURE_TENANT_ID, AZURE_CLIENT_ID, and AZURE_CLIENT_SECRET or AZURE_FEDERATED_TOKEN_FILE are set where the \
                program runs";
    Finding::warning(finding.key, format!("{}, {text}", finding.message))
}

/// The findings of an error; a single one if it has none.
fn of_error(error: &ProviderError) -> Vec<Finding> {
    match error.class() {
        ErrorClass::Invalid { findings } if !findings.is_empty() => findings,
        _ => vec![Finding::new(Severity::Error, "spec", error.to_string())],
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
    fn what_every_sync_refuses_is_an_error() {
        let prefix = "service.beta.kubernetes.io/azure-";
        let port = |protocol: &str| serde_json::json!([{"port": 80, "protocol": protocol}]);
        let (tcp, udp) = (port("TCP"), port("UDP"));
        for (annotations, spec, expected) in [
            (&[][..], serde_json::json!({"ports": tcp}), ""),
            (&[], serde_json::json!({"ports": tcp, "allocateLoadBalancerNodePorts": false}), "needs a node port"),
            (&[], serde_json::json!({"ports": udp, "allocateLoadBalancerNodePorts": false}), ""),
            (&[], serde_json::json!({"ports": port("SCTP")}), "SCTP is only supported"),
            (&[], serde_json::json!({"ports": tcp, "loadBalancerIP": "10.0.0.7"}), "is not a public one"),
            (
                &[("load-balancer-internal", "true")],
                serde_json::json!({"ports": tcp, "loadBalancerIP": "10.0.0.7"}),
                "",
            ),
            (
                &[("allowed-ip-ranges", "10.0.0.0/8")],
                serde_json::json!({"ports": tcp, "loadBalancerSourceRanges": ["10.0.0.0/8"]}),
                "cannot set both",
            ),
            (&[("pls-create", "true")], serde_json::json!({"ports": tcp}), "needs an internal load balancer"),
            (
                &[("load-balancer-health-probe-interval", "59"), ("load-balancer-health-probe-num-of-probe", "3")],
                serde_json::json!({"ports": tcp}),
                "must be less than",
            ),
        ] {
            let annotations: std::collections::BTreeMap<String, &str> =
                annotations.iter().map(|(key, value)| (format!("{prefix}{key}"), *value)).collect();
            let mut spec = spec;
            spec["type"] = "LoadBalancer".into();
            let service = serde_json::json!({"metadata": {"annotations": annotations}, "spec": spec});
            let findings = Checks.service(&serde_json::from_value(service).unwrap());
            let errors: Vec<&str> =
                findings.iter().filter(|it| it.severity == Severity::Error).map(|it| &*it.message).collect();
            let is_one = errors.len() == 1 && errors[0].contains(expected);
            assert!(if expected.is_empty() { errors.is_empty() } else { is_one }, "{expected}: {errors:?}");
        }
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

    #[test]
    fn what_the_environment_of_the_program_may_have_is_a_warning() {
        let place = "subscriptionId: s\nresourceGroup: g\nlocation: l\n";
        for (login, variable) in [
            ("", "AZURE_CLIENT_SECRET"),
            ("tenantId: t\naadClientId: c\n", "AZURE_CLIENT_SECRET"),
            ("aadClientId: c\naadClientSecret: s\n", "AZURE_TENANT_ID"),
            ("tenantId: t\naadClientSecret: s\n", "AZURE_CLIENT_ID"),
            (
                "tenantId: t\naadClientId: c\nuseFederatedWorkloadIdentityExtension: true\n",
                "AZURE_FEDERATED_TOKEN_FILE",
            ),
        ] {
            let findings = Checks.config(&format!("{place}{login}"));
            let [finding] = &findings[..] else { panic!("{login:?}: {findings:?}") };
            assert!(finding.message.contains(variable), "{login:?}: {finding}");
            assert_eq!(finding.severity, Severity::Warning, "{login:?}");
        }
    }
}

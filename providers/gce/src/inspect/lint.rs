//! Checks without a cloud: `ccm lint`.

use ccm_provider::{ErrorClass, Finding, Lint, ProviderError, Service, Severity};

use crate::annotations::{Annotations, lint};
use crate::loadbalancer::claim;
use crate::loadbalancer::claim::is_mixed;
use crate::loadbalancer::wanted::{MIXED, problems};
use crate::ownership::CLASSES;
use crate::start::config::Config;

/// The checks.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    fn service(&self, service: &Service) -> Vec<Finding> {
        let is_foreign = |class: &String| !CLASSES.contains(&&**class);
        if !service.is_load_balancer() || service.spec.load_balancer_class.as_ref().is_some_and(is_foreign) {
            return Vec::new();
        }
        let annotations = Annotations::read(&service.metadata.annotations);
        let scheme = claim::scheme(service);
        let mut findings = lint(annotations, scheme);
        let mixed = is_mixed(service).then(|| ("spec.ports", MIXED.to_owned()));
        // The API server requires ports.
        let is_known = |(field, _): &(&str, String)| *field != "spec.ports" || !service.spec.ports.is_empty();
        let problems = problems(scheme, service).into_iter().filter(is_known).chain(mixed);
        findings.extend(problems.map(|(field, problem)| Finding::new(Severity::Error, field, problem)));
        findings
    }

    /// Packets come to the port of the Service, at the address of the load balancer.
    fn needs_node_ports(&self) -> bool {
        false
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        match Config::parse(text) {
            Ok((_, findings)) => findings,
            Err(error) => refused(&error),
        }
    }
}

/// The findings of an error; a single one if it has none.
fn refused(error: &ProviderError) -> Vec<Finding> {
    match error.class() {
        ErrorClass::Invalid { findings } if !findings.is_empty() => findings,
        _ => vec![Finding::new(Severity::Error, "gce.conf", error.to_string())],
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_service_is_checked_without_its_cloud() {
        let mut service = Service::default();
        service.spec.kind = "LoadBalancer".to_owned();
        let key = "cloud.google.com/network-tier".to_owned();
        service.metadata.annotations = [(key.clone(), "standard".to_owned())].into();
        assert_eq!(Checks.service(&service)[0].key, key);
        assert!(!Checks.needs_node_ports());
        service.metadata.annotations = [(key, "Standard".to_owned())].into();
        assert_eq!(Checks.service(&service), []);
    }

    #[test]
    fn what_a_load_balancer_cannot_have_is_found_by_the_pair_of_its_settings() {
        let internal = [("networking.gke.io/load-balancer-type".to_owned(), "Internal".to_owned())];
        for (is_internal, spec, expected) in [
            (false, json!({"loadBalancerIP": "10.0.0.7"}), Some("spec.loadBalancerIP")),
            (true, json!({"loadBalancerIP": "10.0.0.7"}), None),
            (false, json!({"loadBalancerIP": "fd00::1"}), Some("spec.loadBalancerIP")),
            (true, json!({"loadBalancerSourceRanges": ["fd00::/8"]}), Some("spec.loadBalancerSourceRanges")),
            (false, json!({"ports": [{"port": 5060, "protocol": "SCTP"}]}), Some("spec.ports")),
            (
                true,
                json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]}),
                Some("spec.ports"),
            ),
            (true, json!({"externalTrafficPolicy": "Local"}), Some("spec.healthCheckNodePort")),
        ] {
            let mut fields = json!({"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]});
            fields.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
            let mut service: Service = serde_json::from_value(json!({"spec": fields})).unwrap();
            if is_internal {
                service.metadata.annotations = internal.clone().into();
            }
            let keys: Vec<String> =
                Checks.service(&service).into_iter().map(|finding| finding.key.to_string()).collect();
            assert_eq!(keys, expected.into_iter().collect::<Vec<_>>(), "{spec}");
        }
    }

    #[test]
    fn a_class_decides_which_annotations_have_an_effect() {
        let mut service = Service::default();
        service.spec.kind = "LoadBalancer".to_owned();
        let subnet = "networking.gke.io/internal-load-balancer-subnet";
        service.metadata.annotations = [(subnet.to_owned(), "sub".to_owned())].into();
        let mut keys = |class: &str| {
            service.spec.load_balancer_class = Some(class.to_owned());
            Checks.service(&service).into_iter().map(|finding| finding.key).collect::<Vec<_>>()
        };
        assert_eq!(keys("networking.gke.io/l4-regional-internal-legacy"), [] as [&str; 0]);
        assert_eq!(keys("networking.gke.io/l4-regional-external-legacy"), [subnet]);
        assert_eq!(keys("foo.io/x"), [] as [&str; 0]);
    }

    #[test]
    fn findings_name_key_and_severity() {
        let lines = |text: &str| {
            Checks.config(text).into_iter().map(|finding| (finding.severity, finding.key)).collect::<Vec<_>>()
        };
        assert_eq!(lines("[global]\nmultizone = maybe\n"), [(Severity::Error, "[global] multizone".to_owned())]);
        assert_eq!(lines("[global]\nx = y\n"), [(Severity::Warning, "[global] x".to_owned())]);
        assert_eq!(lines("[global\n"), [(Severity::Error, "gce.conf".to_owned())]);
        assert_eq!(lines("[global]\nregional\n"), []);
    }
}

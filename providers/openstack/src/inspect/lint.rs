//! Checks Services and configuration files without cloud, credentials or network.

use ccm_kit::annotations::Annotations;
use ccm_provider::{Finding, Lint, Service};

use crate::annotations::{FLOATING_SUBNET, lint};
use crate::loadbalancer::wanted::problems;
use crate::pattern::NamePattern;
use crate::start;

/// [`Lint`] of OpenStack, with the tables and checks that the provider uses at run time.
#[derive(Debug)]
pub(crate) struct Checks;

impl Lint for Checks {
    /// Octavia's driver and the defaults are in a file that is not known here: reports what is wrong with any of them.
    fn service(&self, service: &Service) -> Vec<Finding> {
        if !service.wants_load_balancer() {
            return Vec::new();
        }
        let annotations = Annotations::read(&service.metadata.annotations);
        let mut findings = lint(annotations, "");
        if let Some(Err(problem)) = annotations.text(FLOATING_SUBNET.row).map(NamePattern::parse) {
            findings.push(annotations.error(FLOATING_SUBNET.row, problem));
        }
        findings.extend(problems(service));
        findings
    }

    fn config(&self, text: &str) -> Vec<Finding> {
        start::lint(text)
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::Severity;

    use super::*;

    fn service(annotations: &[(&str, &str)]) -> Service {
        let mut service = Service::default();
        service.spec.kind = "LoadBalancer".to_owned();
        let key = |key: &str| format!("loadbalancer.openstack.org/{key}");
        service.metadata.annotations =
            annotations.iter().map(|(name, value)| (key(name), (*value).to_owned())).collect();
        service
    }

    #[test]
    fn a_service_is_checked_without_its_cloud() {
        let findings = Checks.service(&service(&[("floating-subnet", "~("), ("proxy-protocl", "v2")]));
        let keys: Vec<(&str, Severity)> = findings.iter().map(|found| (&*found.key, found.severity)).collect();
        assert!(keys.iter().any(|(key, severity)| key.ends_with("floating-subnet") && *severity == Severity::Error));
        assert!(keys.iter().any(|(key, _)| key.ends_with("proxy-protocl")), "{findings:?}");
        assert!(
            Checks.service(&service(&[("floating-subnet", "!~prod-.*"), ("lb-method", "SOURCE_IP_PORT")])).is_empty()
        );
    }

    #[test]
    fn ports_that_octavia_cannot_serve_together_or_behind_the_proxy_protocol_are_errors() {
        let both = [("TCP", 53), ("UDP", 53)];
        for (annotations, ports, expected) in [
            (&[("proxy-protocol", "true")][..], &both[..], &["proxy-protocol"][..]),
            (&[("proxy-protocol", "false")], &both, &[]),
            (&[("proxy-protocol", "v2")], &both[..1], &[]),
            (&[("x-forwarded-for", "true")], &both, &["x-forwarded-for"]),
            (&[("default-tls-container-ref", "https://b/v1/containers/c")], &both, &["default-tls-container-ref"]),
            (&[], &both, &[]),
        ] {
            let mut service = service(annotations);
            let port = |(protocol, port): &(&str, i32)| ccm_provider::ServicePort {
                protocol: (*protocol).to_owned(),
                port: *port,
                ..Default::default()
            };
            service.spec.ports = ports.iter().map(port).collect();
            let keys: Vec<String> = Checks.service(&service).into_iter().map(|found| found.key).collect();
            let keys: Vec<&str> = keys.iter().filter_map(|key| key.rsplit('/').next()).collect();
            assert_eq!(keys, expected, "{annotations:?}");
        }
    }

    #[test]
    fn what_the_run_reports_or_octavia_refuses_is_reported() {
        for (annotations, expected) in [
            (&[("health-monitor-delay", "5"), ("health-monitor-timeout", "9")][..], &["health-monitor-timeout"][..]),
            (&[("health-monitor-timeout", "99")], &["health-monitor-timeout"]),
            (&[("health-monitor-timeout", "99"), ("enable-health-monitor", "false")], &[]),
            (&[("health-monitor-max-retries-down", "0")], &["health-monitor-max-retries-down"]),
            (&[("health-monitor-delay", "2"), ("health-monitor-timeout", "1")], &[]),
            (&[("default-tls-container-ref", "nonsense")], &["default-tls-container-ref"]),
            (&[("member-subnet-id", "x y")], &["member-subnet-id"]),
            (&[("flavor-id", "x y")], &["flavor-id"]),
            (&[("floating-network-id", "public")], &["floating-network-id"]),
            (&[("load-balancer-id", "0badbad0-1111-4222-8333-444455556666"), ("subnet-id", "")], &[]),
        ] {
            let keys: Vec<String> = Checks.service(&service(annotations)).into_iter().map(|found| found.key).collect();
            let keys: Vec<&str> = keys.iter().filter_map(|key| key.rsplit('/').next()).collect();
            assert_eq!(keys, expected, "{annotations:?}");
        }
        let mut dns = service(&[("health-monitor-delay", "2"), ("health-monitor-timeout", "1")]);
        dns.spec.ports.push(ccm_provider::ServicePort { protocol: "UDP".to_owned(), ..Default::default() });
        assert_eq!(Checks.service(&dns).len(), 1);
    }

    #[test]
    fn a_source_range_of_another_family_is_an_error() {
        for (families, range, count) in
            [(&["IPv4"][..], "fd00::/8", 1), (&["IPv6"], "fd00::/8", 0), (&[], "fd00::/8", 0)]
        {
            let mut web = service(&[]);
            web.spec.ip_families = families.iter().map(|family| (*family).to_owned()).collect();
            web.spec.load_balancer_source_ranges = Some(vec![range.to_owned()]);
            let found = Checks.service(&web);
            let is_right =
                |found: &Finding| found.key == "spec.loadBalancerSourceRanges" && found.severity == Severity::Error;
            assert!(found.len() == count && found.iter().all(is_right), "{families:?} {range}: {found:?}");
        }
    }

    #[test]
    fn a_file_is_checked_with_its_login() {
        let keys: Vec<String> = Checks.config("[Global]\nuser-id = u\n").into_iter().map(|found| found.key).collect();
        assert!(keys.iter().any(|key| key == "[Global] auth-url"), "{keys:?}");
    }
}

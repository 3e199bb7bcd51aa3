use proptest::prelude::*;

use super::*;
use crate::client::elbv2::HealthCheck;
use crate::loadbalancer::wanted::Port;

fn target_group(cluster: &str, service: &ServiceKey, port: &Port) -> String {
    port.target_group(cluster, service)
}

fn key(namespace: &str, name: &str) -> ServiceKey {
    ServiceKey { namespace: namespace.into(), name: name.into() }
}

fn port(port: i32, node_port: i32, traffic: &str, check: &str, interval: i32) -> Port {
    let health_check = HealthCheck { protocol: check.to_owned(), interval, ..HealthCheck::default() };
    let (protocol, traffic_protocol) = ("TCP".to_owned(), traffic.to_owned());
    Port { port, protocol, node_port, traffic_protocol, health_check, ..Port::default() }
}

// The expected names come from the Go program.
#[test]
fn target_groups_are_named_as_upstream() {
    let service = key("shop", "web");
    assert_eq!(target_group("c1", &service, &port(443, 31443, "TCP", "TCP", 30)), "k8s-shop-web-4775aae24f");
    let other = key("default", "service-a");
    let base = |name: &ServiceKey, p: &Port| target_group("cluster-a", name, p);
    // Upstream's cases, with neither a health-check protocol nor an interval.
    assert_eq!(base(&key("another", "service-a"), &port(80, 8080, "TCP", "", 0)), "k8s-another-servicea-f66e09847d");
    assert_eq!(base(&key("default", "service-b"), &port(80, 8080, "TCP", "", 0)), "k8s-default-serviceb-196c19c881");
    assert_eq!(base(&other, &port(9090, 8080, "TCP", "", 0)), "k8s-default-servicea-06876706cb");
    assert_eq!(base(&other, &port(80, 9090, "TCP", "", 0)), "k8s-default-servicea-119f844ec0");
    assert_eq!(base(&other, &port(80, 8080, "UDP", "", 0)), "k8s-default-servicea-3868761686");
}

#[test]
fn target_groups_of_a_service_are_recognized_by_their_names() {
    let made = target_group("c1", &key("shop", "web"), &port(443, 31443, "TCP", "TCP", 30));
    assert!(may_be_target_group_of(&made, &key("shop", "web")));
    // Abbreviated to the same eight characters: the tags decide.
    assert!(may_be_target_group_of("k8s-shop-frontend-4775aae24f", &key("shop", "frontend-2")));
    for other in
        ["k8s-shop-web2-4775aae24f", "k8s-shop-web-4775aae24", "k8s-shop-web-", "web", "k8s-shop-web-4775aae24z"]
    {
        assert!(!may_be_target_group_of(other, &key("shop", "web")), "{other}");
    }
}

#[test]
fn listener_settings_and_what_can_be_changed_in_place_are_not_in_the_name() {
    let service = key("shop", "web");
    let plain = port(443, 31443, "TCP", "TCP", 30);
    let mut tls = plain.clone();
    tls.protocol = "TLS".to_owned();
    tls.certificate = Some("arn:aws:acm:us-west-2:1:certificate/x".to_owned());
    tls.health_check.healthy_threshold = 9;
    tls.health_check.port = "10256".to_owned();
    assert_eq!(target_group("c1", &service, &plain), target_group("c1", &service, &tls));
    let slower = port(443, 31443, "TCP", "TCP", 10);
    assert_ne!(target_group("c1", &service, &plain), target_group("c1", &service, &slower));
}

#[test]
fn security_groups_and_policies_are_named_as_upstream() {
    let service = key("shop", "web");
    assert_eq!(
        network_group("kubernetes", &service, "0f1e2d3c-aaaa-bbbb-cccc-0123456789ab"),
        "k8s-shop-web-6110eb0328"
    );
    assert_eq!(
        network_group("test-cluster", &key("default", "my-service"), "12345678-1234-1234-1234-123456789abc"),
        "k8s-default-myservic-b7cb8b02f0"
    );
    assert_eq!(classic_group("a0f1e"), "k8s-elb-a0f1e");
    assert_eq!(classic_group_description("a0f1e", &service), "Security group for Kubernetes ELB a0f1e (shop/web)");
    assert_eq!(ssl_policy("ELBSecurityPolicy-2016-08"), "k8s-SSLNegotiationPolicy-ELBSecurityPolicy-2016-08");
}

proptest! {
    #[test]
    fn names_are_within_the_limits_of_aws(namespace in "\\PC{0,63}", name in "[a-z0-9-]{1,63}", uid in "\\PC{0,40}") {
        let service = key(&namespace, &name);
        for made in [
            network_group("kubernetes", &service, &uid),
            target_group("c1", &service, &port(1, 65535, "TCP_UDP", "HTTPS", 300)),
        ] {
            prop_assert!(made.len() <= 32);
            prop_assert!(made.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-'));
            prop_assert!(!made.ends_with('-'));
        }
    }
}

//! The desired state from annotations.

use crate::annotations::{
    ACCESS_LOG, ACCESS_LOG_BUCKET, BACKEND_PROTOCOL, EIP_ALLOCATIONS, HEALTH_INTERVAL, HEALTH_PATH, HEALTH_PORT,
    HEALTH_PROTOCOL, HEALTH_TIMEOUT, SSL_CERT, SSL_POLICY, SSL_PORTS, TARGET_GROUP_ATTRIBUTES,
};
use crate::client::elbv2::HealthCheck;
use crate::loadbalancer::tests::scene::{Asked, CERTIFICATE, nlb as asked};
use ccm_provider::ErrorClass;

fn one() -> Asked {
    asked(&[(80, 31080)])
}

fn check(asked: &Asked) -> HealthCheck {
    asked.network().unwrap().0.ports[0].health_check.clone()
}

fn refusal(asked: &Asked) -> String {
    let error = asked.network().unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }), "{error:?}");
    error.to_string()
}

#[test]
fn health_checks_follow_the_traffic_policy() {
    let cluster = HealthCheck {
        protocol: "TCP".to_owned(),
        port: "traffic-port".to_owned(),
        path: None,
        interval: 30,
        timeout: None,
        healthy_threshold: 3,
        unhealthy_threshold: 3,
    };
    assert_eq!(check(&one()), cluster);
    let local = HealthCheck {
        protocol: "HTTP".to_owned(),
        port: "32000".to_owned(),
        path: Some("/healthz".to_owned()),
        interval: 10,
        timeout: None,
        healthy_threshold: 2,
        unhealthy_threshold: 2,
    };
    assert_eq!(check(&one().local()), local);
    // Without a health-check node port, upstream probes port 0.
    let mut portless = one().local();
    portless.service.spec.health_check_node_port = 0;
    assert_eq!(check(&portless), cluster);
}

#[test]
fn annotations_change_single_settings_of_the_health_check() {
    let http = one().with(&HEALTH_PROTOCOL, "https").with(&HEALTH_PORT, "8443").with(&HEALTH_TIMEOUT, "4");
    let found = check(&http);
    assert_eq!(
        (&*found.protocol, &*found.port, found.path.as_deref(), found.timeout),
        ("HTTPS", "8443", Some("/"), Some(4))
    );
    let tcp = one().local().with(&HEALTH_PROTOCOL, "TCP").with(&HEALTH_PATH, "/x");
    assert_eq!((check(&tcp).path, &*check(&tcp).port), (None, "32000"));
    let traffic = one().local().with(&HEALTH_PORT, "traffic-port").with(&HEALTH_INTERVAL, "20");
    assert_eq!((&*check(&traffic).port, check(&traffic).interval), ("traffic-port", 20));
}

#[test]
fn shared_probes_win_over_annotations_but_not_over_local() {
    let asked = one().shared().with(&HEALTH_PROTOCOL, "https").with(&HEALTH_PORT, "8443").with(&HEALTH_PATH, "/x");
    let found = check(&asked.clone().with(&HEALTH_INTERVAL, "10"));
    assert_eq!(
        (&*found.protocol, &*found.port, found.path.as_deref(), found.interval),
        ("HTTP", "10256", Some("/healthz"), 10)
    );
    let local = check(&asked.local());
    assert_eq!((&*local.protocol, &*local.port, local.path.as_deref()), ("HTTPS", "8443", Some("/x")));
}

#[test]
fn certificates_make_tls_listeners_of_the_ports_they_cover() {
    // Spaces and capitals: upstream would serve 8443 without TLS.
    let mut asked = asked(&[(80, 31080), (443, 31443), (8443, 31844)]).with(&SSL_CERT, CERTIFICATE);
    asked = asked.with(&SSL_PORTS, "443, P8443").with(&SSL_POLICY, "a-policy").with(&BACKEND_PROTOCOL, "ssl");
    let ports = asked.network().unwrap().0.ports;
    let summary: Vec<_> = ports
        .iter()
        .map(|port| (port.port, &*port.protocol, &*port.traffic_protocol, port.ssl_policy.as_deref()))
        .collect();
    assert_eq!(
        summary,
        [(80, "TCP", "TCP", None), (443, "TLS", "TLS", Some("a-policy")), (8443, "TLS", "TLS", Some("a-policy"))]
    );
    let udp = one().udp().with(&SSL_CERT, CERTIFICATE).with(&BACKEND_PROTOCOL, "ssl").network().unwrap().0.ports;
    assert_eq!((&*udp[0].protocol, &*udp[0].traffic_protocol, &udp[0].certificate), ("UDP", "UDP", &None));
}

#[test]
fn ports_without_node_port_are_reported_and_none_at_all_is_refused() {
    let (network, findings) = asked(&[(80, 31080), (81, 0)]).network().unwrap();
    assert_eq!(network.ports.len(), 1);
    let text = "port 81 is not served: it has no node port; give it one";
    assert!(findings.iter().any(|finding| finding.message == text), "{findings:?}");
    let error = refusal(&asked(&[(80, 0)]));
    assert!(error.contains("no usable ports") && error.contains("spec.allocateLoadBalancerNodePorts"), "{error}");
}

#[test]
fn bad_values_are_refused_with_key_value_and_fix() {
    for (asked, text) in [
        (
            one().with(&HEALTH_PROTOCOL, "ssl"),
            "healthcheck-protocol \"ssl\": a network load balancer checks health with TCP, HTTP or HTTPS",
        ),
        (one().with(&HEALTH_PROTOCOL, "gopher"), "healthcheck-protocol \"gopher\": unknown; write TCP"),
        (one().with(&HEALTH_PORT, "http"), "healthcheck-port \"http\": not a port"),
        (one().with(&HEALTH_INTERVAL, "ten"), "healthcheck-interval \"ten\": not a whole number"),
        (one().with(&ACCESS_LOG, "yes"), "access-log-enabled \"yes\": not a boolean"),
        (one().with(&ACCESS_LOG, "true"), "access-log-enabled \"true\": AWS takes no logs without a bucket"),
        (
            one().with(&TARGET_GROUP_ATTRIBUTES, "preserve_client_ip.enabled=False"),
            "write preserve_client_ip.enabled=true",
        ),
        (
            one().with(&TARGET_GROUP_ATTRIBUTES, "stickiness.enabled=true"),
            "error validating target group attributes: the attribute",
        ),
    ] {
        let error = refusal(&asked);
        assert!(error.contains(text), "{error}");
    }
    let mut sctp = one();
    sctp.service.spec.ports[0].protocol = "SCTP".to_owned();
    assert_eq!(
        refusal(&sctp),
        "spec.ports[].protocol \"SCTP\": a network load balancer takes TCP and UDP only (port 80)"
    );
}

#[test]
fn attributes_are_off_unless_asked_for_and_logs_name_their_bucket() {
    let pairs = |asked: &Asked| {
        let attributes = asked.network().unwrap().0.attributes;
        attributes.into_iter().map(|(key, value)| format!("{key}={value}")).collect::<Vec<_>>()
    };
    // Without logs no bucket is sent: AWS refuses an empty one.
    let off = ["access_logs.s3.enabled=false", "load_balancing.cross_zone.enabled=false"];
    assert_eq!(pairs(&one().with(&ACCESS_LOG_BUCKET, "logs")), off);
    let on = pairs(&one().with(&ACCESS_LOG, "true").with(&ACCESS_LOG_BUCKET, "logs"));
    assert_eq!(on[..3], ["access_logs.s3.bucket=logs", "access_logs.s3.enabled=true", "access_logs.s3.prefix="]);
    assert_eq!(one().network().unwrap().0.target_group_attributes, None);
    let lists = one().with(&EIP_ALLOCATIONS, "eip-1, eip-2 ").network().unwrap().0.allocations;
    assert_eq!(lists, ["eip-1", "eip-2"], "blanks are no part of an ID");
}

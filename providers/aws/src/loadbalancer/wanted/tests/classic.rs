use ccm_provider::{ErrorClass, Service};
use serde_json::json;

use crate::client::elb::Listener;
use crate::loadbalancer::plan::security_groups::tests::model::common;
use crate::loadbalancer::tests::scene::{PREFIX, clb, service as service_with};
use crate::loadbalancer::wanted::Classic;
use crate::loadbalancer::wanted::classic::classic;
use crate::start::config::SharedProbe;

type Written = &'static [(&'static str, &'static str)];

fn service(annotations: &[(&str, &str)]) -> Service {
    clb(annotations).service
}

const CERTIFICATE: &str = "arn:aws:acm:us-west-2:1:certificate/x";

fn wanted(service: &Service) -> Classic {
    classic(service, common(1, &["0.0.0.0/0"]), None).unwrap().0
}

fn refused(annotations: &[(&str, &str)]) -> String {
    let error = classic(&service(annotations), common(1, &[]), None).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Invalid { .. }), "{error:?}");
    error.to_string()
}

fn protocols(annotations: &[(&str, &str)]) -> Vec<(String, String, bool)> {
    let listeners = wanted(&service(annotations)).listeners;
    let summary = |listener: Listener| (listener.protocol, listener.instance_protocol, listener.certificate.is_some());
    listeners.into_iter().map(summary).collect()
}

#[test]
fn listener_protocols_follow_certificate_and_backend() {
    const CERT: (&str, &str) = ("ssl-cert", CERTIFICATE);
    let cases: &[(Written, (&str, &str, bool))] = &[
        (&[], ("tcp", "tcp", false)),
        (&[("backend-protocol", "http")], ("http", "http", false)),
        (&[("backend-protocol", "https")], ("tcp", "tcp", false)),
        (&[("backend-protocol", "wss")], ("tcp", "tcp", false)),
        (&[CERT], ("ssl", "tcp", true)),
        (&[CERT, ("backend-protocol", "http")], ("https", "http", true)),
        (&[CERT, ("backend-protocol", "https")], ("https", "https", true)),
        (&[CERT, ("backend-protocol", "tcp")], ("ssl", "tcp", true)),
        (&[CERT, ("backend-protocol", "ssl")], ("ssl", "ssl", true)),
    ];
    for (annotations, (protocol, instance, tls)) in cases {
        let expected = (protocol.to_string(), instance.to_string(), *tls);
        assert_eq!(protocols(annotations), [expected.clone(), expected], "{annotations:?}");
    }
}

#[test]
fn the_certificate_goes_to_the_ports_that_are_named_in_any_case_and_with_blanks() {
    let of = |ports| {
        protocols(&[("ssl-cert", CERTIFICATE), ("ssl-ports", ports)]).into_iter().map(|it| it.2).collect::<Vec<_>>()
    };
    assert_eq!(of("443, 8443"), [false, true]);
    assert_eq!(of("8443, HTTPS"), [false, true]);
    assert_eq!(of("*"), [true, true]);
}

#[test]
fn mistakes_are_refused_with_key_and_value_before_any_call() {
    for (key, value, problem) in [
        ("healthcheck-healthy-threshold", "1", "at least 2"),
        ("healthcheck-unhealthy-threshold", "1", "at least 2"),
        ("healthcheck-timeout", "1", "at least 2"),
        ("healthcheck-interval", "4", "at least 5"),
        ("healthcheck-interval", "soon", "not a whole number"),
        ("healthcheck-interval", "99999999999", "not a whole number"),
        ("healthcheck-port", "http", "not a port"),
        ("proxy-protocol", "443", "\"*\""),
        ("access-log-enabled", "yes", "not a boolean"),
        ("access-log-enabled", "true", "access-log-s3-bucket-name"),
        ("access-log-emit-interval", "1h", "not a whole number"),
        ("connection-draining-enabled", "on", "not a boolean"),
        ("connection-draining-timeout", "1m", "not a whole number"),
        ("connection-idle-timeout", "-", "not a whole number"),
        ("cross-zone-load-balancing-enabled", "2", "not a boolean"),
    ] {
        let error = refused(&[(key, value)]);
        assert!(error.contains(&format!("{PREFIX}{key} {value:?}")) && error.contains(problem), "{error}");
    }
    let error = refused(&[("ssl-cert", CERTIFICATE), ("backend-protocol", "tls")]);
    assert!(error.contains("backend-protocol \"tls\"") && error.contains(CERTIFICATE), "{error}");
}

#[test]
fn only_tcp_ports_with_a_node_port_are_served() {
    let ports = |second: serde_json::Value| json!([{"port": 80, "nodePort": 31080, "protocol": "TCP"}, second]);
    let some = service_with(&ports(json!({"port": 81, "protocol": "TCP"})), &[]);
    let (desired, findings) = classic(&some, common(1, &[]), None).unwrap();
    assert_eq!((desired.listeners.len(), desired.open_ports.len()), (1, 2));
    assert!(findings[0].message.contains("port 81"), "{findings:?}");
    let none = service_with(&json!([{"port": 80, "protocol": "TCP"}]), &[]);
    let error = classic(&none, common(1, &[]), None).unwrap_err().to_string();
    assert!(error.contains("no usable ports"), "{error}");
    let udp = service_with(&json!([{"port": 53, "nodePort": 31053, "protocol": "UDP"}]), &[]);
    let error = classic(&udp, common(1, &[]), None).unwrap_err().to_string();
    assert!(error.contains("\"UDP\"") && error.contains("network load balancer"), "{error}");
}

fn target(local: bool, probe: Option<&SharedProbe>, annotations: &[(&str, &str)]) -> String {
    let mut service = service(annotations);
    if local {
        service.spec.external_traffic_policy = "Local".to_owned();
        service.spec.health_check_node_port = 32000;
    }
    classic(&service, common(1, &[]), probe).unwrap().0.health_check.target
}

#[test]
fn the_health_check_follows_traffic_policy_probe_mode_and_annotations() {
    let shared = SharedProbe { port: 10256, path: "/healthz".to_owned() };
    let shared = Some(&shared);
    let own = None;
    let cases: &[(bool, Option<&SharedProbe>, Written, &str)] = &[
        (false, own, &[], "TCP:31080"),
        (false, own, &[("backend-protocol", "HTTPS")], "SSL:31080"),
        (false, own, &[("backend-protocol", "ssl")], "SSL:31080"),
        (false, own, &[("healthcheck-protocol", "http")], "HTTP:31080/"),
        (false, own, &[("healthcheck-protocol", "Https"), ("healthcheck-path", "/up")], "HTTPS:31080/up"),
        (false, own, &[("healthcheck-path", "/up")], "TCP:31080"),
        (false, own, &[("healthcheck-port", "traffic-port")], "TCP:31080"),
        (false, own, &[("healthcheck-port", "9000")], "TCP:9000"),
        (true, own, &[], "HTTP:32000/healthz"),
        (true, shared, &[], "HTTP:32000/healthz"),
        (true, own, &[("healthcheck-port", "traffic-port")], "HTTP:31080/healthz"),
        (true, own, &[("healthcheck-port", "9000"), ("healthcheck-path", "/up")], "HTTP:9000/up"),
        (true, own, &[("healthcheck-protocol", "tcp")], "TCP:32000"),
        (false, shared, &[], "HTTP:10256/healthz"),
        // Unlike on a network load balancer, annotations win.
        (false, shared, &[("healthcheck-protocol", "tcp"), ("healthcheck-port", "9000")], "TCP:9000"),
    ];
    for (local, probe, annotations, expected) in cases {
        assert_eq!(target(*local, *probe, annotations), *expected, "{local} {probe:?} {annotations:?}");
    }
}

#[test]
fn the_first_port_of_the_service_is_asked_whatever_its_number() {
    let ports = json!([
        {"name": "b", "port": 8443, "nodePort": 31843, "protocol": "TCP"},
        {"name": "a", "port": 80, "nodePort": 31080, "protocol": "TCP"},
    ]);
    let desired = wanted(&service_with(&ports, &[]));
    assert_eq!(desired.health_check.target, "TCP:31843");
    assert_eq!(desired.listeners.iter().map(|listener| listener.port).collect::<Vec<_>>(), [80, 8443]);
}

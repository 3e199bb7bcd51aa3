use std::collections::BTreeSet;

use ccm_provider::{Service, ServicePort};
use proptest::prelude::*;

use super::*;
use crate::ownership::Ownership;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;

/// A full key from the end of its name.
fn full(suffix: &str) -> String {
    format!("{PREFIX}{suffix}")
}

fn service(annotations: &[(&str, &str)]) -> Service {
    let mut service = Service::default();
    service.metadata.annotations = annotations.iter().map(|(key, value)| (full(key), (*value).to_owned())).collect();
    service.spec.ports = vec![
        ServicePort { name: "http".to_owned(), port: 80, node_port: 30080, ..ServicePort::default() },
        ServicePort { name: "admin".to_owned(), port: 443, node_port: 30443, ..ServicePort::default() },
    ];
    service
}

fn ownership() -> Ownership {
    Ownership { cluster: "c1".to_owned(), legacy: false }
}

fn findings(service: &Service, kind: Kind) -> Vec<String> {
    let ownership = ownership();
    let context = LintContext {
        service,
        kind,
        managed_network_groups: Some(false),
        shared_probe: Some(false),
        ownership: &ownership,
    };
    let summary = lint(&context);
    summary.iter().map(|f| format!("{:?} {}", f.severity, f.to_string().replace(PREFIX, "~"))).collect()
}

fn check(kind: Kind, annotations: &[(&str, &str)], expected: &[&str]) {
    assert_eq!(findings(&service(annotations), kind), expected, "{annotations:?}");
}

#[test]
fn keys_are_unique_under_the_prefix_and_there_are_30() {
    let keys: BTreeSet<&str> = TABLE.rows.iter().map(|row| row.key).collect();
    assert_eq!((keys.len(), TABLE.rows.len()), (30, 30));
    assert!(keys.iter().all(|key| key.starts_with(PREFIX)));
}

/// A value that no parser of the table accepts, and its error message.
#[test]
fn each_wrong_value_is_named_with_its_key_and_the_fix() {
    const NO_BOOL: &str = "not a boolean; write \"true\" or \"false\"";
    const NO_NUMBER: &str = "not a whole number from -2147483648 to 2147483647; write for example \"10\"";
    let cases = [
        (
            "subnets",
            " , ",
            "names no subnet; write IDs (subnet-…) or Name tags between commas, or remove the annotation",
        ),
        ("ssl-ports", ",", "names no port; write numbers or names between commas, or \"*\" for all"),
        ("cross-zone-load-balancing-enabled", "yes", NO_BOOL),
        ("access-log-enabled", "True ", NO_BOOL),
        ("connection-draining-enabled", "on", NO_BOOL),
        ("access-log-emit-interval", "5m", NO_NUMBER),
        ("connection-draining-timeout", "9999999999", NO_NUMBER),
        ("connection-idle-timeout", "60s", NO_NUMBER),
        ("proxy-protocol", "true", "only \"*\" is supported, for all ports"),
        (
            "target-group-attributes",
            "stickiness.enabled=true",
            "error validating target group attributes: the attribute \"stickiness.enabled\" is not supported by the \
             controller or is invalid; \"preserve_client_ip.enabled\" and \"proxy_protocol_v2.enabled\" can be set",
        ),
        (
            "target-group-attributes",
            "preserve_client_ip.enabled=True",
            "error validating target group attributes: invalid attribute value for \"preserve_client_ip.enabled\": True; \
             write preserve_client_ip.enabled=true or preserve_client_ip.enabled=false",
        ),
        (
            "target-group-attributes",
            "proxy_protocol_v2.enabled",
            "error validating target group attributes: attribute value is empty for \"proxy_protocol_v2.enabled\"; write \
             proxy_protocol_v2.enabled=true or proxy_protocol_v2.enabled=false",
        ),
        ("private-ipv4-addresses", "10.0.0.1,fd00::1", "\"fd00::1\" is not an IPv4 address"),
        ("healthcheck-protocol", "", "unknown; write TCP, HTTP, HTTPS or (classic load balancers) SSL"),
        ("healthcheck-protocol", "grpc", "unknown; write TCP, HTTP, HTTPS or (classic load balancers) SSL"),
        ("healthcheck-port", "70000", "not a port; write a number from 1 to 65535 or \"traffic-port\""),
        ("healthcheck-port", "http", "not a port; write a number from 1 to 65535 or \"traffic-port\""),
        ("healthcheck-healthy-threshold", "", NO_NUMBER),
        ("healthcheck-unhealthy-threshold", "4294967298", NO_NUMBER),
        ("healthcheck-timeout", "1.5", NO_NUMBER),
        ("healthcheck-interval", " 10", NO_NUMBER),
    ];
    for (suffix, value, problem) in cases {
        let row = TABLE.rows.iter().find(|row| row.key == full(suffix)).unwrap();
        let kind = if row.on.reads(Kind::Classic) { Kind::Classic } else { Kind::Network };
        let expected = format!("Error ~{suffix} {value:?}: {problem}");
        assert_eq!(findings(&service(&[(suffix, value)]), kind).first(), Some(&expected));
    }
    // The cases include every key whose values can be wrong.
    let tried: BTreeSet<String> = cases.iter().map(|(suffix, ..)| full(suffix)).collect();
    for row in TABLE.rows.iter().filter(|row| ["", "\u{0}", ","].iter().any(|odd| (row.check)(odd).is_err())) {
        assert!(tried.contains(row.key), "{}", row.key);
    }
}

#[test]
fn any_text_but_false_is_internal() {
    for (word, internal) in [("", false), ("false", false), ("true", true), ("0.0.0.0/0", true), ("False", true)] {
        assert_eq!(parse::internal(word), Ok(Some(internal)));
    }
}

#[test]
fn pairs_keep_the_last_of_equal_keys_and_tags_the_whole_value() {
    let pairs = value::pairs(" a=1,b , c=,=x,, a=2=3").unwrap().unwrap();
    assert_eq!(pairs, [("a", "2=3"), ("b", ""), ("c", "")].map(|(k, v)| (k.to_owned(), v.to_owned())).into());
    assert_eq!(parse::without_third_part("a=2=3").unwrap().unwrap()["a"], "2", "no label has a value with =");
}

#[test]
fn what_is_left_out_of_pairs_is_reported() {
    check(
        Kind::Network,
        &[
            ("target-node-labels", "a=2=3,=x,zone,pool=web"),
            ("additional-resource-tags", "foo=Zm9vCg==,=x"),
            ("target-group-attributes", "proxy_protocol_v2.enabled=true=x"),
        ],
        &[
            "Warning ~target-node-labels \"a=2=3,=x,zone,pool=web\": \"a=2=3\": what follows the second \"=\" is left out; \
             write a=2",
            "Warning ~target-node-labels \"a=2=3,=x,zone,pool=web\": \"=x\" has no key and is left out; write key=value",
            "Warning ~additional-resource-tags \"foo=Zm9vCg==,=x\": \"=x\" has no key and is left out; write key=value",
            "Warning ~target-group-attributes \"proxy_protocol_v2.enabled=true=x\": \"proxy_protocol_v2.enabled=true=x\": \
             what follows the second \"=\" is left out; write proxy_protocol_v2.enabled=true",
        ],
    );
}

#[test]
fn addresses_are_in_the_order_written() {
    assert_eq!(parse::ipv4_list("10.0.0.2, 10.0.0.1").unwrap().unwrap(), ["10.0.0.2", "10.0.0.1"]);
}

#[test]
fn ssl_ports_with_a_blank_and_a_capital_match() {
    let ports = parse::ssl_ports("443, Admin").unwrap().unwrap();
    assert!(ports.cover(443, "https") && ports.cover(8443, "admin") && ports.cover(8443, "ADMIN"));
    assert!(!ports.cover(80, "http") && !ports.cover(80, ""));
    for all in ["", "*", " * "] {
        assert_eq!(parse::ssl_ports(all), Ok(Some(SslPorts::All)));
    }
}

#[test]
fn keys_of_the_other_kind_are_reported_and_refused_ones_are_errors() {
    check(
        Kind::Network,
        &[("proxy-protocol", "*"), ("extra-security-groups", ""), ("connection-idle-timeout", "x")],
        &[
            "Error ~extra-security-groups \"\": not possible on a network load balancer; remove it",
            "Warning ~connection-idle-timeout \"x\": has no effect on a network load balancer; remove it",
            "Warning ~proxy-protocol \"*\": has no effect on a network load balancer; remove it, and write \
             ~target-group-attributes: proxy_protocol_v2.enabled=true for version 2",
        ],
    );
    check(
        Kind::Classic,
        &[("target-group-attributes", ""), ("eip-allocations", "eipalloc-1")],
        &[
            "Error ~target-group-attributes \"\": not possible on a classic load balancer; remove it",
            "Warning ~eip-allocations \"eipalloc-1\": has no effect on a classic load balancer; remove it",
        ],
    );
}

#[test]
fn a_port_that_silently_loses_tls_is_reported() {
    check(
        Kind::Classic,
        &[("ssl-cert", "arn:aws:acm:x"), ("ssl-ports", "8443,Admin,web")],
        &["Warning ~ssl-ports \"8443,Admin,web\": the Service has no port 8443, web; served without TLS: 80; write a \
             port's number or name"],
    );
    check(Kind::Classic, &[("ssl-cert", "arn:aws:acm:x"), ("ssl-ports", "80, ADMIN")], &[]);
    check(
        Kind::Network,
        &[("ssl-ports", "443"), ("ssl-negotiation-policy", "p"), ("backend-protocol", "ssl")],
        &[
            "Warning ~ssl-ports \"443\": no port gets TLS without ~ssl-cert",
            "Warning ~ssl-negotiation-policy \"p\": no port gets TLS without ~ssl-cert",
            "Warning ~backend-protocol \"ssl\": no effect on a network load balancer without ~ssl-cert",
        ],
    );
    check(
        Kind::Classic,
        &[("backend-protocol", "htpp")],
        &["Warning ~backend-protocol \"htpp\": unknown value, treated as \"tcp\"; did you mean \"http\"?"],
    );
}

#[test]
fn contradictions_are_reported() {
    check(
        Kind::Network,
        &[
            ("type", "nlb"),
            ("internal", "true"),
            ("eip-allocations", "eipalloc-1"),
            ("private-ipv4-addresses", "10.0.0.1"),
            ("security-groups", "sg-1"),
            ("access-log-s3-bucket-name", "logs"),
            ("healthcheck-path", "/x"),
            ("additional-resource-tags", "kubernetes.io/cluster/c1=shared,team=a,KubernetesCluster=c1"),
        ],
        &[
            "Warning ~access-log-s3-bucket-name \"logs\": no logs are written without ~access-log-enabled: \"true\"",
            "Warning ~security-groups \"sg-1\": no effect on a network load balancer without NLBSecurityGroupMode = \
             Managed in the cloud config",
            "Warning ~eip-allocations \"eipalloc-1\": AWS refuses Elastic IPs with ~internal; remove one of them",
            "Warning ~private-ipv4-addresses \"10.0.0.1\": AWS takes them or ~eip-allocations, not both; remove one",
            "Warning ~healthcheck-path \"/x\": no effect without ~healthcheck-protocol: http or https",
            "Warning ~additional-resource-tags \"kubernetes.io/cluster/c1=shared,team=a,KubernetesCluster=c1\": the tags \
             \"KubernetesCluster\", \"kubernetes.io/cluster/c1\" are reserved for the owner of the object; they are ignored",
        ],
    );
    check(
        Kind::Classic,
        &[
            ("type", "NLB"),
            ("access-log-enabled", "true"),
            ("access-log-emit-interval", "10"),
            ("connection-draining-timeout", "60"),
            ("extra-security-groups", "web"),
            ("healthcheck-timeout", "10"),
            ("healthcheck-interval", "10"),
        ],
        &[
            "Warning ~type \"NLB\": not a known type: a classic load balancer is created; did you mean \"nlb\"?",
            "Warning ~access-log-enabled \"true\": AWS refuses logs without a bucket; set ~access-log-s3-bucket-name",
            "Warning ~access-log-emit-interval \"10\": AWS takes only 5 and 60",
            "Warning ~connection-draining-timeout \"60\": nothing drains without ~connection-draining-enabled: \"true\"",
            "Warning ~extra-security-groups \"web\": \"web\" does not look like the ID of a security group (sg-…)",
            "Warning ~healthcheck-timeout \"10\": AWS wants it below ~healthcheck-interval (10)",
        ],
    );
}

#[test]
fn a_word_that_means_no_and_makes_an_internal_balancer_is_reported() {
    for word in ["False", "no", "0", " false", "internet-facing"] {
        let summary = format!(
            "Warning ~internal {word:?}: makes an internal load balancer, as any text but \"false\" does; write \"false\", not {word:?}"
        );
        check(Kind::Classic, &[("internal", word)], &[&summary]);
    }
    for word in ["false", "true", "", "0.0.0.0/0", "1"] {
        check(Kind::Network, &[("internal", word)], &[]);
    }
}

#[test]
fn settings_of_logs_do_nothing_while_there_are_none() {
    let without = "no logs are written without ~access-log-enabled: \"true\"";
    check(
        Kind::Classic,
        &[("access-log-s3-bucket-prefix", "p"), ("access-log-emit-interval", "5"), ("access-log-enabled", "false")],
        &[
            &format!("Warning ~access-log-s3-bucket-prefix \"p\": {without}"),
            &format!("Warning ~access-log-emit-interval \"5\": {without}"),
        ],
    );
    check(
        Kind::Network,
        &[("access-log-s3-bucket-prefix", "p")],
        &[&format!("Warning ~access-log-s3-bucket-prefix \"p\": {without}")],
    );
    let all =
        [("access-log-enabled", "true"), ("access-log-s3-bucket-name", "b"), ("access-log-s3-bucket-prefix", "p")];
    check(Kind::Network, &all, &[]);
}

#[test]
fn numbers_beyond_what_aws_takes_are_errors() {
    let health = [
        ("healthcheck-healthy-threshold", "11"),
        ("healthcheck-unhealthy-threshold", "1"),
        ("healthcheck-timeout", "121"),
        ("healthcheck-interval", "301"),
    ];
    for (kind, timeout) in [(Kind::Classic, 60), (Kind::Network, 120)] {
        let of = kind.as_str();
        let expected = [
            format!("Error ~healthcheck-healthy-threshold \"11\": AWS takes 2 to 10 on a {of}"),
            format!("Error ~healthcheck-unhealthy-threshold \"1\": AWS takes 2 to 10 on a {of}"),
            format!("Error ~healthcheck-timeout \"121\": AWS takes 2 to {timeout} on a {of}"),
            format!("Error ~healthcheck-interval \"301\": AWS takes 5 to 300 on a {of}"),
        ];
        assert_eq!(findings(&service(&health), kind), expected);
    }
    check(
        Kind::Classic,
        &[
            ("connection-idle-timeout", "4001"),
            ("connection-draining-timeout", "0"),
            ("connection-draining-enabled", "1"),
        ],
        &[
            "Error ~connection-idle-timeout \"4001\": AWS takes 1 to 4000 on a classic load balancer",
            "Error ~connection-draining-timeout \"0\": AWS takes 1 to 3600 on a classic load balancer",
        ],
    );
    let most =
        [("healthcheck-timeout", "120"), ("healthcheck-interval", "300"), ("healthcheck-healthy-threshold", "2")];
    check(Kind::Network, &most, &[]);
}

#[test]
fn addresses_come_one_for_each_subnet_and_private_ones_on_internal_balancers_only() {
    check(
        Kind::Network,
        &[("subnets", "subnet-1, subnet-2"), ("eip-allocations", "eipalloc-1"), ("type", "nlb")],
        &["Error ~eip-allocations \"eipalloc-1\": 1 for 2 subnets; name one for each of ~subnets, in that order"],
    );
    check(
        Kind::Network,
        &[("subnets", "subnet-1"), ("private-ipv4-addresses", "10.0.0.1,10.0.0.2"), ("internal", "true")],
        &[
            "Error ~private-ipv4-addresses \"10.0.0.1,10.0.0.2\": 2 for 1 subnets; name one for each of ~subnets, in that \
           order",
        ],
    );
    check(
        Kind::Network,
        &[("private-ipv4-addresses", "10.0.0.1")],
        &[
            "Warning ~private-ipv4-addresses \"10.0.0.1\": AWS takes them for internal load balancers only; add ~internal: \"true\"",
        ],
    );
    check(
        Kind::Network,
        &[("eip-allocations", "eipalloc-1,192.0.2.1")],
        &[
            "Warning ~eip-allocations \"eipalloc-1,192.0.2.1\": \"192.0.2.1\" does not look like the ID of an allocated \
           Elastic IP (eipalloc-…)",
        ],
    );
    check(Kind::Network, &[("subnets", "a,b"), ("eip-allocations", "eipalloc-1,eipalloc-2")], &[]);
}

#[test]
fn the_path_of_a_health_check_begins_with_a_slash() {
    for kind in [Kind::Classic, Kind::Network] {
        let wrong = "Error ~healthcheck-path \"healthz\": AWS wants a path that begins with \"/\"";
        check(kind, &[("healthcheck-protocol", "http"), ("healthcheck-path", "healthz")], &[wrong]);
        check(kind, &[("healthcheck-protocol", "http"), ("healthcheck-path", "/healthz")], &[]);
    }
}

#[test]
fn tags_of_aws_itself_are_refused() {
    check(
        Kind::Classic,
        &[("additional-resource-tags", "team=a,aws:x=y")],
        &[
            "Error ~additional-resource-tags \"team=a,aws:x=y\": AWS refuses the tag \"aws:x\": keys that begin with \"aws:\" are reserved; remove it",
        ],
    );
}

#[test]
fn tls_on_udp_ports_alone_has_no_effect() {
    let mut service = service(&[("ssl-cert", "arn:aws:acm:x")]);
    for port in &mut service.spec.ports {
        "UDP".clone_into(&mut port.protocol);
    }
    assert_eq!(
        findings(&service, Kind::Network),
        ["Warning ~ssl-cert \"arn:aws:acm:x\": no effect: TLS needs a TCP port"]
    );
}

#[test]
fn a_key_that_lacks_words_names_the_only_one_that_has_them_all() {
    check(
        Kind::Classic,
        &[("cross-zone", "true"), ("additional-tags", "a=b"), ("healthcheck-threshold", "2"), ("timeout", "5")],
        &[
            "Warning ~additional-tags \"a=b\": unknown key, no effect; did you mean \"~additional-resource-tags\"?",
            "Warning ~cross-zone \"true\": unknown key, no effect; did you mean \"~cross-zone-load-balancing-enabled\"?",
            "Warning ~healthcheck-threshold \"2\": unknown key, no effect",
            "Warning ~timeout \"5\": unknown key, no effect",
        ],
    );
}

#[test]
fn shared_probes_override_the_health_check_of_network_balancers_only() {
    let ownership = ownership();
    let service = service(&[("healthcheck-port", "8080")]);
    let summary = |kind| {
        let context = LintContext {
            service: &service,
            kind,
            managed_network_groups: Some(false),
            shared_probe: Some(true),
            ownership: &ownership,
        };
        lint(&context).iter().map(|finding| finding.message.clone()).collect::<Vec<_>>()
    };
    assert_eq!(
        summary(Kind::Network),
        ["no effect: ClusterServiceLoadBalancerHealthProbeMode = Shared sets protocol, port and path"]
    );
    assert!(summary(Kind::Classic).is_empty());
}

#[test]
fn source_ranges_said_twice_are_reported() {
    let mut service = service(&[]);
    service.metadata.annotations.insert(ANNOTATION_SOURCE_RANGES.to_owned(), "10.0.0.0/8".to_owned());
    assert!(findings(&service, Kind::Classic).is_empty());
    service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
    assert_eq!(
        findings(&service, Kind::Classic),
        ["Warning service.beta.kubernetes.io/load-balancer-source-ranges \"10.0.0.0/8\": no effect: \
          spec.loadBalancerSourceRanges wins; remove one of them"]
    );
}

#[test]
fn ranges_beside_named_groups_have_no_effect() {
    let mut service = service(&[("security-groups", "sg-1")]);
    let of_groups = "no effect: the rules of the groups in ~security-groups are not changed; allow these ranges there";
    service.metadata.annotations.insert(ANNOTATION_SOURCE_RANGES.to_owned(), "10.0.0.0/8".to_owned());
    let expected = format!("Warning {ANNOTATION_SOURCE_RANGES} \"10.0.0.0/8\": {of_groups}");
    assert_eq!(findings(&service, Kind::Classic), [expected]);
    service.metadata.annotations.remove(ANNOTATION_SOURCE_RANGES);
    service.spec.load_balancer_source_ranges = Some(vec!["192.168.0.0/16".to_owned()]);
    let expected = format!("Warning spec.loadBalancerSourceRanges \"192.168.0.0/16\": {of_groups}");
    assert_eq!(findings(&service, Kind::Classic), [expected]);
    let network = findings(&service, Kind::Network);
    assert!(network.iter().all(|summary| summary.contains("NLBSecurityGroupMode")), "{network:?}");
}

proptest! {
    #[test]
    fn no_value_makes_a_parser_panic(row in 0..TABLE.rows.len(), text in "\\PC*", near in "[-0-9a-z=, .*]{0,20}") {
        for text in [text, near] {
            let mut service = service(&[]);
            service.metadata.annotations.insert(TABLE.rows[row].key.to_owned(), text);
            let _ = (findings(&service, Kind::Classic), findings(&service, Kind::Network));
        }
    }
}

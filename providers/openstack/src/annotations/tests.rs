use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn given(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    let full = |key: &str| if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") };
    pairs.iter().map(|(key, value)| (full(key), (*value).to_owned())).collect()
}

fn check(pairs: &[(&str, &str)], provider: &str, expected: &[&str]) {
    let given = given(pairs);
    let findings = lint(Annotations::read(&given), provider);
    let lines: Vec<String> =
        findings.iter().map(|f| format!("{:?} {}", f.severity, f.to_string().replace(PREFIX, "~"))).collect();
    assert_eq!(lines, expected, "{pairs:?}");
}

#[test]
fn keys_are_unique_and_there_are_36() {
    let keys: BTreeSet<&str> = TABLE.rows.iter().map(|row| row.key).collect();
    assert_eq!((keys.len(), TABLE.rows.len()), (36, 36));
    assert_eq!(keys.iter().filter(|key| key.starts_with(PREFIX)).count(), 35);
    assert!(TABLE.reference().contains("| `loadbalancer.openstack.org/keep-floatingip` | boolean | `false` |"));
}

#[test]
fn an_empty_text_counts_as_a_value() {
    let given = given(&[("floating-network-id", "")]);
    let annotations = Annotations::read(&given);
    assert_eq!(annotations.get(&FLOATING_NETWORK_ID).unwrap(), Some(String::new()));
    assert_eq!(annotations.get(&SUBNET_ID).unwrap(), None);
    check(&[("floating-network-id", ""), ("lb-method", ""), ("proxy-protocol", "")], "amphora", &[]);
}

#[test]
fn a_pair_that_no_label_matches_is_reported() {
    let message = "matches no node: no label has such a key or value; write key=value";
    check(
        &[("node-selector", "env=prod=x, =web,zone,pool=")],
        "amphora",
        &[
            &format!("Warning ~node-selector \"env=prod=x, =web,zone,pool=\": \"env=prod=x\" {message}"),
            &format!("Warning ~node-selector \"env=prod=x, =web,zone,pool=\": \"=web\" {message}"),
        ],
    );
}

#[test]
fn bad_numbers_and_booleans_warn_and_the_default_holds() {
    let pairs = [
        ("connection-limit", ""),
        ("timeout-client-data", "5s"),
        ("enable-health-monitor", "True"),
        ("service.beta.kubernetes.io/openstack-internal-load-balancer", "yes"),
        ("proxy-protocol", "v3"),
    ];
    let no_number = "not a whole number from -2147483648 to 2147483647; write for example \"10\"; the default is used";
    let no_bool = "not a boolean; write \"true\" or \"false\"; the default is used";
    check(
        &pairs,
        "amphora",
        &[
            &format!("Warning service.beta.kubernetes.io/openstack-internal-load-balancer \"yes\": {no_bool}"),
            &format!("Warning ~connection-limit \"\": {no_number}"),
            "Warning ~proxy-protocol \"v3\": unknown; write true, v1, v2 or false; the default is used",
            &format!("Warning ~timeout-client-data \"5s\": {no_number}"),
            &format!("Warning ~enable-health-monitor \"True\": {no_bool}"),
        ],
    );
    let given = given(&pairs);
    let annotations = Annotations::read(&given);
    assert_eq!(annotations.get(&CONNECTION_LIMIT).unwrap(), None);
    assert_eq!(annotations.get(&TIMEOUT_CLIENT_DATA).unwrap(), None);
    assert_eq!((annotations.get(&INTERNAL).unwrap(), annotations.get(&ENABLE_HEALTH_MONITOR).unwrap()), (None, None));
    assert_eq!(annotations.get_or_default(&PROXY_PROTOCOL).unwrap(), ProxyProtocol::Off);
}

#[test]
fn values_are_read() {
    for (text, expected) in [
        ("true", ProxyProtocol::V1),
        ("v1", ProxyProtocol::V1),
        ("v2", ProxyProtocol::V2),
        ("false", ProxyProtocol::Off),
    ] {
        let given = given(&[("proxy-protocol", text)]);
        assert_eq!(Annotations::read(&given).get_or_default(&PROXY_PROTOCOL).unwrap(), expected, "{text}");
    }
    let given = given(&[("connection-limit", "-1"), ("keep-floatingip", "true"), ("pool-tags", "a, b,")]);
    let annotations = Annotations::read(&given);
    assert_eq!(annotations.get(&CONNECTION_LIMIT).unwrap(), Some(-1));
    assert_eq!(annotations.get(&KEEP_FLOATING_IP).unwrap(), Some(true));
    assert_eq!(annotations.get(&POOL_TAGS).unwrap(), Some(vec!["a".to_owned(), "b".to_owned()]));
}

#[test]
fn unknown_keys_get_a_suggestion() {
    check(
        &[
            ("floating-networkid", "x"),
            ("health-monitor", "true"),
            ("manage", "true"),
            ("loadbalancer.openstak.org/subnet-id", "x"),
            ("service.beta.kubernetes.io/openstack-internal-loadbalancer", "true"),
            ("service.beta.kubernetes.io/aws-load-balancer-internal", "true"),
        ],
        "amphora",
        &[
            "Warning ~floating-networkid \"x\": unknown key, no effect; did you mean \"~floating-network-id\"?",
            "Warning ~health-monitor \"true\": unknown key, no effect",
            "Warning ~manage \"true\": unknown key, no effect",
            "Warning loadbalancer.openstak.org/subnet-id \"x\": unknown key, no effect; did you mean \"~subnet-id\"?",
            "Warning service.beta.kubernetes.io/openstack-internal-loadbalancer \"true\": unknown key, no effect; did you mean \"service.beta.kubernetes.io/openstack-internal-load-balancer\"?",
        ],
    );
}

#[test]
fn the_two_ways_to_the_clients_address_exclude_each_other() {
    check(
        &[("proxy-protocol", "v2"), ("x-forwarded-for", "true")],
        "amphora",
        &[
            "Error ~x-forwarded-for \"true\": annotation ~proxy-protocol and ~x-forwarded-for cannot be used together; remove one",
        ],
    );
    check(&[("proxy-protocol", "false"), ("x-forwarded-for", "true")], "amphora", &[]);
}

#[test]
fn what_ovn_lacks_is_named() {
    let pairs = [
        ("proxy-protocol", "true"),
        ("default-tls-container-ref", "ref"),
        ("timeout-client-data", "1"),
        ("timeout-member-connect", "1"),
        ("timeout-member-data", "1"),
        ("timeout-tcp-inspect", "1"),
        ("flavor-id", "0badbad0-1111-4222-8333-444455556666"),
        ("availability-zone", "a"),
        ("lb-method", "ROUND_ROBIN"),
    ];
    check(&pairs, "amphora", &[]);
    let refused = "the Octavia provider ovn refuses it; remove it";
    let ignored = "no effect: the Octavia provider ovn does not have it; remove it";
    check(
        &pairs,
        "ovn",
        &[
            "Error ~lb-method \"ROUND_ROBIN\": the Octavia provider ovn needs SOURCE_IP_PORT",
            &format!("Error ~proxy-protocol \"true\": {refused}"),
            &format!("Error ~default-tls-container-ref \"ref\": {refused}"),
            &format!("Warning ~timeout-client-data \"1\": {ignored}"),
            &format!("Warning ~timeout-member-connect \"1\": {ignored}"),
            &format!("Warning ~timeout-member-data \"1\": {ignored}"),
            &format!("Warning ~timeout-tcp-inspect \"1\": {ignored}"),
            &format!("Warning ~flavor-id \"0badbad0-1111-4222-8333-444455556666\": {ignored}"),
            &format!("Warning ~availability-zone \"a\": {ignored}"),
        ],
    );
    check(&[("x-forwarded-for", "true")], "ovn", &[&format!("Error ~x-forwarded-for \"true\": {refused}")]);
    check(
        &[("flavor-id", ""), ("proxy-protocol", "off"), ("lb-method", "SOURCE_IP_PORT")],
        "ovn",
        &["Warning ~proxy-protocol \"off\": unknown; write true, v1, v2 or false; the default is used"],
    );
}

#[test]
fn an_unknown_method_is_a_warning_and_one_that_the_driver_lacks_an_error() {
    check(
        &[("lb-method", "ROUND_ROBBIN")],
        "f5",
        &[
            "Warning ~lb-method \"ROUND_ROBBIN\": unknown, Octavia may refuse it; known are ROUND_ROBIN, LEAST_CONNECTIONS, SOURCE_IP, SOURCE_IP_PORT; did you mean \"ROUND_ROBIN\"?",
        ],
    );
    check(
        &[("lb-method", "SOURCE_IP_PORT")],
        "amphora",
        &["Error ~lb-method \"SOURCE_IP_PORT\": the Octavia provider amphora refuses it"],
    );
}

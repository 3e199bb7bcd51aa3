use ccm_provider::address::parse_cidr;
use serde_json::{Value, json};

use super::*;
use AddressType::{ExternalIp, Hostname, InternalIp};

fn server(value: Value) -> Server {
    serde_json::from_value(value).unwrap()
}

fn port(status: &str, ips: &[&str]) -> Port {
    let ips: Vec<Value> = ips.iter().map(|ip| json!({"subnet_id": "s", "ip_address": ip})).collect();
    serde_json::from_value(json!({"id": "p", "status": status, "fixed_ips": ips})).unwrap()
}

fn fixed(ip: &str) -> Value {
    json!({"addr": ip, "version": 4, "OS-EXT-IPS:type": "fixed"})
}

fn floating(ip: &str) -> Value {
    json!({"addr": ip, "version": 4, "OS-EXT-IPS:type": "floating"})
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn check(server: Value, ports: &[Port], options: &Networking, expected: &[(AddressType, &str)]) {
    check_attached(server, ports, &[], options, expected);
}

fn check_attached(
    value: Value,
    ports: &[Port],
    attached: &[&Attached],
    options: &Networking,
    expected: &[(AddressType, &str)],
) {
    let expected: Vec<NodeAddress> = expected.iter().map(|(kind, ip)| NodeAddress::new(kind.clone(), *ip)).collect();
    assert_eq!(of_server(&server(value), ports, attached, options), expected);
}

#[test]
fn ports_come_first_then_access_addresses_then_networks_by_name() {
    let value = json!({
        "id": "x", "accessIPv4": "203.0.113.9", "accessIPv6": "2001:db8::9", "metadata": {"hostname": "node.example"},
        "addresses": {
            "b": [fixed("10.0.2.1"), floating("203.0.113.2")],
            "Z": [fixed("10.0.3.1")],
            "a": [fixed("10.0.1.1"), json!({"addr": "10.0.1.2", "version": 4})],
        },
    });
    check(
        value,
        &[port("ACTIVE", &["10.0.2.1", "fd00::1"]), port("ACTIVE", &["10.0.1.1"])],
        &Networking::default(),
        &[
            (InternalIp, "10.0.2.1"),
            (InternalIp, "fd00::1"),
            (InternalIp, "10.0.1.1"),
            (ExternalIp, "203.0.113.9"),
            (ExternalIp, "2001:db8::9"),
            (Hostname, "node.example"),
            (InternalIp, "10.0.3.1"),
            (InternalIp, "10.0.1.2"),
            (ExternalIp, "203.0.113.2"),
        ],
    );
}

#[test]
fn the_address_of_a_port_that_is_down_comes_once_and_after_the_access_addresses() {
    let value = json!({"id": "x", "accessIPv4": "203.0.113.9", "addresses": {"a": [fixed("10.0.0.1")]}});
    let expected = [(ExternalIp, "203.0.113.9"), (InternalIp, "10.0.0.1")];
    check(value, &[port("DOWN", &["10.0.0.1"])], &Networking::default(), &expected);
}

#[test]
fn an_address_of_a_public_network_is_external_only_although_its_port_is_active() {
    let options = Networking { public_networks: names(&["other", "public"]), ..Networking::default() };
    let value = json!({"id": "x", "addresses": {"a": [fixed("10.0.0.1")], "public": [fixed("203.0.113.1")]}});
    let ports = [port("ACTIVE", &["203.0.113.1"]), port("ACTIVE", &["10.0.0.1"])];
    check(value, &ports, &options, &[(InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1")]);
}

#[test]
fn a_network_that_is_not_internal_gives_nothing_but_its_floating_ip() {
    let options = Networking { internal_networks: names(&["a"]), ..Networking::default() };
    let value = json!({"id": "x", "addresses": {
        "a": [fixed("10.0.1.1")], "b": [fixed("10.0.2.1"), floating("203.0.113.2")]}});
    let ports = [port("ACTIVE", &["10.0.2.1"]), port("ACTIVE", &["10.0.1.1"])];
    check(value, &ports, &options, &[(InternalIp, "10.0.1.1"), (ExternalIp, "203.0.113.2")]);
}

#[test]
fn without_ipv6_no_address_of_any_kind_is_of_that_family() {
    let options = Networking { is_ipv6_disabled: true, public_networks: names(&["p"]), ..Networking::default() };
    let value = json!({"id": "x", "accessIPv4": "203.0.113.9", "accessIPv6": "2001:db8::9", "addresses": {
        "a": [fixed("fd00::1"), floating("2001:db8::2"), fixed("10.0.0.1")], "p": [fixed("2001:db8::3")]}});
    let attached = Attached { network: "t".to_owned(), addresses: names(&["fd00:5::1", "10.0.5.1"]) };
    let ports = [port("ACTIVE", &["fd00::1", "10.0.0.1"])];
    let expected = [(InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.9"), (InternalIp, "10.0.5.1")];
    check_attached(value, &ports, &[&attached], &options, &expected);
}

#[test]
fn a_subport_counts_as_fixed_behind_what_the_server_has_in_its_network() {
    let options = Networking { public_networks: names(&["p"]), ..Networking::default() };
    let value = json!({"id": "x", "addresses": {"m": [fixed("10.0.0.1")], "p": [fixed("203.0.113.1")]}});
    let attached = [
        Attached { network: "p".to_owned(), addresses: names(&["203.0.113.2"]) },
        Attached { network: "b".to_owned(), addresses: names(&["10.0.5.1"]) },
    ];
    let expected =
        [(InternalIp, "10.0.5.1"), (InternalIp, "10.0.0.1"), (ExternalIp, "203.0.113.1"), (ExternalIp, "203.0.113.2")];
    check_attached(value, &[], &attached.each_ref(), &options, &expected);
}

#[test]
fn sorted_addresses_come_by_network_then_by_bytes_and_the_rest_keeps_its_order() {
    let sort_order = ["fd00::/8", "10.0.0.0/8"].map(|net| parse_cidr(net).unwrap()).to_vec();
    let options = Networking { sort_order, ..Networking::default() };
    let value = json!({"id": "x", "accessIPv4": "203.0.113.9", "metadata": {"hostname": "n"}, "addresses": {"a": [
        fixed("192.168.0.2"), fixed("10.0.0.10"), fixed("10.0.0.9"), fixed("fd00::b"), fixed("fd00::a"),
        fixed("192.168.0.1")]}});
    let expected = [
        (InternalIp, "fd00::a"),
        (InternalIp, "fd00::b"),
        (InternalIp, "10.0.0.9"),
        (InternalIp, "10.0.0.10"),
        (ExternalIp, "203.0.113.9"),
        (Hostname, "n"),
        (InternalIp, "192.168.0.2"),
        (InternalIp, "192.168.0.1"),
    ];
    check(value, &[], &options, &expected);
}

#[test]
fn an_address_is_internal_and_external_where_both_are_given() {
    let value = json!({"id": "x", "accessIPv4": "10.0.0.1", "addresses": {"a": [fixed("10.0.0.1")]}});
    check(value, &[], &Networking::default(), &[(ExternalIp, "10.0.0.1"), (InternalIp, "10.0.0.1")]);
    check(json!({"id": "x", "addresses": null}), &[], &Networking::default(), &[]);
}

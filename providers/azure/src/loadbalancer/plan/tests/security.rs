use super::*;

const WEB: &str = "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77";

fn claim(ips: &[&str], ports: &[i32]) -> Claim {
    let access = Access { tags: vec!["Internet".to_owned()], ..Access::default() };
    Claim {
        destinations: by_family(ips.iter().map(|ip| ip.parse().unwrap())),
        ports: [("Tcp".to_owned(), ports.to_vec())].into(),
        access: Some(access),
        ..Claim::default()
    }
}

fn empty() -> Value {
    json!({"name": "nsg", "etag": "1", "properties": {"securityRules": [], "own": 1}})
}

fn done(group: &Value, claims: &[Claim]) -> Value {
    let (after, failed) = after(group, claims, None);
    assert!(failed.is_empty(), "{failed:?}");
    after
}

fn rule<'v>(group: &'v Value, name: &str) -> &'v Value {
    json::named(json::items(group, "securityRules"), name).unwrap_or_else(|| panic!("no rule {name}: {group:#}"))
}

#[test]
fn names_are_those_of_the_go_program() {
    let name = |family, protocol: &str, sources: &[&str], ports: &[i32]| {
        let sources: Vec<String> = sources.iter().map(|source| (*source).to_owned()).collect();
        allow_name(family, protocol, &sources, ports)
    };
    for (protocol, sources, ports, hash) in [
        ("Tcp", &["Internet"][..], &[80, 443][..], "556f7044ec033071ec0dfcf7cd85bc93"),
        ("Tcp", &["Internet"], &[80], "d39272f7f57ed937951650d93992ad77"),
        ("Udp", &["Internet"], &[53], "eacf5e21d4ad7b5345009ad51af9d388"),
        ("Tcp", &["20.0.0.0/16", "10.0.0.0/16"], &[5000, 443, 80], "b3f0efee566b772c57828707889eba1f"),
        ("*", &["Internet"], &[30102], "87a33204daff45b0362ae61f94926f53"),
    ] {
        assert_eq!(name(Family::V4, protocol, sources, ports), format!("k8s-azure-lb_allow_IPv4_{hash}"));
    }
    assert!(name(Family::V6, "Tcp", &["Internet"], &[80]).starts_with("k8s-azure-lb_allow_IPv6_"));
}

#[test]
fn a_rule_is_made_as_the_go_program_makes_it_and_a_second_time_changes_nothing() {
    let after = done(&empty(), &[claim(&["192.0.2.1"], &[80])]);
    let expected = json!({"name": WEB, "properties": {
        "priority": 500, "protocol": "Tcp", "access": "Allow", "direction": "Inbound", "sourcePortRange": "*",
        "sourceAddressPrefix": "Internet", "destinationAddressPrefix": "192.0.2.1", "destinationPortRanges": ["80"],
    }});
    assert_eq!(after["properties"]["securityRules"], json!([expected]));
    assert_eq!(after["properties"]["own"], 1);
    assert_eq!(done(&after, &[claim(&["192.0.2.1"], &[80])]), after);
    let is_satisfied = |ip: &str, port| satisfied(&after, [claim(&[ip], &[port])].iter()).len() == 1;
    assert!(is_satisfied("192.0.2.1", 80));
    assert!(!is_satisfied("192.0.2.1", 81) && !is_satisfied("192.0.2.2", 80));
}

#[test]
fn services_with_the_same_ports_share_a_rule() {
    let after = done(&empty(), &[claim(&["192.0.2.2"], &[80]), claim(&["192.0.2.1"], &[80])]);
    let both = rule(&after, WEB);
    assert_eq!(both["properties"]["destinationAddressPrefixes"], json!(["192.0.2.1", "192.0.2.2"]));
    assert!(both["properties"].get("destinationAddressPrefix").is_none());
    let gone = Claim { access: None, ..claim(&["192.0.2.2"], &[80]) };
    let after = done(&after, &[gone]);
    assert_eq!(rule(&after, WEB)["properties"]["destinationAddressPrefix"], "192.0.2.1");
    assert!(rule(&after, WEB)["properties"].get("destinationAddressPrefixes").is_none());
}

#[test]
fn rules_of_users_stay_byte_equal_and_keep_their_priorities() {
    let users = json!([
        {"name": "a", "properties": {"priority": 500, "protocol": "Tcp", "access": "Allow", "unknown": {"x": 1},
            "destinationAddressPrefix": "192.0.2.1", "destinationPortRange": "80"}},
        {"name": "k8s-azure-lb-mine", "properties": {"priority": 4096, "protocol": "Tcp", "access": "Deny",
            "destinationApplicationSecurityGroups": [{"id": "asg"}], "destinationPortRange": "*"}},
        {"name": "empty", "properties": {"priority": 502, "protocol": "*", "access": "Deny"}},
        {"name": "K8S-azure-lb_theirs", "properties": {"priority": 600, "protocol": "Tcp", "access": "Allow",
            "destinationAddressPrefix": "192.0.2.9", "destinationPortRange": "22"}},
    ]);
    let group = json!({"name": "nsg", "properties": {"securityRules": users}});
    let keep = Keep { own: ["192.0.2.1".to_owned()].into(), ..Keep::default() };
    let (after, failed) = after(&group, &[claim(&["192.0.2.1"], &[80])], Some(&keep));
    assert!(failed.is_empty());
    let rules = after["properties"]["securityRules"].as_array().unwrap();
    assert_eq!(rules[..4], users.as_array().unwrap()[..]);
    assert_eq!(rules[4]["properties"]["priority"], 501);
}

#[test]
fn ports_of_another_service_of_the_address_stay() {
    let both = done(&empty(), &[claim(&["192.0.2.1"], &[80, 443])]);
    let gone =
        Claim { access: None, kept: [("Tcp".to_owned(), [443].into())].into(), ..claim(&["192.0.2.1"], &[80, 443]) };
    let after = done(&both, &[gone]);
    let rules = after["properties"]["securityRules"].as_array().unwrap();
    assert_eq!(rules.len(), 1);
    assert_eq!(rules[0]["properties"]["destinationPortRanges"], json!(["443"]));
    assert_eq!(rules[0]["properties"]["priority"], 501, "the former rule has its priority until it is gone");
}

#[test]
fn a_deny_rule_comes_from_above_and_keeps_a_priority_that_it_has() {
    let denying = |ips: &[&str]| {
        let mut claim = claim(ips, &[80]);
        claim.access = claim.access.map(|access| Access { denies: true, ..access });
        claim
    };
    let after = done(&empty(), &[denying(&["192.0.2.1", "fd00::1"])]);
    let deny = rule(&after, "k8s-azure-lb_deny-all_IPv4");
    assert_eq!(
        deny["properties"],
        json!({
            "priority": 4095, "protocol": "*", "access": "Deny", "direction": "Inbound", "sourceAddressPrefix": "*",
            "sourcePortRange": "*", "destinationAddressPrefix": "192.0.2.1", "destinationPortRange": "*",
        })
    );
    assert_eq!(rule(&after, "k8s-azure-lb_deny-all_IPv6")["properties"]["priority"], 4094);
    let mut newer = after.clone();
    json::items_mut(&mut newer, "securityRules").iter_mut().for_each(|rule| {
        if json::name(rule) == "k8s-azure-lb_deny-all_IPv4" {
            rule["properties"]["priority"] = json!(4096);
        }
    });
    assert_eq!(done(&newer, &[denying(&["192.0.2.1", "fd00::1"])]), newer, "a newer program's priority stays");
}

#[test]
fn an_address_in_a_network_of_a_rule_has_what_it_asks_for() {
    let denying = |destination: &str| {
        let access = Access { tags: vec!["Internet".to_owned()], denies: true, ..Access::default() };
        let destinations = [(Family::V4, [destination.to_owned()].into())].into();
        Claim { destinations, access: Some(access), ..claim(&[], &[80]) }
    };
    let (network, address) = (denying("10.0.0.0/16"), denying("10.0.0.4"));
    let after = done(&empty(), &[address.clone(), network]);
    for name in [WEB, "k8s-azure-lb_deny-all_IPv4"] {
        assert_eq!(rule(&after, name)["properties"]["destinationAddressPrefix"], "10.0.0.0/16", "{name}");
    }
    assert_eq!(satisfied(&after, [&address].into_iter()).len(), 1);
    assert!(admits(&after, &address) && !admits(&after, &denying("10.1.0.4")));
}

#[test]
fn destinations_of_nobody_are_removed() {
    let two = done(&empty(), &[claim(&["192.0.2.1", "192.0.2.9"], &[80])]);
    let keep = Keep { own: ["192.0.2.1".to_owned()].into(), ..Keep::default() };
    let (after, _) = after(&two, &[], Some(&keep));
    assert_eq!(rule(&after, WEB)["properties"]["destinationAddressPrefix"], "192.0.2.1");
    let (unchanged, _) = super::after(&two, &[], None);
    assert_eq!(unchanged, two, "nothing is removed while nothing is known");
}

#[test]
fn what_does_not_fit_fails_alone() {
    let rules: Vec<Value> = (0..999)
        .map(|n| json!({"name": format!("user{n}"), "properties": {"priority": 100 + n, "destinationAddressPrefix": "*"}}))
        .collect();
    let group = json!({"name": "nsg", "properties": {"securityRules": rules}});
    let first = Claim { place: 1, ..claim(&["192.0.2.1"], &[80]) };
    let second = Claim { place: 2, ..claim(&["192.0.2.2"], &[81]) };
    let (after, failed) = after(&group, &[first, second], None);
    assert_eq!(after["properties"]["securityRules"].as_array().unwrap().len(), 1000);
    assert_eq!(failed.keys().copied().collect::<Vec<_>>(), [2]);
    let text = failed[&2].to_string();
    assert!(text.contains("1001 > 1000"), "{text}");
}

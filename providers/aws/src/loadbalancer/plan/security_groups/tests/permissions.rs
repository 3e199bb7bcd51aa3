use proptest::prelude::*;

use super::model::{all_from, texts, v4};
use crate::client::Id;
use crate::client::ec2::Peer;
use crate::loadbalancer::plan::security_groups::steps::set_exactly;
use crate::loadbalancer::rules::{Rule, join, missing, split, surplus};
use crate::loadbalancer::step::Besides;

fn port(port: i32, cidr: &str) -> Rule {
    Rule::port("tcp", port, v4(cidr))
}

#[test]
fn compound_permissions_are_split_to_single_sources_and_joined_again() {
    let rules = vec![
        port(80, "10.0.0.0/8"),
        port(80, "192.0.2.0/24"),
        Rule::port("tcp", 80, Peer::Ipv6("2001:db8::/32".to_owned())),
        Rule::port("tcp", 80, Peer::PrefixList("pl-1".to_owned())),
        Rule { peer: Peer::Group { id: "sg-1".into(), account: Some("1".to_owned()) }, ..port(80, "10.0.0.0/8") },
    ];
    let joined = join(rules.clone());
    assert_eq!(joined.len(), 1, "one protocol and range of ports is one permission");
    let mut again = split(&joined);
    again.sort();
    let mut sorted = rules;
    sorted.sort();
    assert_eq!(again, sorted);
}

#[test]
fn descriptions_accounts_and_spelling_make_no_other_rule() {
    let described = port(80, "10.0.0.0/8").described("x");
    assert_eq!(described.tuple(), port(80, "10.0.0.0/8").tuple());
    assert_eq!(port(80, "10.1.2.3/8").tuple(), port(80, "10.0.0.0/8").tuple());
    let six = |cidr: &str| Rule::port("tcp", 80, Peer::Ipv6(cidr.to_owned())).tuple();
    assert_eq!(six("2001:DB8:0::/32"), six("2001:db8::/32"));
    let paired = Rule { peer: Peer::Group { id: "sg-1".into(), account: Some("42".to_owned()) }, ..all_from("sg-1") };
    assert_eq!(paired.tuple(), all_from("sg-1").tuple());
    let with_ports = Rule { from_port: Some(-1), to_port: Some(-1), ..all_from("sg-1") };
    assert_eq!(with_ports.tuple(), all_from("sg-1").tuple(), "ports mean nothing with all protocols");
}

#[test]
fn ipv6_ranges_and_prefix_lists_are_neither_ours_nor_taken_for_ours() {
    let wanted = [port(80, "0.0.0.0/0")];
    let found = [
        Rule::port("tcp", 80, Peer::Ipv6("::/0".to_owned())),
        Rule::port("tcp", 80, Peer::PrefixList("pl-1".to_owned())),
    ];
    assert_eq!(missing(&wanted, &found), wanted);
    assert_eq!(surplus(&found, &wanted), found);
}

#[test]
fn ipv6_ranges_and_prefix_lists_of_the_user_stay_on_the_ports_of_the_service() {
    let by_hand = |port: i32, peer: Peer| Rule::port("tcp", port, peer);
    let (six, list) = (Peer::Ipv6("::/0".to_owned()), Peer::PrefixList("pl-1".to_owned()));
    let kept = [port(80, "192.0.2.0/24"), by_hand(80, six.clone()), by_hand(80, list.clone())];
    let found = join(kept.iter().cloned().chain([by_hand(81, six), by_hand(82, list)]).collect());
    assert_eq!(
        texts(&set_exactly(&Id::from("sg-1"), &found, &[port(80, "192.0.2.0/24")], "of a test")),
        ["update SecurityGroup sg-1: ingress tcp 81 from ::/0 removed, ingress tcp 82 from pl-1 removed (because the \
             Service doesn't ask for it)"]
    );
    let kept = join(kept.to_vec());
    assert_eq!(set_exactly(&Id::from("sg-1"), &kept, &[port(80, "192.0.2.0/24")], "of a test"), []);
    // The Service allows less than before.
    let steps = texts(&set_exactly(&Id::from("sg-1"), &kept, &[port(80, "192.0.2.0/28")], "of a test"));
    for closed in ["192.0.2.0/24", "::/0", "pl-1"] {
        assert!(steps[1].contains(&format!("ingress tcp 80 from {closed} removed")), "{steps:?}");
    }
}

#[test]
fn what_is_missing_is_opened_before_what_is_too_much_is_closed() {
    let group = Id::from("sg-1");
    let found = join(vec![port(80, "10.0.0.0/8"), port(80, "192.0.2.0/24")]);
    let steps = set_exactly(&group, &found, &[port(80, "192.0.2.0/24"), port(443, "192.0.2.0/24")], "of a test");
    assert_eq!(
        texts(&steps),
        [
            "update SecurityGroup sg-1: ingress = tcp 443 from 192.0.2.0/24 (because of a test)",
            "update SecurityGroup sg-1: ingress tcp 80 from 10.0.0.0/8 removed (because the Service doesn't ask for it)",
        ]
    );
    assert_eq!(set_exactly(&group, &found, &split(&found), "of a test"), []);
}

#[test]
fn what_users_have_opened_makes_no_room() {
    let of_users = Rule::too_big(Peer::PrefixList("pl-1".to_owned()));
    let (clients, mtu) = (port(80, "10.0.0.0/8"), Rule::too_big(v4("10.0.0.0/8")));
    let found = join(vec![clients.clone(), mtu.clone(), of_users]);
    let steps = set_exactly(&Id::from("sg-1"), &found, &[clients, mtu.clone(), port(443, "10.0.0.0/8")], "of a test");
    assert!(matches!(&steps[0].besides, Besides::Room(room) if room.spare == [mtu]), "{:?}", steps[0].besides);
}

fn any_rule() -> impl Strategy<Value = Rule> {
    let peer = prop_oneof![
        Just(v4("10.0.0.0/8")),
        Just(v4("0.0.0.0/0")),
        Just(Peer::Ipv6("::/0".to_owned())),
        Just(Peer::PrefixList("pl-1".to_owned())),
        Just(Peer::Group { id: "sg-2".into(), account: Some("1".to_owned()) }),
    ];
    (1..4, peer, proptest::sample::select(vec!["", "a", "b"]))
        .prop_map(|(port, peer, description)| Rule::port("tcp", port, peer).described(description))
}

proptest! {
    #[test]
    fn a_group_set_exactly_needs_nothing_more(
        found in proptest::collection::vec(any_rule(), 0..8),
        wanted in proptest::collection::vec(any_rule(), 0..8),
    ) {
        let found = missing(&found, &[]);
        let opened = missing(&wanted, &found);
        let closed = surplus(&found, &wanted);
        let mut after: Vec<Rule> = found.into_iter().filter(|rule| !closed.contains(rule)).chain(opened).collect();
        after = split(&join(after));
        prop_assert_eq!(missing(&wanted, &after), []);
        prop_assert_eq!(surplus(&after, &wanted), []);
        prop_assert_eq!(set_exactly(&"sg-1".into(), &join(after), &wanted, ""), []);
    }
}

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::model::{
    BALANCER, all_from, common, desired, env, group, instance, member, put, rules, run_ec2, texts, v4, with, world,
};
use crate::client::Tags;
use crate::client::elbv2::{Attributes, HealthCheck};
use crate::loadbalancer::desired::{Goal, Network, Port};
use crate::loadbalancer::observe::{Observed, Probes};
use crate::loadbalancer::plan::{Env, Step};
use crate::loadbalancer::security_groups::nodes::{self, gives_up_rules, groups, main_group};
use crate::loadbalancer::security_groups::permissions::Rule;

fn port(number: i32, protocol: &str, health: &str) -> Port {
    Port {
        port: number,
        protocol: protocol.to_owned(),
        node_port: 31000 + number,
        traffic_protocol: protocol.to_owned(),
        certificate: None,
        ssl_policy: None,
        health_check: HealthCheck { port: health.to_owned(), ..HealthCheck::default() },
    }
}

fn network(ports: Vec<Port>, ranges: &[&str]) -> Network {
    Network {
        common: common(3, ranges),
        ports,
        allocations: Vec::new(),
        private_ipv4: Vec::new(),
        attributes: Attributes::new(),
        target_group_attributes: None,
    }
}

fn subnets() -> BTreeSet<String> {
    BTreeSet::from(["subnet-a".to_owned(), "subnet-b".to_owned()])
}

fn steps(network: Option<&Network>, world: &Observed) -> Vec<Step> {
    let subnets = subnets();
    let goal = network.map(|network| (network, &subnets));
    nodes::network(&desired(Goal::Absent), goal, world, &env()).unwrap().0
}

/// Plans and writes until nothing is left, which is after one round.
fn converge(network: Option<&Network>, world: &mut Observed) {
    run_ec2(world, &steps(network, world));
    assert_eq!(texts(&steps(network, world)), [""; 0], "a second plan is empty");
}

const MINE: &str = "tcp 22 from 192.0.2.0/24 [mine]";

#[test]
fn of_several_member_groups_the_owned_one_gets_the_rules() {
    let mut world = world();
    put(&mut world, group("sg-shared", "shared", member("shared")));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-shared", "sg-nodes"]);
    }
    let found = groups(&common(3, &[]), &world, &env()).unwrap();
    assert_eq!(found.ids, BTreeSet::from(["sg-nodes".to_owned()]));
    put(&mut world, group("sg-shared", "shared", member("owned")));
    let error = groups(&common(3, &[]), &world, &env()).unwrap_err().to_string();
    assert_eq!(
        error,
        "Multiple tagged security groups found for instance i-1; ensure only the k8s security group is tagged; the tagged \
         groups were sg-shared, sg-nodes: leave kubernetes.io/cluster/c1=owned on only one of them"
    );
}

#[test]
fn without_member_groups_the_only_group_counts_and_several_are_an_error() {
    let mut world = world();
    put(&mut world, group("sg-plain", "plain", Tags::new()));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-plain"]);
    }
    let found = groups(&common(3, &[]), &world, &env()).unwrap();
    assert_eq!(found.ids, BTreeSet::from(["sg-plain".to_owned()]));
    instance(&mut world, "i-2", &["sg-plain", "sg-bystander"]);
    let error = groups(&common(3, &[]), &world, &env()).unwrap_err().to_string();
    assert!(error.contains("i-2") && error.contains("sg-plain, sg-bystander"), "{error}");
    instance(&mut world, "i-2", &[]);
    let found = groups(&common(3, &[]), &world, &env()).unwrap();
    assert_eq!(found.findings[0].value.as_deref(), Some("node-2"));
}

#[test]
fn the_main_group_follows_the_annotations_then_the_cluster() {
    let (world, mut desired) = (world(), desired(Goal::Absent));
    let main = |desired: &_, ids: &[&str]| {
        let ids: Vec<_> = ids.iter().map(|id| (*id).into()).collect();
        main_group(&ids, desired, &world, &env()).unwrap().to_string()
    };
    assert_eq!(main(&desired, &["sg-x", "sg-bystander", "sg-nodes"]), "sg-nodes", "members first among equals");
    desired.named_groups.extra = vec!["sg-nodes".to_owned()];
    assert_eq!(main(&desired, &["sg-nodes", "sg-x", "sg-bystander"]), "sg-x", "extra groups last");
    desired.named_groups.instead = vec!["sg-b".to_owned(), "sg-a".to_owned()];
    assert_eq!(main(&desired, &["sg-nodes", "sg-a", "sg-b"]), "sg-b", "the first of the annotation");
}

fn classic(world: &mut Observed, main: &str, wanted: &[&str]) -> (Vec<String>, Vec<String>) {
    let wanted = wanted.iter().map(|group| (*group).to_owned()).collect();
    let planned = nodes::classic(&main.into(), &wanted, world, &env());
    run_ec2(world, &planned.open);
    run_ec2(world, &planned.close);
    let again = nodes::classic(&main.into(), &wanted, world, &env());
    assert_eq!((again.open.len(), again.close.len()), (0, 0));
    (texts(&planned.open), texts(&planned.close))
}

#[test]
fn the_way_of_a_classic_balancer_is_one_rule_per_wanted_group() {
    let mut world = world();
    put(&mut world, group("sg-lb", "lb", member("owned")));
    put(&mut world, with(group("sg-old", "old nodes", member("owned")), vec![all_from("sg-lb"), all_from("sg-other")]));
    put(&mut world, with(group("sg-foreign", "foreign", Tags::new()), vec![all_from("sg-lb")]));
    let (open, close) = classic(&mut world, "sg-lb", &["sg-nodes"]);
    assert_eq!(
        open,
        [
            "update SecurityGroup sg-nodes: ingress = all traffic from sg-lb (because the balancer sends to nodes of that group)"
        ]
    );
    assert_eq!(close.len(), 1);
    assert_eq!(rules(&world, "sg-old"), ["all traffic from sg-other"], "others in the same permission survive");
    assert_eq!(rules(&world, "sg-foreign"), ["all traffic from sg-lb"], "a group without our tag is left alone");
}

#[test]
fn a_rule_that_the_user_narrowed_is_neither_widened_nor_removed() {
    let mut world = world();
    let narrow = Rule { peer: all_from("sg-lb").peer, ..Rule::port("tcp", 31080, v4("")) };
    put(&mut world, group("sg-lb", "lb", member("owned")));
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![narrow]));
    assert_eq!(classic(&mut world, "sg-lb", &["sg-nodes"]), (vec![], vec![]));
    assert_eq!(classic(&mut world, "sg-lb", &[]), (vec![], vec![]));
}

#[test]
fn the_nodes_own_traffic_is_never_cut_where_their_group_is_on_the_balancer() {
    let mut world = world();
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![all_from("sg-nodes")]));
    assert_eq!(classic(&mut world, "sg-nodes", &["sg-nodes"]), (vec![], vec![]));
    assert_eq!(classic(&mut world, "sg-nodes", &[]), (vec![], vec![]));
}

#[test]
fn configured_and_disabled_groups_are_never_touched() {
    let (mut world, network) = (world(), network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"]));
    put(&mut world, group("sg-lb", "lb", member("owned")));
    for env in
        [Env { node_groups_untouched: true, ..env() }, Env { shared_group: Some("sg-nodes".to_owned()), ..env() }]
    {
        let wanted = BTreeSet::from(["sg-nodes".to_owned()]);
        assert_eq!(nodes::classic(&"sg-lb".into(), &wanted, &world, &env).open, []);
        let goal = Some((&network, &subnets()));
        assert_eq!(nodes::network(&desired(Goal::Absent), goal, &world, &env).unwrap().0, []);
    }
}

#[test]
fn a_network_balancer_opens_clients_health_checks_and_mtu() {
    let mut world = world();
    let network = network(vec![port(80, "TCP", "traffic-port"), port(443, "TLS", "traffic-port")], &["10.0.0.0/8"]);
    converge(Some(&network), &mut world);
    assert_eq!(
        rules(&world, "sg-nodes"),
        [
            "icmp type 3 code 4 from 10.0.0.0/8 [kubernetes.io/rule/nlb/mtu]",
            MINE,
            &format!("tcp 31080 from 10.0.0.0/8 [kubernetes.io/rule/nlb/client={BALANCER}]"),
            &format!("tcp 31080 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            &format!("tcp 31080 from 10.0.2.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            &format!("tcp 31443 from 10.0.0.0/8 [kubernetes.io/rule/nlb/client={BALANCER}]"),
            &format!("tcp 31443 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            &format!("tcp 31443 from 10.0.2.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
        ]
    );
    converge(None, &mut world);
    assert_eq!(rules(&world, "sg-nodes"), [MINE]);
    assert_eq!(rules(&world, "sg-bystander"), [MINE]);
}

#[test]
fn udp_clients_still_have_tcp_health_checks() {
    let mut world = world();
    converge(Some(&network(vec![port(53, "UDP", "10256")], &["0.0.0.0/0"])), &mut world);
    let found = rules(&world, "sg-nodes");
    assert!(found.contains(&format!("udp 31053 from 0.0.0.0/0 [kubernetes.io/rule/nlb/client={BALANCER}]")));
    assert!(found.contains(&format!("tcp 10256 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]")));
}

#[test]
fn health_rules_go_when_a_client_rule_for_the_world_comes_and_that_is_opened_first() {
    let mut world = world();
    converge(Some(&network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"])), &mut world);
    let open = network(vec![port(80, "TCP", "traffic-port")], &["0.0.0.0/0"]);
    let planned = texts(&steps(Some(&open), &world));
    assert_eq!(planned.len(), 2);
    assert!(planned[0].contains("ingress = tcp 31080 from 0.0.0.0/0"), "{planned:#?}");
    assert!(planned[1].contains("ingress tcp 31080 from 10.0.1.0/24 removed"), "{planned:#?}");
    converge(Some(&open), &mut world);
    assert_eq!(
        rules(&world, "sg-nodes"),
        [
            "icmp type 3 code 4 from 0.0.0.0/0 [kubernetes.io/rule/nlb/mtu]",
            MINE,
            &format!("tcp 31080 from 0.0.0.0/0 [kubernetes.io/rule/nlb/client={BALANCER}]"),
        ]
    );
}

#[test]
fn a_full_group_is_closed_before_it_is_opened() {
    let mut world = world();
    let many: Vec<String> = (0..50).map(|number| format!("10.{number}.0.0/16")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    put(&mut world, group("sg-nodes", "nodes", member("owned")));
    let old =
        Rule::port("tcp", 31079, v4("10.0.0.0/8")).described(&format!("kubernetes.io/rule/nlb/client={BALANCER}"));
    let filler = (0..10).map(|number| Rule::port("tcp", number, v4("192.0.2.0/24")));
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), filler.chain([old]).collect()));
    let planned = texts(&steps(Some(&network(vec![port(80, "TCP", "traffic-port")], &many)), &world));
    assert!(planned[0].contains("tcp 31079 from 10.0.0.0/8 removed"), "{planned:#?}");
}

/// Another balancer that came first has its name on the rule that both need.
#[test]
fn a_rule_that_another_balancer_needs_survives_under_its_name() {
    let mut world = world();
    let shared = network(vec![port(80, "TCP", "10256")], &["0.0.0.0/0"]);
    converge(Some(&shared), &mut world);
    let other = || Probes {
        ports: BTreeSet::from([10256, 31999]),
        cidrs: BTreeSet::from(["10.0.1.0/24".to_owned(), "10.0.2.0/24".to_owned()]),
    };
    assert!(gives_up_rules(&desired(Goal::Absent), &world, &env()));
    world.other_balancers = BTreeMap::from([("aother".to_owned(), other())]);
    converge(None, &mut world);
    assert_eq!(
        rules(&world, "sg-nodes"),
        [
            "tcp 10256 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health=aother]",
            "tcp 10256 from 10.0.2.0/24 [kubernetes.io/rule/nlb/health=aother]",
            MINE,
        ]
    );
    assert!(!gives_up_rules(&desired(Goal::Absent), &world, &env()));
    // And the other way round: what is there already under another name is enough, and stays when this one goes.
    converge(Some(&shared), &mut world);
    converge(None, &mut world);
    assert_eq!(rules(&world, "sg-nodes").len(), 3);
}

#[test]
fn mtu_rules_stay_while_any_balancer_has_clients_from_there() {
    let mut world = world();
    let other = Rule::port("tcp", 31999, v4("10.0.0.0/8")).described("kubernetes.io/rule/nlb/client=aother");
    let mine = network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"]);
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![other]));
    converge(Some(&mine), &mut world);
    converge(None, &mut world);
    assert_eq!(
        rules(&world, "sg-nodes"),
        [
            "icmp type 3 code 4 from 10.0.0.0/8 [kubernetes.io/rule/nlb/mtu]",
            "tcp 31999 from 10.0.0.0/8 [kubernetes.io/rule/nlb/client=aother]",
        ]
    );
}

#[test]
fn groups_that_nodes_left_lose_the_rules() {
    let mut world = world();
    let mine = network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"]);
    converge(Some(&mine), &mut world);
    put(&mut world, group("sg-new", "new nodes", member("owned")));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-new"]);
    }
    converge(Some(&mine), &mut world);
    assert_eq!(rules(&world, "sg-nodes"), [MINE]);
    assert_eq!(rules(&world, "sg-new").len(), 4);
}

#[test]
fn an_unknown_network_of_a_subnet_is_an_error_and_no_closed_rule() {
    let mut world = world();
    world.subnets.clear();
    let mine = network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"]);
    let error = nodes::network(&desired(Goal::Absent), Some((&mine, &subnets())), &world, &env()).unwrap_err();
    assert_eq!(error.to_string(), "the network of subnet subnet-a of the balancer is not known");
}

fn any_network() -> impl Strategy<Value = Network> {
    let one = (prop_oneof![Just(80), Just(443), Just(8080)], prop_oneof![Just("traffic-port"), Just("10256")])
        .prop_map(|(number, health)| port(number, "TCP", health));
    let ranges = proptest::sample::subsequence(vec!["0.0.0.0/0", "10.0.0.0/8", "10.0.1.0/24"], 1..3);
    (proptest::collection::vec(one, 1..4), ranges).prop_map(|(ports, ranges)| network(ports, &ranges))
}

proptest! {
    #[test]
    fn any_prefix_then_another_plan_converges_and_strangers_keep_their_rules(
        before in any_network(),
        after in any_network(),
        goes in any::<bool>(),
    ) {
        let mut start = world();
        let stranger = Rule::port("tcp", 31999, v4("10.0.0.0/8")).described("kubernetes.io/rule/nlb/client=aother");
        let nodes_group = with(start.groups["sg-nodes"].clone(), vec![stranger]);
        put(&mut start, nodes_group);
        converge(Some(&before), &mut start);
        let goal = Some(&after).filter(|_| !goes);
        let planned = steps(goal, &start);
        let mut whole = start.clone();
        converge(goal, &mut whole);
        for prefix in 0..planned.len() {
            let mut broken = start.clone();
            run_ec2(&mut broken, &planned[..prefix]);
            converge(goal, &mut broken);
            prop_assert_eq!(rules(&broken, "sg-nodes"), rules(&whole, "sg-nodes"));
        }
        let left = rules(&whole, "sg-nodes");
        prop_assert!(left.iter().any(|rule| rule == MINE));
        prop_assert!(left.iter().any(|rule| rule.contains("client=aother")));
        prop_assert_eq!(goes, !left.iter().any(|rule| rule.contains(BALANCER)));
        prop_assert_eq!(rules(&whole, "sg-bystander"), vec![MINE.to_owned()]);
    }
}

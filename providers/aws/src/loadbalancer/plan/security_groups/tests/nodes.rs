use std::collections::BTreeSet;

use super::model::{all_from, common, desired, group, instance, member, put, texts, v4, with, world};
use crate::client::Tags;
use crate::client::elbv2::HealthCheck;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::plan::security_groups::nodes::{self, NodeGroups, groups, main_group};
use crate::loadbalancer::rules::Rule;
use crate::loadbalancer::tests::scene::{BALANCER, Scene, nlb, sg};
use crate::loadbalancer::wanted::{Goal, Network, Port};
use crate::tests::env;

fn port(number: i32, protocol: &str, health: &str) -> Port {
    Port {
        port: number,
        protocol: protocol.to_owned(),
        node_port: 31000 + number,
        traffic_protocol: protocol.to_owned(),
        health_check: HealthCheck { port: health.to_owned(), ..HealthCheck::default() },
        ..Port::default()
    }
}

fn network(ports: Vec<Port>, ranges: &[&str]) -> Network {
    Network { common: common(3, ranges), ports, ..Network::default() }
}

fn subnets() -> BTreeSet<String> {
    BTreeSet::from(["subnet-a".to_owned(), "subnet-b".to_owned()])
}

#[test]
fn of_several_member_groups_the_owned_one_gets_the_rules() {
    let mut world = world();
    put(&mut world, group("sg-shared", "shared", member("shared")));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-shared", "sg-nodes"]);
    }
    let found = groups(&common(3, &[]), &world, &env());
    assert_eq!(found.ids, BTreeSet::from(["sg-nodes".to_owned()]));
    put(&mut world, group("sg-shared", "shared", member("owned")));
    let error = groups(&common(3, &[]), &world, &env()).errors.remove(0).to_string();
    assert_eq!(
        error,
        "Multiple tagged security groups found for instance i-1; ensure only the k8s security group is tagged; the tagged \
         groups were sg-shared(shared) sg-nodes(nodes): leave kubernetes.io/cluster/c1=owned on only one of them (no rules for: node-1, \
         node-2, node-3)"
    );
}

#[test]
fn without_member_groups_the_only_group_counts_and_several_are_an_error() {
    let mut world = world();
    put(&mut world, group("sg-plain", "plain", Tags::new()));
    for number in 1..=3 {
        instance(&mut world, &format!("i-{number}"), &["sg-plain"]);
    }
    let found = groups(&common(3, &[]), &world, &env());
    assert_eq!(found.ids, BTreeSet::from(["sg-plain".to_owned()]));
    instance(&mut world, "i-2", &["sg-plain", "sg-bystander"]);
    let error = groups(&common(3, &[]), &world, &env()).errors.remove(0).to_string();
    assert!(error.contains("i-2") && error.contains("sg-plain, sg-bystander"), "{error}");
    instance(&mut world, "i-2", &[]);
    let found = groups(&common(3, &[]), &world, &env());
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

fn classic(world: &Observed, main: &str, wanted: &[&str]) -> (Vec<String>, Vec<String>) {
    let ids = wanted.iter().map(|group| (*group).to_owned()).collect();
    let planned = nodes::classic(&main.into(), NodeGroups { ids, ..NodeGroups::default() }, world, &env());
    (texts(&planned.open), texts(&planned.close))
}

#[test]
fn the_way_of_a_classic_balancer_is_one_rule_per_wanted_group() {
    let mut world = world();
    put(&mut world, group("sg-lb", "lb", member("owned")));
    put(&mut world, with(group("sg-old", "old nodes", member("owned")), vec![all_from("sg-lb"), all_from("sg-other")]));
    put(&mut world, with(group("sg-foreign", "foreign", Tags::new()), vec![all_from("sg-lb")]));
    let (open, close) = classic(&world, "sg-lb", &["sg-nodes"]);
    assert_eq!(
        open,
        [
            "update SecurityGroup sg-nodes: ingress = all traffic from sg-lb (because the load balancer sends to nodes of that group)"
        ]
    );
    // Other rules in the same permission stay, and so does a group without the cluster's tag.
    assert_eq!(
        close,
        [
            "update SecurityGroup sg-old: ingress all traffic from sg-lb removed (because the load balancer sends to no node of that group)"
        ]
    );
}

#[test]
fn a_rule_that_the_user_narrowed_is_neither_widened_nor_removed() {
    let mut world = world();
    let narrow = Rule { peer: all_from("sg-lb").peer, ..Rule::port("tcp", 31080, v4("")) };
    put(&mut world, group("sg-lb", "lb", member("owned")));
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![narrow]));
    assert_eq!(classic(&world, "sg-lb", &["sg-nodes"]), (vec![], vec![]));
    assert_eq!(classic(&world, "sg-lb", &[]), (vec![], vec![]));
}

#[test]
fn the_nodes_own_traffic_is_never_cut_where_their_group_is_on_the_balancer() {
    let mut world = world();
    put(&mut world, with(group("sg-nodes", "nodes", member("owned")), vec![all_from("sg-nodes")]));
    assert_eq!(classic(&world, "sg-nodes", &["sg-nodes"]), (vec![], vec![]));
    assert_eq!(classic(&world, "sg-nodes", &[]), (vec![], vec![]));
}

#[test]
fn an_unknown_network_of_a_subnet_is_an_error_and_no_closed_rule() {
    let mut world = world();
    world.subnets.clear();
    let mine = network(vec![port(80, "TCP", "traffic-port")], &["10.0.0.0/8"]);
    let rules = nodes::network(&desired(Goal::Absent), Some((&mine, &subnets())), &world, &env());
    assert!(rules.steps.is_empty());
    assert_eq!(rules.errors[0].to_string(), "the network of subnet subnet-a of the load balancer is not known");
}

#[tokio::test(start_paused = true)]
async fn a_network_balancer_opens_clients_health_checks_and_mtu() {
    let asked = nlb(&[(80, 31080), (443, 31443)]).ranges(&["10.0.0.0/8"]);
    let scene = Scene::made(&asked).await;
    assert_eq!(
        scene.rules(sg("sg-nodes")),
        [
            "icmp 3 from 10.0.0.0/8 [kubernetes.io/rule/nlb/mtu]".to_owned(),
            format!("tcp 31080 from 10.0.0.0/8 [kubernetes.io/rule/nlb/client={BALANCER}]"),
            format!("tcp 31080 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            format!("tcp 31080 from 10.0.2.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            format!("tcp 31443 from 10.0.0.0/8 [kubernetes.io/rule/nlb/client={BALANCER}]"),
            format!("tcp 31443 from 10.0.1.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
            format!("tcp 31443 from 10.0.2.0/24 [kubernetes.io/rule/nlb/health={BALANCER}]"),
        ]
    );
    // Groups without nodes lose the rules.
    scene.world.ec2(|ec2| {
        let nodes = ec2.groups[sg("sg-nodes")].tags.clone();
        ec2.groups.get_mut(sg("sg-new")).unwrap().tags = nodes;
        ec2.interfaces.values_mut().for_each(|interface| interface.groups = vec![sg("sg-new").to_owned()]);
    });
    scene.settle(&asked).await;
    assert_eq!((scene.rules(sg("sg-nodes")).len(), scene.rules(sg("sg-new")).len()), (0, 7));
    scene.settle(&asked.gone()).await;
    assert_eq!(scene.rules(sg("sg-new")), [""; 0]);
}

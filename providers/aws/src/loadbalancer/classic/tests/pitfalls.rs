use ccm_provider::ErrorClass;

use super::model::{
    SUBNETS, apply, balancer, converge, current, desired, hosts_only, plan, plan_in, service, wish_for,
};
use crate::client::elb::{AccessLog, ConnectionDraining, ListenerDescription};
use crate::client::{Tags, Write};
use crate::loadbalancer::classic;
use crate::loadbalancer::desired::{Desired, Goal};
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::security_groups::permissions::Rule;
use crate::loadbalancer::security_groups::tests::model as groups;

fn gone(annotations: &[(&str, &str)]) -> Desired {
    Desired { goal: Goal::Absent, ..desired(annotations) }
}

fn operations(world: &Observed, desired: &Desired) -> Vec<&'static str> {
    plan(world, desired).steps.iter().map(|step| step.write.operation().name).collect()
}

#[test]
fn what_aws_fills_in_or_adds_is_no_difference() {
    let mut world = current(&[]);
    let attributes = &mut world.classic.as_mut().unwrap().attributes;
    attributes.connection_draining = Some(ConnectionDraining { enabled: false, timeout: Some(300) });
    attributes.access_log = Some(AccessLog {
        enabled: false,
        emit_interval: Some(60),
        bucket: Some("old".to_owned()),
        prefix: Some(String::new()),
    });
    assert_eq!(operations(&world, &desired(&[])), [""; 0]);
}

/// As the Go program leaves it: a description on nothing, accounts on group pairs, listeners in capitals, policies that stay.
#[test]
fn a_balancer_made_by_the_go_program_is_taken_over_without_a_write() {
    let annotations = &[
        ("proxy-protocol", "*"),
        ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x"),
        ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05"),
        ("connection-draining-enabled", "true"),
        ("additional-resource-tags", "team=web"),
    ];
    let mut world = current(annotations);
    for group in world.groups.values_mut() {
        for source in group.ingress.iter_mut().flat_map(|permission| &mut permission.sources) {
            if let crate::client::ec2::Peer::Group { account, .. } = &mut source.from {
                *account = Some("123456789012".to_owned());
            }
        }
    }
    let classic = world.classic.as_mut().unwrap();
    classic.balancer.listeners.reverse();
    classic.balancer.listeners[0].listener.as_mut().unwrap().certificate =
        Some("ARN:aws:acm:us-west-2:1:certificate/X".to_owned());
    classic.balancer.security_groups.reverse();
    // Its AddTags let the user's value win.
    classic.tags.insert("kubernetes.io/cluster/c1".to_owned(), "shared".to_owned());
    assert_eq!(operations(&world, &desired(annotations)), [""; 0]);
    assert_eq!(operations(&world, &hosts_only(desired(annotations))), [""; 0]);
    assert_eq!(
        operations(&world, &gone(annotations)),
        ["RevokeSecurityGroupIngress", "DeleteLoadBalancer", "DeleteSecurityGroup"]
    );
}

#[test]
fn proxy_protocol_is_turned_on_and_off_once_and_other_policies_of_the_port_stay() {
    let mut world = current(&[("proxy-protocol", "*")]);
    let mine = "backend-auth".to_owned();
    let classic = world.classic.as_mut().unwrap();
    classic.policies.push(crate::client::elb::Policy { name: mine.clone(), ..Default::default() });
    classic.balancer.backend_policies.get_mut(&31080).unwrap().insert(mine.clone());
    assert_eq!(operations(&world, &desired(&[("proxy-protocol", "*")])), [""; 0]);
    assert_eq!(operations(&world, &desired(&[])), ["SetLoadBalancerPoliciesForBackendServer"; 2]);
    converge(&mut world, &desired(&[]));
    assert_eq!(balancer(&world).backend_policies, [(31080, [mine].into())].into());
    assert_eq!(
        operations(&world, &desired(&[("proxy-protocol", "*")])),
        ["SetLoadBalancerPoliciesForBackendServer"; 2],
        "the policy is there already"
    );
}

#[test]
fn a_health_check_in_small_letters_is_configured_once() {
    let annotations = &[("healthcheck-protocol", "http")];
    let world = current(annotations);
    assert_eq!(balancer(&world).health_check.as_ref().unwrap().target, "HTTP:31080/");
    assert_eq!(operations(&world, &desired(annotations)), [""; 0]);
}

#[test]
fn a_stickiness_policy_of_the_user_survives_another_tls_policy() {
    let cert = ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x");
    let mut world = current(&[cert]);
    let classic = world.classic.as_mut().unwrap();
    let kind = "LBCookieStickinessPolicyType".to_owned();
    classic.policies.push(crate::client::elb::Policy { name: "sticky".to_owned(), kind, ..Default::default() });
    classic.balancer.listeners[0].policies.insert("sticky".to_owned());
    converge(&mut world, &desired(&[cert, ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05")]));
    let policies: Vec<_> = balancer(&world).listeners[0].policies.iter().cloned().collect();
    assert_eq!(policies, ["k8s-SSLNegotiationPolicy-ELBSecurityPolicy-2015-05", "sticky"]);
}

#[test]
fn when_only_hosts_changed_a_balancer_must_be_there_and_only_hosts_change() {
    let desired = hosts_only(wish_for(&service(&[("connection-idle-timeout", "600")]), 2));
    let Goal::Classic(wanted) = &desired.goal else { unreachable!() };
    let subnets = || Ok(Vec::new());
    let error = classic::plan(&desired, wanted, &groups::world(), &groups::env(), &subnets).unwrap_err();
    assert_eq!(
        (error.class(), error.to_string()),
        (ErrorClass::NotFound, format!("Load balancer not found: {}", groups::BALANCER))
    );
    assert_eq!(operations(&current(&[]), &desired), ["DeregisterInstancesFromLoadBalancer"]);
}

#[test]
fn a_balancer_of_another_cluster_with_our_name_is_left_alone() {
    let mut world = current(&[]);
    world.classic.as_mut().unwrap().tags = Tags::from([("kubernetes.io/cluster/other".to_owned(), "owned".to_owned())]);
    let desired = desired(&[("connection-idle-timeout", "600")]);
    let Goal::Classic(wanted) = &desired.goal else { unreachable!() };
    let subnets = || Ok(Vec::new());
    let error = classic::plan(&desired, wanted, &world, &groups::env(), &subnets).unwrap_err().to_string();
    assert!(error.contains(groups::BALANCER) && error.contains("kubernetes.io/cluster/c1 = owned"), "{error}");
    assert_eq!(operations(&world, &gone(&[])), [""; 0]);
}

#[test]
fn a_group_shared_with_the_cluster_survives_the_balancer() {
    let mut world = current(&[]);
    world.groups.get_mut("sg-made-1").unwrap().tags = groups::member("shared");
    converge(&mut world, &gone(&[]));
    assert!(world.groups.contains_key("sg-made-1"));
    assert_eq!(groups::rules(&world, "sg-nodes").len(), 1, "its way to the nodes is closed all the same");
}

#[test]
fn a_user_rule_beside_ours_survives_the_change_of_the_main_group() {
    let mut world = current(&[]);
    let nodes = groups::with(world.groups["sg-nodes"].clone(), vec![groups::all_from("sg-bystander")]);
    groups::put(&mut world, nodes);
    groups::put(&mut world, groups::group("sg-user", "of the user", Tags::new()));
    converge(&mut world, &desired(&[("security-groups", "sg-user")]));
    assert!(!world.groups.contains_key("sg-made-1"));
    assert_eq!(
        groups::rules(&world, "sg-nodes"),
        ["all traffic from sg-bystander", "all traffic from sg-user", "tcp 22 from 192.0.2.0/24 [mine]"]
    );
}

#[test]
fn a_group_of_the_users_that_leaves_loses_the_way_of_a_main_group_and_no_other_rule() {
    let mut world = current(&[("extra-security-groups", "sg-bystander")]);
    let ssh = Rule { peer: groups::all_from("sg-bystander").peer, ..Rule::port("tcp", 22, groups::v4("")) };
    let nodes = groups::with(world.groups["sg-nodes"].clone(), vec![ssh, groups::all_from("sg-bystander")]);
    groups::put(&mut world, nodes);
    world.groups.get_mut("sg-bystander").unwrap().tags = groups::member("owned");
    converge(&mut world, &desired(&[]));
    assert_eq!(balancer(&world).security_groups, ["sg-made-1"]);
    assert_eq!(
        groups::rules(&world, "sg-nodes"),
        ["all traffic from sg-made-1", "tcp 22 from 192.0.2.0/24 [mine]", "tcp 22 from sg-bystander"]
    );
    assert!(world.groups.contains_key("sg-bystander"));
}

#[test]
fn a_creation_that_dies_anywhere_leaves_nothing_when_the_service_goes() {
    for annotations in [&[][..], &[("security-groups", "sg-bystander")]] {
        let start = groups::world();
        let planned = plan(&start, &desired(annotations));
        for prefix in 0..=planned.steps.len() {
            let mut world = start.clone();
            groups::run(&mut world, &planned.steps, prefix, apply);
            converge(&mut world, &gone(annotations));
            assert_eq!(world.groups, start.groups, "after {prefix} writes");
            assert_eq!(world.classic, None);
        }
    }
}

#[test]
fn an_entry_without_listener_is_left_alone_and_told() {
    let mut world = current(&[]);
    world.classic.as_mut().unwrap().balancer.listeners.push(ListenerDescription::default());
    let planned = plan(&world, &desired(&[]));
    assert_eq!((planned.steps.len(), planned.findings.len()), (0, 1));
}

#[test]
fn a_node_whose_instance_is_gone_is_not_registered() {
    let mut world = current(&[]);
    world.instances.remove("i-2");
    assert_eq!(operations(&world, &desired(&[])), ["DeregisterInstancesFromLoadBalancer"]);
}

#[test]
fn many_nodes_are_registered_in_one_call() {
    let mut world = groups::world();
    for number in 1..=500 {
        groups::instance(&mut world, &format!("i-{number}"), &["sg-nodes"]);
    }
    let planned = plan_in(&world, &wish_for(&service(&[]), 500), SUBNETS, &groups::env());
    let register: Vec<_> = planned
        .steps
        .iter()
        .filter(|step| step.write.operation().name == "RegisterInstancesWithLoadBalancer")
        .collect();
    assert_eq!(register.len(), 1);
    assert!(register[0].summary.to_string().contains("and 492 more"));
    assert!(matches!(&register[0].write, Write::Elb(write) if format!("{write:?}").contains("i-500")));
}

use ccm_provider::Service;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::model::{apply, converge_in, plan_in, service_with, wish_for};
use crate::client::write::{Ec2Write, ElbWrite};
use crate::client::{Tags, Write};
use crate::loadbalancer::desired::{Desired, Goal};
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::security_groups::tests::model as groups;

#[derive(Debug, Clone)]
pub(super) struct Case {
    pub(super) ports: Vec<(i32, i32)>,
    pub(super) annotations: Vec<(&'static str, &'static str)>,
    pub(super) nodes: usize,
    pub(super) subnets: Vec<&'static str>,
}

impl Case {
    pub(super) fn service(&self) -> Service {
        let port = |(port, node): &(i32, i32)| json!({"port": port, "nodePort": node, "protocol": "TCP"});
        service_with(&Value::Array(self.ports.iter().map(port).collect()), &self.annotations)
    }

    pub(super) fn desired(&self) -> Desired {
        wish_for(&self.service(), self.nodes)
    }
}

const ANNOTATIONS: &[(&str, &str)] = &[
    ("proxy-protocol", "*"),
    ("connection-draining-enabled", "true"),
    ("connection-idle-timeout", "600"),
    ("security-groups", "sg-user"),
    ("extra-security-groups", "sg-bystander"),
    ("ssl-cert", "arn:aws:acm:us-west-2:1:certificate/x"),
    ("ssl-negotiation-policy", "ELBSecurityPolicy-2015-05"),
    ("backend-protocol", "http"),
    ("additional-resource-tags", "team=web"),
    ("healthcheck-protocol", "http"),
];

pub(super) fn any_case() -> impl Strategy<Value = Case> {
    let ports = proptest::sample::subsequence(vec![(80, 31080), (443, 31443), (8443, 31843), (443, 31444)], 1..=3);
    let subnets = proptest::sample::select(vec![
        vec!["subnet-a", "subnet-b"],
        vec!["subnet-a2", "subnet-b2"],
        vec!["subnet-a2", "subnet-b"],
        vec!["subnet-b"],
    ]);
    (ports, proptest::sample::subsequence(ANNOTATIONS.to_vec(), 0..=5), 0..=3_usize, subnets).prop_map(
        |(mut ports, annotations, nodes, subnets)| {
            // One listener per port.
            ports.dedup_by_key(|port| port.0);
            ports.sort();
            ports.dedup_by_key(|port| port.0);
            Case { ports, annotations, nodes, subnets }
        },
    )
}

pub(super) fn world() -> Observed {
    let mut world = groups::world();
    groups::put(&mut world, groups::group("sg-user", "of the user", Tags::new()));
    world
}

/// What is left when nothing of the Service is there any more: policies of the balancer that nobody uses don't count.
fn state(mut world: Observed) -> String {
    if let Some(classic) = &mut world.classic {
        classic.policies.clear();
        classic.balancer.security_groups.sort();
        classic.balancer.listeners.sort_by_key(|listener| listener.listener.clone());
        for listener in &mut classic.balancer.listeners {
            // Listeners keep the policy of a former wish, which they lose with themselves.
            listener.policies.clear();
        }
    }
    format!("{world:#?}")
}

/// Groups have numbers in the order in which they were made.
fn rules(world: &Observed, group: &str) -> Vec<String> {
    groups::rules(world, group).into_iter().map(|rule| rule.replace("sg-made-2", "sg-made-1")).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn any_prefix_then_another_plan_converges_and_nothing_foreign_is_touched(
        before in any_case(),
        after in any_case(),
        goes in any::<bool>(),
    ) {
        let mut start = world();
        converge_in(&mut start, &before.desired(), &before.subnets);
        let desired = if goes { Desired { goal: Goal::Absent, ..before.desired() } } else { after.desired() };
        let planned = plan_in(&start, &desired, &after.subnets, &groups::env());
        for step in &planned.steps {
            match &step.write {
                Write::Ec2(
                    Ec2Write::AuthorizeSecurityGroupIngress { group, .. } | Ec2Write::RevokeSecurityGroupIngress { group, .. },
                ) => prop_assert!(!["sg-user", "sg-bystander"].contains(&group.known().unwrap_or_default())),
                Write::Ec2(Ec2Write::DeleteSecurityGroup { group }) => {
                    prop_assert!(group.known().unwrap().starts_with("sg-made-"));
                }
                Write::Elb(ElbWrite::DeleteLoadBalancer { balancer }) => prop_assert_eq!(balancer, groups::BALANCER),
                _ => {}
            }
        }
        let mut whole = start.clone();
        converge_in(&mut whole, &desired, &after.subnets);
        for prefix in 0..planned.steps.len() {
            let mut broken = start.clone();
            groups::run(&mut broken, &planned.steps, prefix, apply);
            converge_in(&mut broken, &desired, &after.subnets);
            prop_assert_eq!(state(broken.clone()), state(whole.clone()));
        }
        for group in ["sg-user", "sg-bystander"] {
            prop_assert_eq!(&whole.groups[group], &world().groups[group]);
        }
        let left = rules(&whole, "sg-nodes");
        if goes {
            prop_assert_eq!(&whole.groups, &world().groups);
        } else {
            prop_assert_eq!(left.len(), if after.nodes == 0 { 1 } else { 2 }, "{:?}", left);
        }
    }

    #[test]
    fn the_order_of_ports_and_nodes_makes_no_other_plan(case in any_case(), seed in any::<prop::sample::Index>()) {
        let world = world();
        let plan = |desired: &Desired| {
            let planned = plan_in(&world, desired, &case.subnets, &groups::env());
            planned.steps.into_iter().filter(|step| step.summary.kind != "HealthCheck").collect::<Vec<_>>()
        };
        let mut turned = case.clone();
        let count = turned.ports.len();
        turned.ports.rotate_left(seed.index(count));
        // The first port is asked for health; all else is the same.
        prop_assert_eq!(plan(&case.desired()), plan(&turned.desired()));
    }
}

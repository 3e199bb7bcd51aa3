//! What is refused with nothing written, what is left alone, and what upstream gets wrong.

use super::*;
use crate::annotations::{EIP_ALLOCATIONS, HEALTH_PROTOCOL, SSL_CERT, UNHEALTHY_THRESHOLD};
use crate::client::elbv2::Target;
use crate::client::write::{ElbV2Write, Id};
use crate::client::{Tags, Write};
use crate::loadbalancer::names;
use crate::loadbalancer::observe::TargetGroup;
use model::healthy;

fn one() -> Asked {
    asked(&[(80, 31080)])
}

/// The name of the group of a Service's first port.
fn group_name(asked: &Asked) -> String {
    let desired = asked.desired();
    let Goal::Network(network) = &desired.goal else { unreachable!() };
    names::target_group("c1", &desired.service, &network.ports[0])
}

fn refusal(asked: &Asked, cloud: &Cloud) -> String {
    let desired = asked.desired();
    asked.try_plan(&desired, &cloud.observe(&desired, &asked.env)).unwrap_err().to_string()
}

/// The group that an attempt left which died after its creation.
fn left_behind(asked: &Asked) -> TargetGroup {
    let cloud = current(asked);
    let mut found = cloud.groups.values().next().unwrap().clone();
    found.targets.clear();
    found
}

#[test]
fn an_update_of_hosts_needs_a_balancer() {
    let mut update = one();
    update.must_exist = true;
    let error = refusal(&update, &Cloud::with_nodes(2));
    assert_eq!(error, "Load balancer not found: a0f1e2d3caaaabbbbcccc0123456789a");
    update.must_exist = false;
    let cloud = current(&update);
    update.must_exist = true;
    assert!(update.plan(&update.desired(), &cloud).steps.is_empty());
}

#[test]
fn elastic_ips_must_pair_with_subnets() {
    let error = refusal(&one().with(&EIP_ALLOCATIONS, "eip-1"), &Cloud::with_nodes(2));
    assert_eq!(
        error,
        "service.beta.kubernetes.io/aws-load-balancer-eip-allocations \"eip-1\": Must have same number of EIP \
         AllocationIDs (1) and SubnetIDs (2): write one for each of subnet-a subnet-b, in this order"
    );
}

#[test]
fn a_balancer_of_another_kind_or_cluster_is_not_touched() {
    let mut cloud = current(&one());
    let found = cloud.balancers.values_mut().next().unwrap();
    found.balancer.kind = "application".to_owned();
    let error = refusal(&one(), &cloud);
    assert!(error.contains("is of type application, not network; delete or rename it"), "{error}");
    let end = one().plan(&one().gone(), &cloud);
    assert_eq!(writes(&end), ["RevokeSecurityGroupIngress"], "only our own rule goes");

    let mut cloud = current(&one());
    let found = cloud.balancers.values_mut().next().unwrap();
    found.tags = Tags::from([("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())]);
    for group in cloud.groups.values_mut() {
        group.tags = found.tags.clone();
    }
    let error = refusal(&one(), &cloud);
    assert!(error.contains("tag it kubernetes.io/cluster/c1 = owned, otherwise delete it"), "{error}");
    let end = one().plan(&one().gone(), &cloud);
    assert_eq!(writes(&end), ["RevokeSecurityGroupIngress"], "only our own rule goes");
    assert_eq!(end.findings.len(), 1);
    assert!(end.findings[0].message.starts_with("not deleted: "));
}

/// Pitfall 26 of upstream: `DuplicateTargetGroupName` for ever.
#[test]
fn a_group_that_an_attempt_left_is_adopted_and_made_right() {
    let mut left = left_behind(&one());
    left.group.health_check.healthy_threshold = 9;
    left.targets = vec![healthy(Target { id: "i-3".to_owned(), port: 31080 })];
    let mut cloud = Cloud::with_nodes(3);
    cloud.groups.insert(left.group.arn.clone(), left.clone());
    let planned = one().settle(&mut cloud);
    assert_eq!(
        writes(&planned),
        [
            "AuthorizeSecurityGroupIngress",
            "CreateLoadBalancer",
            "ModifyTargetGroup",
            "DeregisterTargets",
            "RegisterTargets",
            "CreateListener"
        ]
    );
    assert_eq!(cloud.groups.len(), 1);
}

#[test]
fn a_group_of_our_name_that_is_not_ours_is_reported_and_not_touched() {
    let name = group_name(&one());
    let with = |change: &dyn Fn(&mut TargetGroup)| {
        let mut left = left_behind(&one());
        change(&mut left);
        let mut cloud = Cloud::with_nodes(2);
        cloud.groups.insert(left.group.arn.clone(), left);
        cloud
    };
    let unmarked = with(&|left| left.tags.clear());
    let error = refusal(&one(), &unmarked);
    assert!(error.starts_with(&format!("target group {name}, which port 80 needs, is not marked as made")), "{error}");
    let of_another_service = with(&|left| {
        left.tags.insert("kubernetes.io/service-name".to_owned(), "shop/other".to_owned());
    });
    assert!(refusal(&one(), &of_another_service).contains("is not marked"));
    let elsewhere = with(&|left| left.group.vpc = "vpc-2".to_owned());
    assert!(refusal(&one(), &elsewhere).contains("has another port, protocol, target type or VPC"));

    let mut used = with(&|_| {});
    let arn = used.groups.keys().next().unwrap().clone();
    let mut observed = used.observe(&one().desired(), &one().env);
    observed.unattached_target_groups[0].group.balancers = vec!["arn:somebody".to_owned()];
    let error = one().try_plan(&one().desired(), &observed).unwrap_err().to_string();
    assert!(error.contains("is used by another load balancer (arn:somebody)"), "{error}");
    used.groups.remove(&arn);
    observed.unattached_target_groups[0].group.name = "another".to_owned();
    let planned = one().try_plan(&one().desired(), &observed).unwrap();
    assert!(!writes(&planned).contains(&"DeleteTargetGroup"), "in use elsewhere");
    assert_eq!(planned.findings.len(), 1);
}

/// Pitfall 23: upstream modifies the listener on every sync.
#[test]
fn the_policy_that_aws_chose_is_left_alone() {
    let tls = one().with(&SSL_CERT, CERTIFICATE);
    let cloud = current(&tls);
    let listener = &cloud.listeners.values().next().unwrap().1;
    assert_eq!(listener.ssl_policy.as_deref(), Some(model::DEFAULT_POLICY));
    assert!(tls.plan(&tls.desired(), &cloud).steps.is_empty());
}

/// Pitfall 24: upstream sends an unchanged HTTP check on every sync and misses a changed unhealthy threshold.
#[test]
fn an_unhealthy_threshold_alone_is_sent_with_the_other() {
    let http = one().with(&HEALTH_PROTOCOL, "HTTP");
    let cloud = current(&http);
    assert!(http.plan(&http.desired(), &cloud).steps.is_empty());
    let more = http.with(&UNHEALTHY_THRESHOLD, "7");
    let planned = more.plan(&more.desired(), &cloud);
    let [step] = &*planned.steps else { panic!("{}", text(&planned)) };
    let Write::ElbV2(ElbV2Write::ModifyTargetGroup { health_check, .. }) = &step.write else { panic!("{step:?}") };
    assert_eq!((health_check.healthy_threshold, health_check.unhealthy_threshold), (3, 7));
}

/// Pitfall 25.
#[test]
fn a_recreated_group_is_filled_before_the_listener_moves_and_the_old_one_goes_last() {
    let cloud = current(&one());
    let local = one().local();
    let planned = local.plan(&local.desired(), &cloud);
    assert_eq!(
        writes(&planned),
        [
            "AuthorizeSecurityGroupIngress",
            "CreateTargetGroup",
            "RegisterTargets",
            "ModifyListener",
            "DeleteTargetGroup"
        ]
    );
}

/// Pitfall 27: a group at its quota takes no target before another has left.
#[test]
fn targets_leave_before_others_come() {
    let cloud = current(&one());
    let replaced = one().nodes(&["i-2", "i-3"]);
    assert_eq!(writes(&replaced.plan(&replaced.desired(), &cloud)), ["DeregisterTargets", "RegisterTargets"]);
}

/// Pitfall 28.
#[test]
fn targets_come_and_go_a_hundred_at_a_time() {
    let mut cloud = Cloud::with_nodes(250);
    let names: Vec<String> = (1..=250).map(|number| format!("i-{number}")).collect();
    let many = one().nodes(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let sizes = |planned: &Planned| -> Vec<usize> {
        let size = |write: &Write| match write {
            Write::ElbV2(
                ElbV2Write::RegisterTargets { targets, .. } | ElbV2Write::DeregisterTargets { targets, .. },
            ) => Some(targets.len()),
            _ => None,
        };
        planned.steps.iter().filter_map(|step| size(&step.write)).collect()
    };
    assert_eq!(sizes(&many.settle(&mut cloud)), [100, 100, 50]);
    assert_eq!(sizes(&one().nodes(&["i-1"]).settle(&mut cloud)), [100, 100, 49]);
}

#[test]
fn a_target_on_its_way_out_is_not_taken_away_again_and_can_come_back() {
    let mut cloud = current(&one());
    let fewer = one().nodes(&["i-1"]);
    cloud.apply(&fewer.plan(&fewer.desired(), &cloud).steps);
    assert!(fewer.plan(&fewer.desired(), &cloud).steps.is_empty());
    assert_eq!(writes(&one().plan(&one().desired(), &cloud)), ["RegisterTargets"]);
}

#[test]
fn an_instance_that_is_gone_or_going_is_no_target() {
    let mut cloud = current(&one());
    cloud.instances.remove("i-2");
    assert_eq!(writes(&one().plan(&one().desired(), &cloud)), ["DeregisterTargets"]);
}

/// Pitfall 33, as far as plans go: whatever the first attempt still did, the next one finds the rest without the balancer.
#[test]
fn a_deletion_goes_on_wherever_it_ended() {
    let managed = asked(&[(80, 31080), (443, 31443)]).managed().ranges(&["10.0.0.0/8"]);
    let whole = managed.plan(&managed.gone(), &current(&managed)).steps;
    for prefix in 0..=whole.len() {
        let mut cloud = current(&managed);
        cloud.apply(&whole[..prefix]);
        managed.settle_wish(&managed.gone(), &mut cloud);
        assert_eq!((cloud.balancers.len(), cloud.listeners.len(), cloud.groups.len()), (0, 0, 0), "after {prefix}");
        assert_eq!(cloud.security_groups.keys().collect::<Vec<_>>(), ["sg-nodes"], "after {prefix}");
        assert!(cloud.security_groups["sg-nodes"].ingress.is_empty(), "after {prefix}");
    }
}

#[test]
fn deleting_what_never_was_writes_nothing() {
    let cloud = Cloud::with_nodes(2);
    assert!(one().plan(&one().gone(), &cloud).steps.is_empty());
}

/// Pitfall 49, and what a balancer that failed shows.
#[test]
fn an_impaired_balancer_keeps_its_name() {
    let mut cloud = current(&one());
    let found = &mut cloud.balancers.values_mut().next().unwrap().balancer;
    for (state, shown) in [("provisioning", 1), ("active", 1), ("active_impaired", 1), ("failed", 0), ("", 0)] {
        found.state = state.to_owned();
        assert_eq!(super::super::status(found).ingress.len(), shown, "{state}");
    }
    found.state = "active".to_owned();
    let name = found.dns_name.clone();
    assert_eq!(super::super::status(found).ingress[0].hostname, name);
    found.dns_name.clear();
    assert!(super::super::status(found).ingress.is_empty());
}

/// A balancer made by the Go program: the user's tags beside the legacy mark, targets in AWS's order, attributes that nobody
/// asked for, listeners with AWS's policy.
#[test]
fn what_upstream_made_is_taken_over_without_a_write() {
    let mut asked = asked(&[(80, 31080), (443, 31443)]).with(&SSL_CERT, CERTIFICATE).with(&ADDITIONAL_TAGS, "team=web");
    asked.env.ownership.legacy = true;
    let mut cloud = current(&asked);
    let legacy = ("KubernetesCluster".to_owned(), "c1".to_owned());
    for found in cloud.groups.values_mut() {
        assert_eq!(found.tags.get(&legacy.0), Some(&legacy.1));
        found.tags.insert("added-by-hand".to_owned(), "x".to_owned());
        found.targets.reverse();
        found.attributes.as_mut().unwrap().insert("deregistration_delay.timeout_seconds".to_owned(), "300".to_owned());
    }
    let found = cloud.balancers.values_mut().next().unwrap();
    found.balancer.state = "active".to_owned();
    found.attributes.insert("ipv6.deny_all_igw_traffic".to_owned(), "false".to_owned());
    let planned = asked.plan(&asked.desired(), &cloud);
    assert_eq!((planned.steps.len(), planned.findings.len()), (0, 0), "{}", text(&planned));
}

#[test]
fn everything_made_carries_its_marks_from_the_start() {
    let planned = one().with(&ADDITIONAL_TAGS, "team=web").managed().settle(&mut Cloud::with_nodes(2));
    let mut made = 0;
    for step in &planned.steps {
        let (tags, service) = match &step.write {
            Write::ElbV2(
                ElbV2Write::CreateLoadBalancer { tags, .. }
                | ElbV2Write::CreateTargetGroup { tags, .. }
                | ElbV2Write::CreateListener { tags, .. },
            ) => (tags, true),
            Write::Ec2(crate::client::write::Ec2Write::CreateSecurityGroup { tags, .. }) => (tags, false),
            _ => continue,
        };
        made += 1;
        assert_eq!(tags.get("kubernetes.io/cluster/c1").map(String::as_str), Some("owned"));
        assert_eq!(tags.get("team").map(String::as_str), Some("web"));
        assert_eq!(tags.get("kubernetes.io/service-name").map(String::as_str), service.then_some("shop/web"));
    }
    assert_eq!(made, 4);
}

#[test]
fn a_listener_names_the_group_that_the_same_plan_makes() {
    let planned = one().plan(&one().desired(), &Cloud::with_nodes(2));
    let named = planned.steps.iter().find_map(|step| match &step.write {
        Write::ElbV2(ElbV2Write::CreateListener { balancer, listener, .. }) => {
            Some((balancer.clone(), listener.target_group.clone()))
        }
        _ => None,
    });
    let (balancer, group) = named.unwrap();
    assert!(matches!(balancer, Id::Made(_)) && matches!(group, Id::Made(_)));
}

#[test]
fn fixed_wishes_are_warned_about_and_plain_ones_are_not() {
    let cloud = current(&one());
    assert!(one().plan(&one().desired(), &cloud).findings.is_empty());
    let internal = one().with(&INTERNAL, "true");
    assert!(warned(&internal.plan(&internal.desired(), &cloud).findings, &INTERNAL));
}

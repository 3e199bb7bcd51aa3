//! Refusals, adopted objects, and the order of writes.

use std::time::Duration;

use ccm_cloudsim::aws::elbv2::TargetGroup as Group;

use crate::annotations::{ADDITIONAL_TAGS, EIP_ALLOCATIONS, HEALTH_PROTOCOL, UNHEALTHY_THRESHOLD};
use crate::client::Write;
use crate::client::elbv2::LoadBalancer;
use crate::client::write::{Ec2Write, ElbV2Write};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::{Besides, Planned, Step};
use crate::loadbalancer::tests::scene::{Asked, Scene, nlb, writes};
use crate::tests::world::id;

fn one() -> Asked {
    nlb(&[(80, 31080)])
}

async fn refusal(asked: &Asked, scene: &Scene) -> String {
    scene.try_plan(asked).await.unwrap_err().to_string()
}

/// The target group of an interrupted attempt, with the test's change.
async fn left_behind(change: impl FnOnce(&mut Group)) -> Scene {
    let scene = Scene::made(&one()).await;
    scene.delete_by_hand();
    scene.world.state(|state| {
        let group = state.elbv2.groups.values_mut().next().unwrap();
        group.targets.clear();
        change(group);
    });
    scene
}

#[tokio::test(start_paused = true)]
async fn elastic_ips_must_pair_with_subnets() {
    let error = refusal(&one().with(&EIP_ALLOCATIONS, "eip-1"), &Scene::with_nodes(2)).await;
    assert_eq!(
        error,
        "service.beta.kubernetes.io/aws-load-balancer-eip-allocations \"eip-1\": Must have same number of EIP \
         AllocationIDs (1) and SubnetIDs (2): write one for each of subnet-a subnet-b, in this order"
    );
}

#[tokio::test(start_paused = true)]
async fn a_listener_without_tls_whose_policy_is_shown_as_empty_is_right() {
    let scene = Scene::made(&one()).await;
    scene.world.edit(|answer| answer.replace("<Port>80</Port>", "<Port>80</Port><SslPolicy></SslPolicy>"));
    assert_eq!(writes(&scene.plan(&one()).await), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_another_kind_is_not_touched() {
    let scene = Scene::made(&one()).await;
    scene.world.edit(|answer| answer.replace("<Type>network</Type>", "<Type>application</Type>"));
    let error = refusal(&one(), &scene).await;
    assert!(error.contains("is of type application, not network; delete or rename it"), "{error}");
    let end = scene.plan(&one().gone()).await;
    assert!(!writes(&end).iter().any(|write| write.contains("LoadBalancer")), "{:?}", writes(&end));
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_another_cluster_is_not_touched() {
    let scene = Scene::made(&one()).await;
    scene.world.state(|state| {
        let theirs = || [("kubernetes.io/cluster/c2".to_owned(), "owned".to_owned())].into();
        state.elbv2.balancers.values_mut().for_each(|one| one.tags = theirs());
        state.elbv2.groups.values_mut().for_each(|one| one.tags = theirs());
    });
    let error = refusal(&one(), &scene).await;
    assert!(error.contains("tag it kubernetes.io/cluster/c1 = owned, otherwise delete it"), "{error}");
    let end = scene.plan(&one().gone()).await;
    assert_eq!(writes(&end), [""; 0], "it may send to nodes with the same group");
    assert_eq!(end.findings.len(), 1);
    assert!(end.findings[0].message.starts_with("not deleted: "));
}

/// Pitfall 26 of upstream: `DuplicateTargetGroupName` forever.
#[tokio::test(start_paused = true)]
async fn a_group_that_an_attempt_left_is_adopted_and_made_right() {
    let scene = left_behind(|group| group.settings.check.healthy = 9).await;
    let planned = scene.settle(&one()).await;
    let expected = ["CreateLoadBalancer", "ModifyTargetGroup", "RegisterTargets", "CreateListener"];
    assert_eq!(writes(&planned), expected);
    assert_eq!(scene.world.state(|state| state.elbv2.groups.len()), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_of_our_name_that_is_not_ours_is_reported_and_not_touched() {
    let error = refusal(&one(), &left_behind(|left| left.tags.clear()).await).await;
    assert!(
        error.starts_with("target group k8s-shop-web-e713e917c8, which port 80 needs, is not tagged as created"),
        "{error}"
    );
    let of_another =
        |left: &mut Group| drop(left.tags.insert("kubernetes.io/service-name".into(), "shop/other".into()));
    assert!(refusal(&one(), &left_behind(of_another).await).await.contains("is not tagged"));
    let elsewhere = left_behind(|left| left.settings.vpc = "vpc-2".to_owned()).await;
    assert!(refusal(&one(), &elsewhere).await.contains("has another port, protocol, target type or VPC"));

    let scene = left_behind(|_| {}).await;
    let (desired, mut observed) = (one().desired().unwrap(), scene.observe(&one()).await);
    let plan = |observed: &Observed| scene.balancers(&one()).plan_one(&desired, observed);
    observed.unattached_target_groups[0].group.balancers = vec!["arn:somebody".to_owned()];
    let error = plan(&observed).unwrap_err().to_string();
    assert!(error.contains("is used by another load balancer (arn:somebody)"), "{error}");
    observed.unattached_target_groups[0].group.name = "another".to_owned();
    let planned = plan(&observed).unwrap();
    assert!(!writes(&planned).contains(&"DeleteTargetGroup"), "in use elsewhere");
    assert_eq!(planned.findings.len(), 1);
}

/// Pitfall 24: upstream sends an unchanged HTTP check on every sync and misses a changed unhealthy threshold.
#[tokio::test(start_paused = true)]
async fn an_unhealthy_threshold_alone_is_sent_with_the_other() {
    let http = one().with(&HEALTH_PROTOCOL, "HTTP");
    let planned = Scene::made(&http).await.plan(&http.with(&UNHEALTHY_THRESHOLD, "7")).await;
    let [step] = &*planned.steps else { panic!("{planned:?}") };
    let Write::ElbV2(ElbV2Write::ModifyTargetGroup { health_check, .. }) = &step.write else { panic!("{step:?}") };
    assert_eq!((health_check.healthy_threshold, health_check.unhealthy_threshold), (3, 7));
}

/// Pitfall 28.
#[tokio::test(start_paused = true)]
async fn targets_come_and_go_a_hundred_at_a_time() {
    let scene = Scene::with_nodes(250);
    let sizes = |planned: &Planned| -> Vec<usize> {
        let size = |write: &Write| match write {
            Write::ElbV2(
                ElbV2Write::RegisterTargets { targets, .. } | ElbV2Write::DeregisterTargets { targets, .. },
            ) => Some(targets.len()),
            _ => None,
        };
        planned.steps.iter().filter_map(|step| size(&step.write)).collect()
    };
    assert_eq!(sizes(&scene.settle(&one().nodes(1..=250)).await), [100, 100, 50]);
    assert_eq!(sizes(&scene.settle(&one().nodes([1])).await), [100, 100, 49]);
}

/// A process may die between two writes.
#[tokio::test(start_paused = true)]
async fn new_targets_come_before_others_leave_and_the_last_that_serve_wait_for_one() {
    let scene = Scene::made(&one()).await;
    scene.world.aws().clock().step(Duration::from_secs(60));
    let leaving = |planned: &Planned| {
        let [_, Step { write: Write::ElbV2(ElbV2Write::DeregisterTargets { targets, .. }), besides, .. }] =
            &*planned.steps
        else {
            panic!("{planned:?}")
        };
        (targets.iter().map(|target| target.id.clone()).collect::<Vec<_>>(), besides.clone())
    };
    let waiting = |waits| Besides::Successors { ids: vec![id(3)], waits };
    let planned = scene.plan(&one().nodes([2, 3])).await;
    assert_eq!(writes(&planned), ["RegisterTargets", "DeregisterTargets"]);
    assert_eq!(leaving(&planned), (vec![id(1)], Besides::Nothing));
    assert_ne!(planned.steps[0].part, planned.steps[1].part, "a role may lack the permission for one");
    let planned = scene.plan(&one().nodes([3])).await;
    assert_eq!(leaving(&planned), (vec![id(1), id(2)], waiting(false)));
    assert_eq!(planned.steps[0].part, planned.steps[1].part);
    // The one that stays gets no traffic, and goes first where both do.
    scene.world.state(|state| state.elbv2.unhealthy.insert(id(1)));
    assert_eq!(leaving(&scene.plan(&one().nodes([1, 3])).await), (vec![id(2)], waiting(false)));
    assert_eq!(leaving(&scene.plan(&one().nodes([2, 3])).await), (vec![id(1)], Besides::Nothing));
    scene.world.state(|state| state.elbv2.unhealthy = [id(2)].into());
    assert_eq!(leaving(&scene.plan(&one().nodes([3])).await), (vec![id(2), id(1)], waiting(false)));
    // Others may still count.
    scene.world.aws().change(|options| options.delays.target_draining = Duration::from_secs(300));
    let fewer = one().nodes([1]);
    scene.apply(&fewer, &scene.plan(&fewer).await.steps).await;
    assert_eq!(leaving(&scene.plan(&one().nodes([3])).await), (vec![id(1)], waiting(true)));
}

#[tokio::test(start_paused = true)]
async fn a_draining_target_is_not_deregistered_again_and_can_be_registered() {
    let scene = Scene::made(&one()).await;
    let fewer = one().nodes([1]);
    scene.apply(&fewer, &scene.plan(&fewer).await.steps).await;
    assert_eq!(writes(&scene.plan(&fewer).await), [""; 0]);
    assert_eq!(writes(&scene.plan(&one()).await), ["RegisterTargets"]);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_is_going_is_no_target() {
    use ccm_cloudsim::aws::ec2::InstanceState;
    let scene = Scene::made(&one()).await;
    scene.world.instance(2, |instance| instance.state = InstanceState::ShuttingDown);
    assert_eq!(writes(&scene.plan(&one()).await), ["DeregisterTargets"]);
}

/// Pitfall 49, and the status of a failed balancer.
#[test]
fn an_impaired_balancer_keeps_its_name() {
    let mut balancer = LoadBalancer { dns_name: "web.example".to_owned(), ..LoadBalancer::default() };
    for (state, shown) in [("provisioning", 1), ("active", 1), ("active_impaired", 1), ("failed", 0), ("", 0)] {
        balancer.state = state.to_owned();
        assert_eq!(super::super::status(&balancer).ingress.len(), shown, "{state}");
    }
    balancer.state = "active".to_owned();
    assert_eq!(super::super::status(&balancer).ingress[0].hostname, "web.example");
    balancer.dns_name.clear();
    assert!(super::super::status(&balancer).ingress.is_empty());
}

#[tokio::test(start_paused = true)]
async fn everything_made_carries_its_marks_from_the_start() {
    let planned = Scene::with_nodes(2).plan(&one().with(&ADDITIONAL_TAGS, "team=web").managed()).await;
    let mut made = 0;
    for step in &planned.steps {
        let (tags, service) = match &step.write {
            Write::ElbV2(
                ElbV2Write::CreateLoadBalancer { tags, .. }
                | ElbV2Write::CreateTargetGroup { tags, .. }
                | ElbV2Write::CreateListener { tags, .. },
            ) => (tags, true),
            Write::Ec2(Ec2Write::CreateSecurityGroup { tags, .. }) => (tags, false),
            _ => continue,
        };
        made += 1;
        assert_eq!(tags.get("kubernetes.io/cluster/c1").map(String::as_str), Some("owned"));
        assert_eq!(tags.get("team").map(String::as_str), Some("web"));
        assert_eq!(tags.get("kubernetes.io/service-name").map(String::as_str), service.then_some("shop/web"));
    }
    assert_eq!(made, 4);
}

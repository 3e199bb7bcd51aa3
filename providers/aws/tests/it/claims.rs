//! Whose an object is, and objects that AWS shows late.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::{Peer, Tags};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancerExt as _, Service, ServiceAction, ServiceWork};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, USER_GROUP, service};
use crate::leader::watched;

fn of_kind(name: &str, kind: &str, annotations: &[(&str, &str)]) -> Service {
    service(name, &[annotations, &[("type", kind)]].concat(), &[(80, 31080)], json!({}))
}

fn rules(bed: &Bed, group: &str) -> usize {
    bed.aws.world(|world| world.ec2.groups[group].ingress.len())
}

#[tokio::test]
async fn a_group_that_services_share_keeps_its_rule_until_the_last_is_deleted() {
    for config in [format!("ElbSecurityGroup = {USER_GROUP}"), String::new()] {
        let bed = Bed::start(&config);
        bed.add_group(USER_GROUP, None, Vec::new());
        let annotations: &[(&str, &str)] = if config.is_empty() { &[("security-groups", USER_GROUP)] } else { &[] };
        let process = bed.process().await;
        let (a, b) = (of_kind("a", "clb", annotations), of_kind("b", "clb", annotations));
        bed.ensure(&*process, &a).await;
        bed.ensure(&*process, &b).await;
        let nodes = bed.network.node_group.clone();
        assert_eq!(rules(&bed, &nodes), 1);
        bed.delete(&*process, &a).await;
        assert_eq!(rules(&bed, &nodes), 1, "b needs it");
        let mark = bed.aws.mark();
        bed.ensure(&*process, &b).await;
        assert_eq!(bed.writes(mark), [""; 0]);
        bed.delete(&*process, &b).await;
        assert_eq!(rules(&bed, &nodes), 0);
        bed.check();
    }
}

/// Each sends to nodes with a group of their own.
#[tokio::test]
async fn services_with_one_group_and_different_nodes_leave_the_rules_of_each_other() {
    let mut bed = Bed::start(&format!("ElbSecurityGroup = {USER_GROUP}"));
    bed.add_group(USER_GROUP, None, Vec::new());
    let second = "sg-0123456789abcdef0";
    bed.add_group(second, Some("owned"), Vec::new());
    bed.add_nodes(1);
    bed.set_groups(3, &[second]);
    (0..4).for_each(|number| set_pool(&mut bed, number, if number < 3 { "a" } else { "b" }));
    let process = bed.process().await;
    let [a, b] = ["a", "b"].map(|pool| of_kind(pool, "clb", &[("target-node-labels", &format!("pool={pool}"))]));
    bed.ensure(&*process, &a).await;
    bed.ensure(&*process, &b).await;
    let open = || (rules(&bed, &bed.network.node_group), rules(&bed, second));
    assert_eq!(open(), (1, 1));
    let mark = bed.aws.mark();
    for service in [&a, &b] {
        bed.aws.clock().step(Duration::from_secs(60));
        process.update(CLUSTER, service, &bed.nodes).await.unwrap();
        bed.ensure(&*process, service).await;
        let nodes = bed.nodes.clone().into();
        let work =
            ServiceWork { service: service.clone().into(), nodes, action: ServiceAction::Ensure, namespace: None };
        let plan = process.plan(CLUSTER, &work).await.unwrap();
        assert!(plan.is_empty(), "{plan}");
    }
    assert_eq!(bed.writes(mark), [""; 0]);
    bed.delete(&*process, &a).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.ensure(&*process, &b).await;
    assert_eq!(open(), (0, 1), "nobody else has the group");
    bed.check();
}

fn set_pool(bed: &mut Bed, node: usize, pool: &str) {
    Arc::make_mut(&mut bed.nodes[node]).labels = [("pool", pool)].into_iter().collect();
}

/// Each sees the other's balancer.
#[tokio::test]
async fn a_group_of_services_that_are_deleted_at_once_loses_its_rule() {
    let bed = Bed::start(&format!("ElbSecurityGroup = {USER_GROUP}"));
    bed.add_group(USER_GROUP, None, Vec::new());
    let process = bed.process().await;
    let (a, b) = (of_kind("a", "clb", &[]), of_kind("b", "clb", &[]));
    bed.ensure(&*process, &a).await;
    bed.ensure(&*process, &b).await;
    futures::join!(bed.delete(&*process, &a), bed.delete(&*process, &b));
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
    bed.check();
}

/// Each sees that the other has it, also for some time after that has left.
#[tokio::test]
async fn a_group_that_services_leave_at_once_loses_its_rule() {
    for (is_deleted, lag) in [(false, 0), (true, 0), (false, 5)] {
        let bed = Bed::start("");
        bed.add_group(USER_GROUP, None, Vec::new());
        let process = bed.process().await;
        let named = [("security-groups", USER_GROUP)];
        let (a, b) = (of_kind("a", "clb", &named), of_kind("b", "clb", &named));
        bed.ensure(&*process, &a).await;
        bed.ensure(&*process, &b).await;
        bed.aws.clock().step(Duration::from_secs(60));
        bed.aws.change(|options| {
            options.latency.actions = [("CreateSecurityGroup".to_owned(), 500)].into();
            options.lag = Lag::default().with("load-balancer", Duration::from_secs(lag));
        });
        let leaves = ["a", "b"].map(|name| of_kind(name, "clb", &[]));
        let first = async {
            match is_deleted {
                true => bed.delete(&*process, &a).await,
                false => drop(bed.ensure(&*process, &leaves[0]).await),
            }
        };
        futures::join!(first, bed.ensure(&*process, &leaves[1]));
        let of_user = bed.aws.world(|world| {
            let rules = &world.ec2.groups[&bed.network.node_group].ingress;
            rules.iter().filter(|rule| matches!(&rule.peer, Peer::Group(id) if id == USER_GROUP)).count()
        });
        assert_eq!(of_user, 0, "deleted: {is_deleted}, lag: {lag} s");
        bed.check();
    }
}

/// The new Service has found the rule, which the other closes meanwhile.
#[tokio::test]
async fn a_service_that_joins_a_group_while_another_leaves_has_its_rule_in_the_end() {
    let bed = Bed::start(&format!("ElbSecurityGroup = {USER_GROUP}"));
    bed.add_group(USER_GROUP, None, Vec::new());
    let process = bed.process().await;
    let (a, b) = (of_kind("a", "clb", &[]), of_kind("b", "clb", &[]));
    bed.ensure(&*process, &a).await;
    bed.aws.change(|options| options.latency.actions = [("CreateLoadBalancer".to_owned(), 500)].into());
    let joins = async {
        let joined = process.reconcile_one(CLUSTER, &b, &bed.nodes, ServiceAction::Ensure).await;
        (joined.result.unwrap(), joined.again)
    };
    let (_, (_, again)) = futures::join!(bed.delete(&*process, &a), joins);
    if again.is_some() {
        bed.ensure(&*process, &b).await;
    }
    assert_eq!(rules(&bed, &bed.network.node_group), 1);
    bed.check();
}

/// The one that leaves the group has looked for others before the new one exists.
#[tokio::test]
async fn a_service_that_joins_a_group_while_another_changes_to_its_own_has_its_rule() {
    let bed = Bed::start("");
    bed.add_group(USER_GROUP, None, Vec::new());
    let process = bed.process().await;
    let named = [("security-groups", USER_GROUP)];
    let (a, b) = (of_kind("a", "clb", &named), of_kind("b", "clb", &named));
    bed.ensure(&*process, &a).await;
    bed.aws.clock().step(Duration::from_secs(60));
    let slow = [("CreateLoadBalancer", 500), ("CreateSecurityGroup", 1500)];
    bed.aws.change(|options| options.latency.actions = slow.map(|(name, time)| (name.to_owned(), time)).into());
    let joins = async {
        let joined = process.reconcile_one(CLUSTER, &b, &bed.nodes, ServiceAction::Ensure).await;
        (joined.result.unwrap(), joined.again)
    };
    let leaves = of_kind("a", "clb", &[]);
    let (_, (_, again)) = futures::join!(bed.ensure(&*process, &leaves), joins);
    if again.is_some() {
        bed.ensure(&*process, &b).await;
    }
    let of_user = bed.aws.world(|world| {
        let rules = &world.ec2.groups[&bed.network.node_group].ingress;
        rules.iter().filter(|rule| matches!(&rule.peer, Peer::Group(id) if id == USER_GROUP)).count()
    });
    assert_eq!(of_user, 1);
    bed.check();
}

#[tokio::test]
async fn target_groups_that_still_show_the_deleted_balancer_are_deleted_in_the_end() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.delays.balancer_arns = Duration::from_secs(10));
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[]);
    bed.ensure(&*process, &web).await;
    bed.delete(&*process, &web).await;
    assert_eq!(bed.aws.world(|world| (world.elbv2.balancers.len(), world.elbv2.groups.len())), (0, 0));
    bed.check();
}

#[tokio::test]
async fn a_deletion_waits_for_tags_that_are_shown_late() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        bed.aws.change(|options| options.lag = Lag::default().with("tags", Duration::from_secs(5)));
        let process = bed.process().await;
        let web = of_kind("web", kind, &[]);
        let _ = process.ensure(CLUSTER, &web, &bed.nodes).await;
        bed.delete(&*process, &web).await;
        let left = bed.aws.world(|world| world.elb.balancers.len() + world.elbv2.balancers.len());
        assert_eq!(left, 0, "{kind}");
        bed.check();
    }
}

/// Right after the creation, AWS may also show no tags at all.
#[tokio::test]
async fn a_new_balancer_whose_tags_are_empty_at_first_is_not_somebody_elses() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let (process, _cluster) = watched(&bed).await;
        let web = of_kind("web", kind, &[]);
        bed.ensure(&*process, &web).await;
        let tags = bed.aws.world(|world| {
            let classic = world.elb.balancers.values_mut().map(|one| &mut one.tags);
            let network = world.elbv2.balancers.values_mut().map(|one| &mut one.tags);
            let groups = world.elbv2.groups.values_mut().map(|one| &mut one.tags);
            classic.chain(network).chain(groups).map(std::mem::take).collect::<Vec<_>>()
        });
        let error = process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        assert!(error.is_in_progress(), "{kind}: {error}");
        bed.aws.world(|world| {
            let classic = world.elb.balancers.values_mut().map(|one| &mut one.tags);
            let network = world.elbv2.balancers.values_mut().map(|one| &mut one.tags);
            let groups = world.elbv2.groups.values_mut().map(|one| &mut one.tags);
            classic.chain(network).chain(groups).zip(tags).for_each(|(place, tags)| *place = tags);
        });
        bed.delete(&*process, &web).await;
        let left = bed.aws.world(|world| world.elb.balancers.len() + world.elbv2.balancers.len());
        assert_eq!(left, 0, "{kind}");
    }
}

/// The balancer is older, and its tags are shown.
#[tokio::test]
async fn a_deletion_waits_for_the_tags_of_a_younger_part() {
    let bed = Bed::start("NLBSecurityGroupMode = Managed");
    let process = bed.process().await;
    let web = |ports: &[(i32, i32)]| service("web", &[("type", "nlb")], ports, json!({}));
    bed.ensure(&*process, &web(&[(80, 31080)])).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.aws.change(|options| options.lag = Lag::default().with("tags", Duration::from_secs(5)));
    let more = web(&[(80, 31080), (443, 31443)]);
    let _ = process.ensure(CLUSTER, &more, &bed.nodes).await;
    let error = process.ensure_deleted(CLUSTER, &more).await.unwrap_err();
    assert!(error.is_in_progress() && error.to_string().contains("target group"), "{error}");
    bed.delete(&*process, &more).await;
    assert_eq!(bed.aws.world(|world| (world.elbv2.balancers.len(), world.elbv2.groups.len())), (0, 0));
    bed.check();
}

/// The tags of the managed group.
fn managed(world: &mut World) -> Option<&mut Tags> {
    world.ec2.groups.values_mut().find(|group| group.name.starts_with("k8s-")).map(|group| &mut group.tags)
}

/// EC2 may show the tags of a group later than Elastic Load Balancing those of its balancer.
#[tokio::test]
async fn a_deletion_waits_for_the_tags_of_a_new_managed_group() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("NLBSecurityGroupMode = Managed");
        let (process, _cluster) = watched(&bed).await;
        let web = of_kind("web", kind, &[]);
        bed.ensure(&*process, &web).await;
        let tags = bed.aws.world(|world| std::mem::take(managed(world).unwrap()));
        let error = process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        assert!(error.is_in_progress(), "{kind}: {error}");
        bed.aws.world(|world| *managed(world).unwrap() = tags);
        bed.delete(&*process, &web).await;
        assert!(bed.aws.world(|world| managed(world).is_none()), "{kind}");
    }
}

/// Without any cluster's tag it may be ours: nothing is deleted, and the Service does not go either. One that another
/// cluster has tagged does not hold the Service.
#[tokio::test]
async fn a_balancer_without_our_tag_keeps_the_service_unless_it_is_another_clusters() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let web = of_kind("web", kind, &[]);
        bed.ensure(&*process, &web).await;
        bed.aws.clock().step(Duration::from_secs(60));
        let set = |value: Option<&str>| {
            bed.aws.world(|world| {
                let classic = world.elb.balancers.values_mut().map(|one| &mut one.tags);
                let network = world.elbv2.balancers.values_mut().map(|one| &mut one.tags);
                for tags in classic.chain(network) {
                    tags.clear();
                    tags.extend(value.map(|key| (key.to_owned(), "owned".to_owned())));
                }
            });
        };
        let left = || bed.aws.world(|world| world.elb.balancers.len() + world.elbv2.balancers.len());
        let of_nodes = || bed.aws.world(|world| world.ec2.groups[&bed.network.node_group].ingress.clone());
        let before = of_nodes();
        set(None);
        let error = bed.process().await.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        assert!(error.to_string().contains("kubernetes.io/cluster/c1 = owned"), "{kind}: {error}");
        assert_eq!(left(), 1, "{kind}");
        set(Some("kubernetes.io/cluster/c2"));
        bed.process().await.ensure_deleted(CLUSTER, &web).await.unwrap();
        assert_eq!(left(), 1, "{kind}");
        assert_eq!(of_nodes(), before, "{kind}: it may send to nodes with the same group");
        // The user follows the advice.
        set(Some("kubernetes.io/cluster/c1"));
        bed.delete(&*bed.process().await, &web).await;
        assert_eq!(left(), 0, "{kind}");
    }
}

#[tokio::test]
async fn target_groups_without_tags_behind_our_balancer_go_with_it() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[]);
    bed.ensure(&*process, &web).await;
    bed.aws.world(|world| world.elbv2.groups.values_mut().for_each(|group| group.tags.clear()));
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*bed.process().await, &web).await;
    assert_eq!(bed.aws.world(|world| world.elbv2.groups.len()), 0);
    bed.check();
}

#[tokio::test]
async fn a_group_of_nodes_without_the_clusters_tag_keeps_no_rule() {
    let bed = Bed::start("");
    let nodes = bed.network.node_group.clone();
    bed.aws.world(|world| world.ec2.groups.get_mut(&nodes).unwrap().tags.clear());
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[]);
    bed.ensure(&*process, &web).await;
    assert!(rules(&bed, &nodes) > 0);
    bed.delete(&*process, &web).await;
    assert_eq!(rules(&bed, &nodes), 0);
    bed.check();
}

#[tokio::test]
async fn a_network_balancer_that_aws_refuses_to_create_opens_no_node() {
    let bed = Bed::start("");
    let web = of_kind("web", "nlb", &[]);
    let limit = Fault::Code { status: 400, code: "TooManyLoadBalancers".to_owned(), message: String::new() };
    bed.aws.fault(Rule::every(limit).on("elbv2", "CreateLoadBalancer"));
    bed.process().await.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err();
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
    bed.aws.faults(Faults::clear);
    bed.ensure(&*bed.process().await, &web).await;
    assert!(rules(&bed, &bed.network.node_group) > 0);
}

#[tokio::test]
async fn a_deletion_that_ended_after_the_balancer_leaves_no_rule_in_groups_without_the_clusters_tag() {
    let bed = Bed::start("");
    let nodes = bed.network.node_group.clone();
    bed.aws.world(|world| world.ec2.groups.get_mut(&nodes).unwrap().tags.clear());
    let (process, cluster) = watched(&bed).await;
    cluster.set_nodes(bed.nodes.clone());
    let web = of_kind("web", "nlb", &[]);
    bed.ensure(&*process, &web).await;
    bed.aws.fault(Rule::every(Fault::Throttle).on("ec2", "RevokeSecurityGroupIngress"));
    bed.aws.clock().step(Duration::from_secs(60));
    process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
    assert_eq!(bed.aws.world(|world| world.elbv2.balancers.len()), 0);
    assert!(rules(&bed, &nodes) > 0);
    bed.aws.faults(Faults::clear);
    bed.aws.clock().step(Duration::from_secs(60));
    assert!(process.get(CLUSTER, &web).await.unwrap().is_some());
    bed.delete(&*process, &web).await;
    assert_eq!(rules(&bed, &nodes), 0);
}

#[tokio::test]
async fn a_stopped_node_withholds_no_address_and_gets_traffic_when_it_runs() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let id = bed.nodes[2].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        let set = |state| bed.aws.world(|world| world.ec2.instances.get_mut(&id).unwrap().state = state);
        set(InstanceState::Stopped);
        let (process, cluster) = watched(&bed).await;
        let web = of_kind("web", kind, &[]);
        let answer = process.reconcile_one(CLUSTER, &web, &bed.nodes, ServiceAction::Ensure).await;
        assert_eq!(answer.result.unwrap().unwrap().ingress.len(), 1, "{kind}");
        assert_eq!((bed.hosts(), answer.again), (vec![2], Some(Duration::from_secs(60))), "{kind}");
        let events = cluster.take_events();
        assert_eq!(events.iter().filter(|event| event.contains("node-2")).count(), 1, "{kind}: {events:?}");
        set(InstanceState::Running);
        bed.ensure(&*bed.process().await, &web).await;
        assert_eq!(bed.hosts(), [3], "{kind}");
        bed.check();
    }
}

#[tokio::test]
async fn an_instance_that_is_missing_once_stays_registered() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let web = of_kind("web", kind, &[]);
        bed.ensure(&*bed.process().await, &web).await;
        let (process, _cluster) = watched(&bed).await;
        let id = bed.nodes[0].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        bed.aws.world(|world| world.ec2.instances.remove(&id).unwrap());
        let mark = bed.aws.mark();
        let answer = process.reconcile_one(CLUSTER, &web, &bed.nodes, ServiceAction::UpdateHosts).await;
        answer.result.unwrap();
        assert_eq!(answer.again, Some(Duration::from_secs(10)), "{kind}: it is looked for again");
        assert_eq!(bed.writes(mark), [""; 0], "{kind}");
    }
}

#[tokio::test]
async fn a_service_that_goes_and_comes_back_waits_for_nothing() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("NLBSecurityGroupMode = Managed");
        bed.aws.change(|options| options.delays.balancer_interfaces = Duration::ZERO);
        let process = bed.process().await;
        let web = of_kind("web", kind, &[]);
        process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap();
        process.ensure_deleted(CLUSTER, &web).await.unwrap();
        process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap();
        bed.check();
    }
}

#[tokio::test]
async fn a_deletion_that_waits_for_interfaces_is_in_progress_with_growing_delays() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.delays.balancer_interfaces = Duration::from_secs(40));
    let process = bed.process().await;
    let web = of_kind("web", "clb", &[]);
    bed.ensure(&*process, &web).await;
    bed.aws.clock().step(Duration::from_secs(60));
    let mark = bed.aws.mark();
    while let Err(error) = process.ensure_deleted(CLUSTER, &web).await {
        assert!(error.is_in_progress(), "{error:?}");
        bed.aws.clock().step(error.retry_after().unwrap());
    }
    let tries = bed.writes(mark).iter().filter(|write| *write == "DeleteSecurityGroup").count();
    assert!(tries <= 5, "{tries}");
}

/// A rule that somebody else has made keeps the group.
#[tokio::test]
async fn a_deletion_that_is_blocked_for_ever_is_reported_after_ten_minutes_and_asks_seldom() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let web = of_kind("web", "clb", &[]);
    bed.ensure(&*process, &web).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.add_group(USER_GROUP, None, Vec::new());
    bed.aws.world(|world| {
        let (managed, _) = world.ec2.groups.iter().find(|(_, group)| group.name.starts_with("k8s-elb-")).unwrap();
        let rule = ccm_cloudsim::aws::ec2::model::Rule {
            id: "sgr-0123456789abcdef1".to_owned(),
            protocol: "tcp".to_owned(),
            from: Some(22),
            to: Some(22),
            peer: Peer::Group(managed.clone()),
            description: None,
        };
        world.ec2.groups.get_mut(USER_GROUP).unwrap().ingress.push(rule);
    });
    let now = || bed.aws.clock().now();
    let begin = now();
    let passed = || now().duration_since(begin).unsigned_abs();
    let mut reports = Vec::new();
    let mut quarter = None;
    while passed() < Duration::from_secs(45 * 60) {
        if passed() >= Duration::from_secs(15 * 60) {
            quarter.get_or_insert_with(|| (bed.aws.mark(), passed()));
        }
        // The core asks first.
        assert!(process.get(CLUSTER, &web).await.unwrap().is_some());
        let error = process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        if !error.is_in_progress() {
            reports.push((passed().as_secs() / 60, error.to_string()));
        }
        bed.aws.clock().step(error.retry_after().unwrap());
    }
    assert!(matches!(&*reports, [(10..=14, text)] if text.contains(USER_GROUP)), "{reports:?}");
    let (mark, from) = quarter.unwrap();
    let calls = u64::try_from(bed.aws.ledger(|ledger| ledger.since(mark).count())).unwrap();
    let minutes = (passed() - from).as_secs() / 60;
    assert!(calls <= 2 * minutes, "{calls} calls in {minutes} minutes");
}

#[tokio::test]
async fn a_full_security_group_takes_the_ports_that_fit_and_clients_of_others() {
    let bed = Bed::start("");
    let nodes = bed.network.node_group.clone();
    bed.aws.change(|options| options.limits.rules_per_group = 5);
    let web = service(
        "web",
        &[("type", "nlb")],
        &[(80, 31080), (81, 31081), (82, 31082)],
        json!({
            "loadBalancerSourceRanges": ["10.0.0.0/8", "192.168.0.0/16"],
        }),
    );
    let error = bed.process().await.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains(&nodes) && error.contains("no room for tcp 31081 from 192.168.0.0/16"), "{error}");
    // Two networks of clients and two of health checks for one port, and a client of the next one.
    assert_eq!(rules(&bed, &nodes), 5);
    assert_eq!(bed.hosts(), [3, 3, 3]);
}

#[tokio::test]
async fn a_full_target_group_takes_what_fits_and_later_ports_are_served() {
    let mut bed = Bed::start("");
    bed.add_nodes(2);
    bed.aws.change(|options| options.limits.targets_per_group = 4);
    let web = service("web", &[("type", "nlb")], &[(80, 31080), (81, 31081)], json!({}));
    let error = bed.process().await.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("as target"), "{error}");
    assert_eq!(bed.hosts(), [4, 4]);
}

/// The rule keeps the name of the deleted balancer, and goes with the last one that needs it.
#[tokio::test]
async fn a_health_rule_that_cannot_be_renamed_keeps_no_deletion_from_ending() {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let process = bed.process().await;
    let nodes = bed.network.node_group.clone();
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let one = service("one", &[("type", "nlb")], &[(80, 31080)], ranges.clone());
    let two = service("two", &[("type", "nlb")], &[(80, 31081)], ranges);
    bed.ensure(&*process, &one).await;
    bed.ensure(&*process, &two).await;
    let action = "UpdateSecurityGroupRuleDescriptionsIngress";
    bed.aws.fault(Rule::every(Fault::Deny).on("ec2", action));
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &one).await;
    let probes = |bed: &Bed| {
        bed.aws.world(|world| world.ec2.groups[&nodes].ingress.iter().filter(|rule| rule.from == Some(10256)).count())
    };
    assert_eq!(probes(&bed), 2);
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &two).await;
    assert_eq!(rules(&bed, &nodes), 0);
}

/// The balancer leaves the nodes with a group, and another one sends to them.
#[tokio::test]
async fn a_health_rule_that_cannot_be_renamed_keeps_no_update_of_the_nodes_from_ending() {
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let mut bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
        let second = "sg-0123456789abcdef0";
        bed.add_group(second, Some("owned"), Vec::new());
        bed.add_nodes(1);
        bed.set_groups(3, &[second]);
        (0..4).for_each(|number| set_pool(&mut bed, number, "a"));
        let process = bed.process().await;
        let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
        let pool = [("type", "nlb"), ("target-node-labels", "pool=a")];
        let one = service("one", &pool, &[(80, 31080)], ranges.clone());
        bed.ensure(&*process, &one).await;
        bed.ensure(&*process, &service("two", &pool[..1], &[(80, 31081)], ranges)).await;
        let rename = "UpdateSecurityGroupRuleDescriptionsIngress";
        bed.aws.fault(Rule::every(Fault::Deny).on("ec2", rename));
        bed.aws.clock().step(Duration::from_secs(70));
        set_pool(&mut bed, 3, "b");
        let mark = bed.aws.mark();
        process.reconcile_one(CLUSTER, &one, &bed.nodes, action).await.result.unwrap();
        assert!(bed.writes(mark).contains(&rename.to_owned()), "{action:?}: {:?}", bed.writes(mark));
        let open = |port: i64| {
            bed.aws
                .world(|world| world.ec2.groups[second].ingress.iter().filter(|rule| rule.from == Some(port)).count())
        };
        assert_eq!((open(31080), open(10256)), (0, 2), "{action:?}: the other one needs the checks");
        let mut hosts = bed.hosts();
        hosts.sort_unstable();
        assert_eq!(hosts, [3, 4], "{action:?}");
        bed.check();
    }
}

/// It has found the rule of a balancer that is deleted meanwhile. The new one is known to AWS with its checks only at the
/// end; the other one is not looked at again after a change of the nodes.
#[tokio::test]
async fn a_balancer_that_moves_its_health_checks_to_a_port_has_the_rule_of_one_that_leaves() {
    for (action, slow) in [
        (ServiceAction::Ensure, [("CreateListener", 500), ("DeleteTargetGroup", 1500)]),
        (ServiceAction::UpdateHosts, [("DeleteTargetGroup", 500), ("ModifyTargetGroup", 2000)]),
    ] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
        let shared = [("type", "nlb"), ("healthcheck-port", "10256")];
        let one = service("one", &shared, &[(80, 31080)], ranges.clone());
        let two = service("two", &shared, &[(80, 31081)], ranges.clone());
        bed.ensure(&*process, &one).await;
        if action == ServiceAction::UpdateHosts {
            bed.ensure(&*process, &service("two", &shared[..1], &[(80, 31081)], ranges)).await;
        }
        bed.aws.clock().step(Duration::from_secs(60));
        bed.aws.change(|options| options.latency.actions = slow.map(|(name, time)| (name.to_owned(), time)).into());
        let comes = async {
            let came = process.reconcile_one(CLUSTER, &two, &bed.nodes, action).await;
            (came.result.unwrap(), came.again)
        };
        let (_, (_, again)) = futures::join!(bed.delete(&*process, &one), comes);
        if again.is_some() {
            bed.ensure(&*process, &two).await;
        }
        let probes = bed.aws.world(|world| {
            let rules = &world.ec2.groups[&bed.network.node_group].ingress;
            rules.iter().filter(|rule| rule.from == Some(10256)).count()
        });
        assert_eq!(probes, 2, "{action:?}");
        bed.aws.clock().step(Duration::from_secs(60));
        bed.delete(&*process, &two).await;
        assert_eq!(rules(&bed, &bed.network.node_group), 0, "{action:?}");
        bed.check();
    }
}

/// Without that, each would keep the rule for the other.
#[tokio::test]
async fn balancers_with_one_health_check_that_are_deleted_at_once_leave_no_rule() {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let process = bed.process().await;
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let one = service("one", &[("type", "nlb")], &[(80, 31080)], ranges.clone());
    let two = service("two", &[("type", "nlb")], &[(80, 31081)], ranges);
    bed.ensure(&*process, &one).await;
    bed.ensure(&*process, &two).await;
    bed.aws.clock().step(Duration::from_secs(60));
    futures::join!(bed.delete(&*process, &one), bed.delete(&*process, &two));
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
    bed.check();
}

/// "Not shown" is not "none": it may be in any subnet.
#[tokio::test]
async fn a_health_rule_is_kept_for_a_balancer_that_is_shown_without_its_subnets() {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let process = bed.process().await;
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let one = service("one", &[("type", "nlb")], &[(80, 31080)], ranges.clone());
    let two = service("two", &[("type", "nlb")], &[(80, 31081)], ranges);
    bed.ensure(&*process, &one).await;
    bed.ensure(&*process, &two).await;
    bed.aws.clock().step(Duration::from_secs(60));
    let name = two.default_load_balancer_name();
    bed.aws.world(|world| {
        let other = world.elbv2.balancers.values_mut().find(|balancer| balancer.name == name);
        other.unwrap().subnets.clear();
    });
    bed.delete(&*process, &one).await;
    let probes = bed.aws.world(|world| {
        let rules = &world.ec2.groups[&bed.network.node_group].ingress;
        rules.iter().filter(|rule| rule.from == Some(10256)).count()
    });
    assert_eq!(probes, 2);
}

/// A balancer of another cluster opens its rules itself.
#[tokio::test]
async fn a_health_rule_is_not_kept_for_the_balancer_of_another_cluster() {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let (ours, theirs) = (bed.process().await, bed.process_of("c2").await);
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let one = service("one", &[("type", "nlb")], &[(80, 31080)], ranges.clone());
    bed.ensure(&*ours, &one).await;
    let _ = theirs.ensure(CLUSTER, &service("two", &[("type", "nlb")], &[(80, 31081)], ranges), &[]).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*ours, &one).await;
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
}

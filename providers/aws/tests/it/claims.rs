//! Whose an object is, and objects that AWS shows late.

use std::time::Duration;

use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::InstanceState;
use ccm_cloudsim::aws::ec2::model::{Peer, Tags};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancerExt as _, LoadBalancerIngress, ProviderError, Service, ServiceAction};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, USER_GROUP, service, shape_of};
use crate::leader::watched;

pub(crate) fn of_kind(name: &str, kind: &str, annotations: &[(&str, &str)]) -> Service {
    service(name, &[annotations, &[("type", kind)]].concat(), &[(80, 31080)], json!({}))
}

pub(crate) fn rules(bed: &Bed, group: &str) -> usize {
    bed.aws.world(|world| world.ec2.groups[group].ingress.len())
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

/// Two pools of nodes, with one group each.
#[tokio::test]
async fn a_group_of_nodes_without_the_clusters_tag_beside_one_with_it_keeps_no_rule() {
    let mut bed = Bed::start("");
    let plain = "sg-0123456789abcdef0";
    bed.add_group(plain, None, Vec::new());
    bed.add_nodes(1);
    bed.set_groups(3, &[plain]);
    let (process, cluster) = watched(&bed).await;
    cluster.set_nodes(bed.nodes.clone());
    let web = of_kind("web", "nlb", &[]);
    bed.ensure(&*process, &web).await;
    let open = || [rules(&bed, &bed.network.node_group), rules(&bed, plain)];
    assert_eq!(open(), [2, 2]);
    bed.delete(&*process, &web).await;
    assert_eq!(open(), [0, 0]);
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

/// Nothing else says whose an object is.
#[tokio::test]
async fn tags_that_aws_does_not_show_are_a_failure_after_a_minute() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let web = of_kind("web", kind, &[]);
        bed.ensure(&*bed.process().await, &web).await;
        bed.aws.clock().step(Duration::from_secs(60));
        let none =
            "<DescribeTagsResponse><DescribeTagsResult><TagDescriptions/></DescribeTagsResult></DescribeTagsResponse>";
        let hide = Fault::Status { status: 200, body: none.to_owned() };
        bed.aws.fault(Rule { action: Some("DescribeTags".to_owned()), ..Rule::every(hide) });
        let process = bed.process().await;
        let seconds =
            |error: &ProviderError| (error.is_in_progress(), error.retry_after().map(|after| after.as_secs()));
        for (after, expected) in [(0, (true, Some(2))), (30, (true, Some(2))), (30, (false, Some(60)))] {
            bed.aws.clock().step(Duration::from_secs(after));
            for error in [
                process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err(),
                process.ensure_deleted(CLUSTER, &web).await.unwrap_err(),
            ] {
                assert_eq!(seconds(&error), expected, "{kind}: {error}");
            }
        }
        bed.aws.faults(Faults::clear);
        bed.ensure(&*process, &web).await;
        bed.delete(&*process, &web).await;
        bed.check();
    }
}

/// The status has the hostname of the other controller, so only the name in AWS shows that there is one. Interfaces keep its
/// security group from being deleted with it.
#[tokio::test]
async fn the_balancer_of_a_service_that_another_controller_has_now_is_deleted_with_the_service() {
    for (kind, elsewhere) in [("clb", "external"), ("nlb", "nlb-ip")] {
        let bed = Bed::start("NLBSecurityGroupMode = Managed");
        let empty = shape_of(&bed);
        bed.ensure(&*bed.process().await, &of_kind("web", kind, &[])).await;
        let process = bed.process().await;
        let mut web = of_kind("web", elsewhere, &[]);
        let hostname = "k8s-shop-web-0123456789.elb.us-west-2.amazonaws.com".to_owned();
        web.status.load_balancer.ingress = vec![LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() }];
        assert!(process.get(CLUSTER, &web).await.unwrap().is_some(), "{kind}");
        let error = process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        assert!(error.is_in_progress(), "{kind}: {error}");
        assert!(process.get(CLUSTER, &web).await.unwrap().is_some(), "{kind}");
        bed.delete(&*process, &web).await;
        assert_eq!(shape_of(&bed), empty, "{kind}");
        assert_eq!(process.get(CLUSTER, &web).await.unwrap(), None, "{kind}");
        bed.check();
    }
}

/// Upstream asks AWS for nothing then, so its role may lack the permission.
#[tokio::test]
async fn the_deletion_of_a_service_of_another_controller_reads_only_whether_its_name_has_a_balancer() {
    let bed = Bed::start("");
    let web = of_kind("web", "external", &[]);
    for denied in [false, true] {
        let process = bed.process().await;
        if denied {
            bed.aws.fault(Rule { action: Some("DescribeLoadBalancers".to_owned()), ..Rule::every(Fault::Deny) });
        }
        let mark = bed.aws.mark();
        process.ensure_deleted(CLUSTER, &web).await.unwrap();
        let mut calls = bed.aws.ledger(|ledger| ledger.counts(mark));
        // For the credentials.
        calls.retain(|call, _| !call.starts_with("imds:"));
        let both = ["elb:DescribeLoadBalancers", "elbv2:DescribeLoadBalancers"];
        assert_eq!(calls, both.map(|call| (call.to_owned(), 1)).into());
    }
    bed.check();
}

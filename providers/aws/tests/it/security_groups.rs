//! Security groups over HTTP, for both kinds of balancers: shared groups, named groups, groups of the user.

use std::time::Duration;

use ccm_cloudsim::aws::ec2::model::{Peer, Rule};
use ccm_cloudsim::core::faults::{self, Fault, Faults};
use ccm_provider::{LoadBalancerExt as _, Service};
use futures::future::join_all;
use serde_json::json;

use crate::bed::{Bed, CLUSTER, USER_GROUP, service, shape_of};
use crate::leader::watched;

fn desired(name: &str, annotations: &[(&str, &str)], node_port: i32) -> Service {
    service(name, annotations, &[(80, node_port)], json!({}))
}

fn classic() -> Service {
    desired("web", &[], 31080)
}

/// The managed group of the classic balancer.
fn managed(bed: &Bed) -> String {
    bed.aws.world(|world| {
        let mut groups = world.ec2.groups.iter();
        groups.find(|(_, group)| group.name.starts_with("k8s-elb-")).unwrap().0.clone()
    })
}

fn rule(protocol: &str, port: Option<i64>, group: &str) -> Rule {
    Rule {
        id: format!("sgr-{group}-{protocol}"),
        protocol: protocol.to_owned(),
        from: port,
        to: port,
        peer: Peer::Group(group.to_owned()),
        description: None,
    }
}

/// Rules of a group as text.
fn rules(bed: &Bed, group: &str) -> Vec<String> {
    let text = |rule: &Rule| {
        let peer = match &rule.peer {
            Peer::V4(text) | Peer::V6(text) | Peer::Group(text) | Peer::Prefix(text) => text,
        };
        let description = rule.description.as_deref().unwrap_or_default();
        format!("{} {:?} {peer} {description}", rule.protocol, rule.from).trim().to_owned()
    };
    let mut rules: Vec<String> = bed.aws.world(|world| world.ec2.groups[group].ingress.iter().map(text).collect());
    rules.sort();
    rules
}

/// The balancer has all groups then, and no annotation names those of the user.
#[tokio::test]
async fn a_deletion_after_an_interrupted_change_of_groups_leaves_no_rule() {
    const SECOND: &str = "sg-0a0b0c0d0e0f00002";
    for named in [USER_GROUP.to_owned(), format!("{USER_GROUP},{SECOND}"), format!("{SECOND},{USER_GROUP}")] {
        let bed = Bed::start("");
        bed.add_group(USER_GROUP, None, Vec::new());
        bed.add_group(SECOND, None, Vec::new());
        let web = |annotations: &[(&str, &str)]| service("web", annotations, &[(80, 31080)], json!({}));
        bed.ensure(&*bed.process().await, &web(&[("security-groups", &*named)])).await;
        let denied = faults::Rule::every(Fault::Deny).on("ec2", "AuthorizeSecurityGroupIngress");
        bed.aws.fault(faults::Rule { params: Some("FromPort=80".to_owned()), ..denied });
        bed.process().await.ensure(CLUSTER, &web(&[]), &bed.nodes).await.unwrap_err();
        let attached = bed.aws.world(|world| world.elb.balancers.values().map(|one| one.groups.len()).sum::<usize>());
        assert_eq!(attached, named.split(',').count() + 1);
        bed.aws.faults(Faults::clear);
        bed.delete(&*bed.process().await, &web(&[])).await;
        let of_nodes = rules(&bed, &bed.network.node_group);
        assert!(!of_nodes.iter().any(|rule| rule.starts_with("-1 None sg-")), "{named}: {of_nodes:?}");
        bed.check();
    }
}

/// Nobody can tell it from the group of an interrupted change.
#[tokio::test]
async fn of_a_group_that_was_attached_by_hand_a_deletion_closes_the_same_rule_as_a_sync() {
    for goes in [true, false] {
        let bed = Bed::start("");
        let (nodes, foreign) = (bed.network.node_group.clone(), "sg-0123456789abcdef0");
        bed.add_group(USER_GROUP, None, Vec::new());
        bed.add_group(foreign, None, vec![rule("-1", None, USER_GROUP)]);
        let process = bed.process().await;
        bed.ensure(&*process, &classic()).await;
        bed.aws.world(|world| {
            world.elb.balancers.values_mut().next().unwrap().groups.push(USER_GROUP.to_owned());
            let theirs = [rule("-1", None, USER_GROUP), rule("tcp", Some(22), USER_GROUP)];
            world.ec2.groups.get_mut(&nodes).unwrap().ingress.extend(theirs);
        });
        bed.aws.clock().step(Duration::from_secs(60));
        match goes {
            true => bed.delete(&*process, &classic()).await,
            false => drop(bed.ensure(&*process, &classic()).await),
        }
        let mut left = rules(&bed, &nodes);
        left.retain(|rule| rule.contains(USER_GROUP));
        assert_eq!(left, [format!("tcp Some(22) {USER_GROUP}")], "deleted: {goes}");
        assert_eq!(rules(&bed, foreign), [format!("-1 None {USER_GROUP}")], "deleted: {goes}");
        bed.check();
    }
}

/// Refused, or too many for the quota: clients would be cut off.
#[tokio::test]
async fn a_balancer_keeps_the_group_of_the_user_until_all_rules_of_its_managed_one_are_open() {
    for (kind, is_full) in [("clb", false), ("clb", true), ("nlb", false), ("nlb", true)] {
        let what = format!("{kind}, full: {is_full}");
        let bed = Bed::start("NLBSecurityGroupMode = Managed");
        bed.add_group(USER_GROUP, None, Vec::new());
        let limit = |rules| bed.aws.change(|options| options.limits.rules_per_group = rules);
        limit(1000);
        let ranges: Vec<String> = (0..40).map(|number| format!("10.{number}.0.0/16")).collect();
        let web = |annotations: &[(&str, &str)]| {
            let spec = json!({"loadBalancerSourceRanges": ranges});
            service("web", &[annotations, &[("type", kind)]].concat(), &[(80, 31080), (81, 31081)], spec)
        };
        bed.ensure(&*bed.process().await, &web(&[("security-groups", USER_GROUP)])).await;
        match is_full {
            true => limit(60),
            false => {
                let denied = faults::Rule::every(Fault::Deny).on("ec2", "AuthorizeSecurityGroupIngress");
                bed.aws.fault(faults::Rule { params: Some("FromPort=80".to_owned()), ..denied });
            }
        }
        let attached = || -> Vec<String> {
            bed.aws.world(|world| {
                let classic = world.elb.balancers.values().flat_map(|one| &one.groups);
                classic.chain(world.elbv2.balancers.values().flat_map(|one| &one.groups)).cloned().collect()
            })
        };
        let process = bed.process().await;
        for _ in 0..2 {
            process.ensure(CLUSTER, &web(&[]), &bed.nodes).await.unwrap_err();
            assert!(attached().iter().any(|id| id == USER_GROUP), "{what}: {:?}", attached());
            let of_nodes = rules(&bed, &bed.network.node_group);
            assert!(kind == "nlb" || of_nodes.contains(&format!("-1 None {USER_GROUP}")), "{what}: {of_nodes:?}");
        }
        bed.aws.faults(Faults::clear);
        limit(1000);
        bed.ensure(&*bed.process().await, &web(&[])).await;
        let managed = |id: &String| bed.aws.world(|world| world.ec2.groups[id].name.starts_with("k8s-"));
        assert!(attached().len() == 1 && attached().iter().all(managed), "{what}: {:?}", attached());
        let of_nodes = rules(&bed, &bed.network.node_group);
        assert!(!of_nodes.contains(&format!("-1 None {USER_GROUP}")), "{what}: {of_nodes:?}");
        bed.check();
    }
}

/// That is how a user lets in the clients whose rules have no room.
#[tokio::test]
async fn a_group_of_the_user_is_added_to_a_classic_balancer_whose_managed_one_is_full() {
    let bed = Bed::start("");
    bed.add_group(USER_GROUP, None, Vec::new());
    bed.aws.change(|options| options.limits.rules_per_group = 60);
    let ranges: Vec<String> = (0..40).map(|number| format!("10.{number}.0.0/16")).collect();
    let process = bed.process().await;
    for annotations in [&[][..], &[("extra-security-groups", USER_GROUP)]] {
        let spec = json!({"loadBalancerSourceRanges": ranges});
        let web = service("web", annotations, &[(80, 31080), (81, 31081)], spec);
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("no room for"), "{error}");
        bed.aws.clock().step(Duration::from_secs(60));
    }
    let attached = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().groups.clone());
    assert_eq!(attached.iter().map(String::as_str).collect::<Vec<_>>(), [&*managed(&bed), USER_GROUP]);
}

#[tokio::test]
async fn a_group_without_tags_that_refers_to_ours_does_not_keep_it_alive() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &classic()).await;
    let lb = managed(&bed);
    bed.add_group("sg-0123456789abcdef0", None, vec![rule("-1", None, &lb), rule("-1", None, &bed.network.node_group)]);
    bed.delete(&*process, &classic()).await;
    assert_eq!(rules(&bed, "sg-0123456789abcdef0"), [format!("-1 None {}", bed.network.node_group)]);
    assert!(!bed.aws.world(|world| world.ec2.groups.contains_key(&lb)));
    bed.check();
}

/// A role that may only change groups with the cluster's tag.
#[tokio::test]
async fn a_classic_balancer_goes_although_a_rule_that_refers_to_its_group_cannot_be_revoked() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &classic()).await;
    let lb = managed(&bed);
    let plain = "sg-0123456789abcdef0";
    bed.add_group(plain, None, vec![rule("-1", None, &lb)]);
    let denied = faults::Rule::every(Fault::Deny).on("ec2", "RevokeSecurityGroupIngress");
    bed.aws.fault(faults::Rule { params: Some(plain.to_owned()), ..denied });
    bed.aws.clock().step(Duration::from_secs(60));
    let error = process.ensure_deleted(CLUSTER, &classic()).await.unwrap_err().to_string();
    assert!(error.contains("ec2:RevokeSecurityGroupIngress"), "{error}");
    assert_eq!(bed.aws.world(|world| world.elb.balancers.len()), 0);
    assert_eq!(rules(&bed, &bed.network.node_group), [""; 0]);
    bed.aws.faults(Faults::clear);
    bed.delete(&*process, &classic()).await;
    assert!(!bed.aws.world(|world| world.ec2.groups.contains_key(&lb)));
    bed.check();
}

/// Upstream retries the deletion every five seconds forever, without a message.
#[tokio::test]
async fn a_rule_of_the_users_that_keeps_our_group_alive_is_named_and_left_alone() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &classic()).await;
    let lb = managed(&bed);
    bed.add_group("sg-0123456789abcdef0", None, vec![rule("tcp", Some(22), &lb)]);
    let mut held = String::new();
    for _ in 0..30 {
        match process.ensure_deleted(CLUSTER, &classic()).await {
            Ok(()) => panic!("EC2 deletes no group that is referred to"),
            Err(error) => held = error.to_string(),
        }
        bed.aws.clock().step(Duration::from_secs(10));
    }
    assert!(held.contains(&lb) && held.contains("sg-0123456789abcdef0"), "{held}");
    assert_eq!(rules(&bed, "sg-0123456789abcdef0"), [format!("tcp Some(22) {lb}")]);
    // The user follows the advice of the message.
    bed.aws.world(|world| world.ec2.groups.get_mut("sg-0123456789abcdef0").unwrap().ingress.clear());
    bed.delete(&*process, &classic()).await;
    assert!(!bed.aws.world(|world| world.ec2.groups.contains_key(&lb)));
    bed.check();
}

#[tokio::test]
async fn a_group_shared_with_the_cluster_survives_and_the_event_says_so() {
    let bed = Bed::start("");
    let (process, cluster) = watched(&bed).await;
    bed.ensure(&*process, &classic()).await;
    let lb = managed(&bed);
    bed.aws.world(|world| {
        let tags = &mut world.ec2.groups.get_mut(&lb).unwrap().tags;
        tags.insert("kubernetes.io/cluster/c1".to_owned(), "shared".to_owned());
    });
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &classic()).await;
    let summary =
        cluster.take_events().into_iter().filter(|event| event.contains("not deleted") && event.contains(&lb));
    assert_eq!(summary.count(), 1);
    assert!(bed.aws.world(|world| world.ec2.groups.contains_key(&lb)));
    assert_eq!(rules(&bed, &bed.network.node_group), Vec::<String>::new());
    bed.check();
}

/// Network balancers that probe the same port from the same networks share rules, with the first one's name.
#[tokio::test]
async fn health_checks_of_one_balancer_survive_the_other() {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let nodes = bed.network.node_group.clone();
    let process = bed.process().await;
    let (first, second) = (desired("first", &[("type", "nlb")], 31001), desired("second", &[("type", "nlb")], 31002));
    bed.ensure(&*process, &first).await;
    let alone = rules(&bed, &nodes);
    bed.ensure(&*process, &second).await;
    let probes = |bed: &Bed| rules(bed, &nodes).iter().filter(|rule| rule.contains("10256")).count();
    assert_eq!(probes(&bed), 2, "one for each subnet: {:?}", rules(&bed, &nodes));
    let mark = bed.aws.mark();
    bed.delete(&*process, &first).await;
    // The health-check rule always exists, without a gap.
    let revoked = bed.aws.ledger(|ledger| {
        let revokes = ledger.mutating(mark).filter(|entry| entry.action == "RevokeSecurityGroupIngress");
        revokes.filter(|entry| format!("{entry:?}").contains("10256")).count()
    });
    assert_eq!(revoked, 0);
    assert!(bed.writes(mark).contains(&"UpdateSecurityGroupRuleDescriptionsIngress".to_owned()));
    assert_eq!(probes(&bed), 2, "{:?}", rules(&bed, &nodes));
    let name = second.default_load_balancer_name();
    assert!(
        rules(&bed, &nodes).iter().all(|rule| rule.ends_with(&name) || rule.contains("/mtu")),
        "{:?}",
        rules(&bed, &nodes)
    );
    let mark = bed.aws.mark();
    bed.ensure(&*process, &second).await;
    assert_eq!(bed.writes(mark), Vec::<String>::new());
    bed.delete(&*process, &second).await;
    assert_eq!(rules(&bed, &nodes), Vec::<String>::new());
    assert_eq!(alone.len(), 4, "client, two probes, mtu: {alone:?}");
    bed.check();
}

#[tokio::test]
async fn disabled_ingress_leaves_the_groups_of_the_nodes_alone() {
    let bed = Bed::start("DisableSecurityGroupIngress = true");
    let process = bed.process().await;
    for service in [classic(), desired("nlb", &[("type", "nlb")], 31001)] {
        bed.ensure(&*process, &service).await;
        assert_eq!(rules(&bed, &bed.network.node_group), Vec::<String>::new());
        bed.delete(&*process, &service).await;
    }
    bed.check();
}

/// All network balancers share the rules for "fragmentation needed".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deletions_and_creations_side_by_side_leave_the_rules_of_those_that_stay() {
    let bed = Bed::start("");
    let nodes = bed.network.node_group.clone();
    let (process, _cluster) = watched(&bed).await;
    let names = ["one", "two", "three", "four"];
    let services: Vec<Service> =
        names.iter().zip(31001..).map(|(name, port)| desired(name, &[("type", "nlb")], port)).collect();
    let ensure = |service: &Service| {
        let (process, service, nodes) = (process.clone(), service.clone(), bed.nodes.clone());
        tokio::spawn(async move { process.ensure(CLUSTER, &service, &nodes).await.map(drop) })
    };
    let delete = |service: &Service| {
        let (process, service) = (process.clone(), service.clone());
        tokio::spawn(async move { process.ensure_deleted(CLUSTER, &service).await })
    };
    let settled = || bed.aws.clock().step(Duration::from_secs(60));
    // Reads take longer than the time between two plans.
    for round in 0..5 {
        for answer in join_all([ensure(&services[0]), ensure(&services[1])]).await {
            answer.unwrap().unwrap();
        }
        settled();
        // Two are deleted while one is created.
        for answer in join_all([delete(&services[0]), ensure(&services[2]), delete(&services[1])]).await {
            answer.unwrap().unwrap();
        }
        let now = rules(&bed, &nodes);
        let name = services[2].default_load_balancer_name();
        assert_eq!(now.len(), 2, "round {round}: {now:?}");
        assert!(now[0].starts_with("icmp") && now[1].ends_with(&name), "round {round}: {now:?}");
        settled();
        // All are deleted at once.
        bed.ensure(&*process, &services[3]).await;
        settled();
        for answer in join_all([delete(&services[2]), delete(&services[3])]).await {
            answer.unwrap().unwrap();
        }
        assert_eq!(rules(&bed, &nodes), Vec::<String>::new(), "round {round}");
        settled();
    }
    bed.check();
}

#[tokio::test]
async fn rules_for_fragments_that_were_left_behind_go_with_the_next_deletion() {
    let bed = Bed::start("");
    let nodes = bed.network.node_group.clone();
    let process = bed.process().await;
    bed.ensure(&*process, &classic()).await;
    bed.aws.world(|world| {
        let left = Rule {
            id: "sgr-0123456789abcdef9".to_owned(),
            protocol: "icmp".to_owned(),
            from: Some(3),
            to: Some(4),
            peer: Peer::V4("0.0.0.0/0".to_owned()),
            description: Some("kubernetes.io/rule/nlb/mtu".to_owned()),
        };
        world.ec2.groups.get_mut(&nodes).unwrap().ingress.push(left);
    });
    bed.delete(&*bed.process().await, &classic()).await;
    assert_eq!(rules(&bed, &nodes), Vec::<String>::new());
    bed.check();
}

/// A refused write is not sent again for an hour.
#[tokio::test(flavor = "multi_thread")]
async fn a_refused_read_before_a_rule_does_not_stand_for_the_rule() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let ports = |port| service("web", &[("type", "nlb")], &[(80, port)], json!({}));
    bed.ensure(&*process, &ports(31080)).await;
    let code =
        Fault::Code { status: 400, code: "InvalidParameterValue".to_owned(), message: "as the test says".to_owned() };
    // The read of one group, just before its rules are changed.
    bed.aws.fault(faults::Rule {
        params: Some("Filter.1.Name=group-id".to_owned()),
        ..faults::Rule::every(code).on("ec2", "DescribeSecurityGroups")
    });
    let error = process.ensure(CLUSTER, &ports(31090), &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("as the test says"), "{error}");
    bed.aws.faults(Faults::clear);
    bed.ensure(&*process, &ports(31090)).await;
}

/// This program and upstream write no description to the rule for a classic balancer.
#[tokio::test]
async fn a_described_rule_for_a_group_of_the_user_outlives_the_balancers_with_the_group() {
    for goes in [true, false] {
        let bed = Bed::start("");
        let nodes = bed.network.node_group.clone();
        bed.add_group(USER_GROUP, None, Vec::new());
        let theirs = Rule { description: Some("terraform".to_owned()), ..rule("-1", None, USER_GROUP) };
        bed.aws.world(|world| world.ec2.groups.get_mut(&nodes).unwrap().ingress.push(theirs));
        let process = bed.process().await;
        let web = desired("web", &[("security-groups", USER_GROUP)], 31080);
        bed.ensure(&*process, &web).await;
        bed.aws.clock().step(Duration::from_secs(60));
        match goes {
            true => bed.delete(&*process, &web).await,
            false => drop(bed.ensure(&*process, &classic()).await),
        }
        let described = rules(&bed, &nodes).into_iter().filter(|rule| rule.ends_with("terraform")).count();
        assert_eq!(described, 1, "{:?}", rules(&bed, &nodes));
        bed.check();
    }
}

/// Other balancers probe the port, but not in this group.
#[tokio::test]
async fn a_group_that_its_last_node_leaves_keeps_no_rule_for_shared_health_checks() {
    let mut bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let second = "sg-0123456789abcdef0";
    bed.add_group(second, Some("owned"), Vec::new());
    bed.add_nodes(1);
    bed.set_groups(3, &[second]);
    let (process, cluster) = watched(&bed).await;
    cluster.set_nodes(bed.nodes.clone());
    let all = [desired("first", &[("type", "nlb")], 31001), desired("second", &[("type", "nlb")], 31002)];
    for service in &all {
        bed.ensure(&*process, service).await;
    }
    let probes = |bed: &Bed, group: &str| rules(bed, group).iter().filter(|rule| rule.contains("10256")).count();
    assert_eq!((probes(&bed, &bed.network.node_group), probes(&bed, second)), (2, 2));
    bed.nodes.pop();
    cluster.set_nodes(bed.nodes.clone());
    for service in &all {
        bed.aws.clock().step(Duration::from_secs(70));
        process.update(CLUSTER, service, &bed.nodes).await.unwrap();
    }
    assert_eq!(rules(&bed, second), [""; 0]);
    assert_eq!(probes(&bed, &bed.network.node_group), 2);
    bed.check();
}

/// A network balancer with a group that was named with another `--cluster-name`.
async fn renamed() -> (Bed, Vec<String>, Service) {
    let bed = Bed::start("NLBSecurityGroupMode = Managed");
    let (empty, web) = (shape_of(&bed), service("web", &[("type", "nlb")], &[(80, 31080)], json!({})));
    bed.process().await.ensure("before", &web, &bed.nodes).await.unwrap();
    bed.later(Duration::from_secs(60)).await;
    (bed, empty, web)
}

/// Its interfaces keep the group for some time.
#[tokio::test]
async fn a_group_from_before_a_change_of_the_cluster_name_goes_with_its_balancer() {
    for is_restarted in [false, true] {
        let (bed, empty, web) = renamed().await;
        let mut process = bed.process().await;
        let error = process.ensure_deleted(CLUSTER, &web).await.unwrap_err();
        assert!(error.is_in_progress(), "{error}");
        if is_restarted {
            process = bed.process().await;
        }
        bed.delete(&*process, &web).await;
        assert_eq!(shape_of(&bed), empty, "restarted: {is_restarted}");
        bed.check();
    }
}

#[tokio::test]
async fn a_group_from_before_a_change_of_the_cluster_name_goes_after_its_successor_has_come() {
    let (bed, empty, web) = renamed().await;
    let in_use = Fault::Code { status: 400, code: "DependencyViolation".to_owned(), message: String::new() };
    bed.aws.fault(faults::Rule::every(in_use).on("ec2", "DeleteSecurityGroup").window(0, 1));
    bed.ensure(&*bed.process().await, &web).await;
    let groups = bed.aws.world(|world| world.ec2.groups.values().filter(|one| one.name.starts_with("k8s-")).count());
    assert_eq!(groups, 1);
    bed.delete(&*bed.process().await, &web).await;
    assert_eq!(shape_of(&bed), empty);
    bed.check();
}

/// Upstream tags no group after its creation.
#[tokio::test]
async fn a_group_from_before_a_change_of_the_cluster_name_that_cannot_be_tagged_keeps_no_balancer() {
    let code = |code: &str| Fault::Code { status: 400, code: code.to_owned(), message: String::new() };
    for (fault, text) in [
        (Fault::Deny, "ec2:CreateTags"),
        (code("TagLimitExceeded"), "TagLimitExceeded"),
        (code("TagPolicyViolation"), "TagPolicyViolation"),
    ] {
        let (bed, _, web) = renamed().await;
        bed.aws.fault(faults::Rule::every(fault).on("ec2", "CreateTags"));
        let (process, cluster) = watched(&bed).await;
        bed.delete(&*process, &web).await;
        assert_eq!(bed.aws.world(|world| world.elbv2.balancers.len()), 0, "{text}");
        let events = cluster.take_events();
        assert!(events.iter().any(|event| event.contains(text)), "{text}: {events:?}");
        bed.check();
    }
}

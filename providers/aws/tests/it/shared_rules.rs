//! Rules of security groups that Services share.

use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws::World;
use ccm_cloudsim::aws::ec2::model::Peer;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::core::lag::Lag;
use ccm_provider::{LoadBalancer, LoadBalancerExt as _, Service, ServiceAction, ServiceWork};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, USER_GROUP, service, unknown};
use crate::claims::{of_kind, rules};

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

/// The former one closes its rules late: its new settings are refused for a while, or it is deleted late.
#[tokio::test]
async fn a_node_port_that_moves_to_another_service_stays_open_to_its_clients() {
    let refusals = [None, Some(Fault::Deny), Some(unknown())];
    for (refusal, goes) in refusals.into_iter().flat_map(|refusal| [(refusal.clone(), true), (refusal, false)]) {
        let what = format!("renames are refused: {refusal:?}, deleted: {goes}");
        let bed = Bed::start("");
        let process = bed.process().await;
        if let Some(refusal) = refusal {
            bed.aws.fault(Rule::every(refusal).on("ec2", "UpdateSecurityGroupRuleDescriptionsIngress"));
        }
        let web = |name: &str, port| service(name, &[("type", "nlb")], &[(80, port)], json!({}));
        bed.ensure(&*process, &web("one", 31080)).await;
        bed.ensure(&*process, &web("two", 31080)).await;
        bed.aws.clock().step(Duration::from_secs(60));
        match goes {
            true => bed.delete(&*process, &web("one", 31080)).await,
            false => drop(bed.ensure(&*process, &web("one", 31090)).await),
        }
        let open = |port: i64| {
            let is_it = |world: &mut World| {
                let rules = world.ec2.groups[&bed.network.node_group].ingress.iter();
                rules.filter(|rule| rule.from == Some(port)).count()
            };
            bed.aws.world(is_it)
        };
        let mtu = || open(3);
        assert_eq!((open(31080), open(31090), mtu()), (1, usize::from(!goes), 1), "{what}");
        bed.aws.clock().step(Duration::from_secs(60));
        let mark = bed.aws.mark();
        bed.ensure(&*process, &web("two", 31080)).await;
        assert_eq!(bed.writes(mark), [""; 0], "{what}");
        bed.delete(&*process, &web("two", 31080)).await;
        assert_eq!((open(31080), mtu()), (0, usize::from(!goes)), "{what}");
        bed.check();
    }
}

/// EC2 still shows the rule of the former one, which is closed.
#[tokio::test]
async fn a_node_port_that_another_service_gets_at_once_is_looked_at_again() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let [one, two] = ["one", "two"].map(|name| of_kind(name, "nlb", &[]));
    bed.ensure(&*process, &one).await;
    bed.aws.clock().step(Duration::from_secs(60));
    let nodes = &bed.network.node_group;
    let shown = bed.aws.world(|world| world.ec2.groups[nodes].ingress.clone());
    process.ensure_deleted(CLUSTER, &one).await.unwrap();
    bed.aws.world(|world| world.ec2.groups.get_mut(nodes).unwrap().ingress = shown);
    for (after, again) in [(0, Some(Duration::from_secs(2))), (60, None)] {
        bed.aws.clock().step(Duration::from_secs(after));
        let came = process.reconcile_one(CLUSTER, &two, &bed.nodes, ServiceAction::Ensure).await;
        came.result.unwrap();
        assert_eq!(came.again, again, "{after} s later");
    }
    bed.check();
}

/// The new one has its own rule, for fewer clients.
#[tokio::test]
async fn a_node_port_that_moves_to_another_service_is_closed_to_clients_of_the_former_one() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let few = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let (one, two) = (of_kind("one", "nlb", &[]), service("two", &[("type", "nlb")], &[(80, 31080)], few));
    bed.ensure(&*process, &one).await;
    bed.ensure(&*process, &two).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &one).await;
    let open = bed.aws.world(|world| {
        let rules = world.ec2.groups[&bed.network.node_group].ingress.iter();
        let of_port = rules.filter(|rule| rule.from == Some(31080)).map(|rule| rule.peer.clone());
        of_port.filter(|peer| *peer == Peer::V4("0.0.0.0/0".to_owned())).count()
    });
    assert_eq!(open, 0);
    bed.check();
}

/// Two network balancers whose health checks share a rule, a minute later.
async fn with_one_health_check() -> (Bed, Arc<dyn LoadBalancer>, Service, Service) {
    let bed = Bed::start("ClusterServiceLoadBalancerHealthProbeMode = Shared");
    let process = bed.process().await;
    let ranges = json!({"loadBalancerSourceRanges": ["192.168.0.0/16"]});
    let one = service("one", &[("type", "nlb")], &[(80, 31080)], ranges.clone());
    let two = service("two", &[("type", "nlb")], &[(80, 31081)], ranges);
    bed.ensure(&*process, &one).await;
    bed.ensure(&*process, &two).await;
    bed.aws.clock().step(Duration::from_secs(60));
    (bed, process, one, two)
}

/// The number of rules of the nodes' group for health checks.
fn health_rules(bed: &Bed) -> usize {
    let is_it = |world: &mut World| {
        let rules = &world.ec2.groups[&bed.network.node_group].ingress;
        rules.iter().filter(|rule| rule.from == Some(10256)).count()
    };
    bed.aws.world(is_it)
}

/// The rule keeps the name of the deleted balancer, and goes with the last one that needs it.
#[tokio::test]
async fn a_health_rule_that_cannot_be_renamed_keeps_no_deletion_from_ending() {
    let (bed, process, one, two) = with_one_health_check().await;
    bed.aws.fault(Rule::every(Fault::Deny).on("ec2", "UpdateSecurityGroupRuleDescriptionsIngress"));
    bed.delete(&*process, &one).await;
    assert_eq!(health_rules(&bed), 2);
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &two).await;
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
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
        assert_eq!(health_rules(&bed), 2, "{action:?}");
        bed.aws.clock().step(Duration::from_secs(60));
        bed.delete(&*process, &two).await;
        assert_eq!(rules(&bed, &bed.network.node_group), 0, "{action:?}");
        bed.check();
    }
}

/// Without that, each would keep the rule for the other.
#[tokio::test]
async fn balancers_with_one_health_check_that_are_deleted_at_once_leave_no_rule() {
    let (bed, process, one, two) = with_one_health_check().await;
    futures::join!(bed.delete(&*process, &one), bed.delete(&*process, &two));
    assert_eq!(rules(&bed, &bed.network.node_group), 0);
    bed.check();
}

/// "Not shown" is not "none": it may be in any subnet.
#[tokio::test]
async fn a_health_rule_is_kept_for_a_balancer_that_is_shown_without_its_subnets() {
    let (bed, process, one, two) = with_one_health_check().await;
    let name = two.default_load_balancer_name();
    bed.aws.world(|world| {
        let other = world.elbv2.balancers.values_mut().find(|balancer| balancer.name == name);
        other.unwrap().subnets.clear();
    });
    bed.delete(&*process, &one).await;
    assert_eq!(health_rules(&bed), 2);
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

//! Objects that are full, and calls that AWS refuses because of one object among many.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::aws::ec2::model::{self, Peer};
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use futures::future::join_all;
use serde_json::json;

use crate::bed::{Bed, CERTIFICATE, CLUSTER, service};
use crate::leader::watched;

fn of_kind(name: &str, kind: &str, ports: &[(i32, i32)]) -> Service {
    service(name, &[("type", kind)], ports, json!({}))
}

fn code(code: &str, message: &str) -> Fault {
    Fault::Code { status: 400, code: code.to_owned(), message: message.to_owned() }
}

/// Networks of the rules for TCP in the managed group.
fn clients(bed: &Bed) -> BTreeSet<String> {
    bed.aws.world(|world| {
        let group = world.ec2.groups.values().find(|group| group.name.starts_with("k8s-")).unwrap();
        let tcp = group.ingress.iter().filter(|rule| rule.protocol == "tcp");
        let network = |peer: &Peer| match peer {
            Peer::V4(network) => network.clone(),
            Peer::V6(_) | Peer::Group(_) | Peer::Prefix(_) => String::new(),
        };
        tcp.map(|rule| network(&rule.peer)).collect()
    })
}

/// Each range has a rule for the port and one for ICMP, without which it serves too.
#[tokio::test]
async fn forty_source_ranges_of_a_full_group_are_replaced_by_forty_others() {
    for kind in ["nlb", "clb"] {
        for limit in [60, 80] {
            let bed = Bed::start("NLBSecurityGroupMode = Managed");
            bed.aws.change(|options| options.limits.rules_per_group = limit);
            let ranges = |first: usize| -> Vec<String> {
                (first..first + 40).map(|number| format!("10.{number}.0.0/16")).collect()
            };
            let web = |ranges: &[String]| {
                let spec = json!({"loadBalancerSourceRanges": ranges});
                service("web", &[("type", kind)], &[(80, 31080)], spec)
            };
            let process = bed.process().await;
            for first in [0, 100] {
                let ranges = ranges(first);
                process.ensure(CLUSTER, &web(&ranges), &bed.nodes).await.unwrap();
                assert_eq!(clients(&bed), ranges.into_iter().collect(), "{kind} {limit}");
                bed.aws.clock().step(Duration::from_secs(60));
            }
            bed.delete(&*process, &web(&[])).await;
            let left = bed.aws.world(|world| {
                let managed = world.ec2.groups.values().filter(|group| group.name.starts_with("k8s-")).count();
                managed + world.ec2.groups[&bed.network.node_group].ingress.len()
            });
            assert_eq!(left, 0, "{kind} {limit}");
        }
    }
}

/// The writes of all Services, and the changes of the group, come one after the other.
#[tokio::test]
async fn a_group_without_any_room_costs_each_service_four_refusals() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.limits.rules_per_group = 5);
    let foreign = |number: i64| model::Rule {
        id: format!("sgr-{number}"),
        protocol: "tcp".to_owned(),
        from: Some(number),
        to: Some(number),
        peer: Peer::V4("203.0.113.0/24".to_owned()),
        description: None,
    };
    bed.aws.world(|world| {
        world.ec2.groups.get_mut(&bed.network.node_group).unwrap().ingress = (1..=5).map(foreign).collect();
    });
    let process = bed.process().await;
    let ranges: Vec<String> = (0..30).map(|number| format!("10.{number}.0.0/16")).collect();
    for name in ["a", "b", "a"] {
        let web = service(name, &[("type", "nlb")], &[(80, 31080)], json!({"loadBalancerSourceRanges": ranges}));
        let mark = bed.aws.mark();
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("no room for") && error.contains(&bed.network.node_group), "{error}");
        let refused = bed.writes(mark).iter().filter(|write| *write == "AuthorizeSecurityGroupIngress").count();
        assert!(refused <= 4, "{name}: {refused}");
        bed.aws.clock().step(Duration::from_secs(60));
    }
    // Somebody makes room, but not enough for a port: for single clients.
    bed.aws.world(|world| drop(world.ec2.groups.get_mut(&bed.network.node_group).unwrap().ingress.drain(..3)));
    let web = service("a", &[("type", "nlb")], &[(80, 31080)], json!({"loadBalancerSourceRanges": ranges}));
    process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err();
    assert_eq!(at_nodes(&bed).len(), 5);
}

/// The rules of the nodes' group as text, without those that name a group.
fn at_nodes(bed: &Bed) -> Vec<String> {
    bed.aws.world(|world| {
        let rules = world.ec2.groups[&bed.network.node_group].ingress.iter();
        let text = |rule: &model::Rule| match &rule.peer {
            Peer::V4(network) => Some(format!("{} {} {network}", rule.protocol, rule.from.unwrap_or_default())),
            Peer::V6(_) | Peer::Group(_) | Peer::Prefix(_) => None,
        };
        rules.filter_map(text).collect()
    })
}

fn with_ranges(name: &str, ports: &[(i32, i32)], count: usize) -> Service {
    let ranges: Vec<String> = (0..count).map(|number| format!("10.{number}.0.0/16")).collect();
    service(name, &[("type", "nlb")], ports, json!({"loadBalancerSourceRanges": ranges}))
}

#[tokio::test]
async fn a_service_that_does_not_fit_takes_no_room_from_the_others() {
    let bed = Bed::start("");
    // Each port has 28 networks of clients and 2 of health checks.
    bed.aws.change(|options| options.limits.rules_per_group = 50);
    let process = bed.process().await;
    let many = with_ranges("many", &[(80, 31080), (443, 31443)], 28);
    let error = process.ensure(CLUSTER, &many, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("no room for tcp 31443 from 10.27.0.0/16"), "{error}");
    let rules = at_nodes(&bed);
    assert_eq!((count(&rules, "tcp 31080"), count(&rules, "tcp 31443")), (30, 20), "{rules:?}");
    let (web, clb) = (of_kind("web", "nlb", &[(80, 31081)]), of_kind("clb", "clb", &[(80, 31082)]));
    bed.ensure(&*process, &web).await;
    bed.ensure(&*process, &clb).await;
    let rules = at_nodes(&bed);
    assert!(rules.contains(&"tcp 31081 0.0.0.0/0".to_owned()), "{rules:?}");
    assert_eq!(bed.aws.world(|world| world.ec2.groups[&bed.network.node_group].ingress.len()), 50);
    assert_eq!(count(&rules, "tcp 31443"), 18, "{rules:?}");
    let mark = bed.aws.mark();
    for service in [&web, &clb, &many] {
        bed.aws.clock().step(Duration::from_secs(60));
        bed.delete(&*process, service).await;
    }
    assert!(!bed.writes(mark).contains(&"AuthorizeSecurityGroupIngress".to_owned()));
    assert_eq!(bed.aws.world(|world| world.ec2.groups[&bed.network.node_group].ingress.len()), 0);
    bed.check();
}

fn count(rules: &[String], start: &str) -> usize {
    rules.iter().filter(|rule| rule.starts_with(start)).count()
}

/// The health checks of local traffic are on a port of their own, which all ports need.
#[tokio::test]
async fn the_health_checks_of_another_port_make_a_port_whole_and_come_after_clients() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.limits.rules_per_group = 29);
    let mut many = with_ranges("many", &[(80, 31080), (443, 31443)], 28);
    many.spec.external_traffic_policy = "Local".into();
    many.spec.health_check_node_port = 32000;
    let error = bed.process().await.ensure(CLUSTER, &many, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("no room for tcp 31443"), "{error}");
    let counts = || ["tcp 31080", "tcp 31443", "tcp 32000"].map(|start| count(&at_nodes(&bed), start));
    assert_eq!(counts(), [28, 1, 0]);
    bed.aws.change(|options| options.limits.rules_per_group = 31);
    bed.aws.clock().step(Duration::from_secs(60));
    bed.process().await.ensure(CLUSTER, &many, &bed.nodes).await.unwrap_err();
    assert_eq!(counts(), [28, 1, 2]);
}

#[tokio::test]
async fn clients_come_before_health_checks_where_no_port_fits_whole() {
    let ports = [(80, 31080), (81, 31081), (82, 31082)];
    let clients = ["31080", "31081", "31082"];
    // Each port has two networks of clients and two of health checks.
    for (room, expected, checks) in [(1, [1, 0, 0], 0), (3, [2, 1, 0], 0), (7, [2, 2, 1], 2), (9, [2, 2, 1], 4)] {
        let bed = Bed::start("");
        bed.aws.change(|options| options.limits.rules_per_group = room);
        let web = with_ranges("web", &ports, 2);
        let process = bed.process().await;
        for _ in 0..2 {
            process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err();
            let rules = at_nodes(&bed);
            let open = clients.map(|port| rules.iter().filter(|rule| is_client(rule, port)).count());
            assert_eq!((open, rules.len()), (expected, room), "{rules:?}");
            assert_eq!(rules.len() - open.iter().sum::<usize>(), checks, "{rules:?}");
            bed.aws.clock().step(Duration::from_secs(60));
        }
        // With room, it is complete.
        bed.aws.change(|options| options.limits.rules_per_group = 60);
        bed.ensure(&*process, &web).await;
        assert_eq!(count(&at_nodes(&bed), "tcp"), 12, "{room}");
        bed.delete(&*process, &web).await;
        assert_eq!(at_nodes(&bed), [""; 0]);
        bed.check();
    }
}

/// Another process has opened them meanwhile.
#[tokio::test]
async fn rules_that_are_complete_again_make_no_room_for_others() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.limits.rules_per_group = 50);
    let (process, other) = (bed.process().await, bed.process().await);
    let many = with_ranges("many", &[(80, 31080), (443, 31443)], 28);
    process.ensure(CLUSTER, &many, &bed.nodes).await.unwrap_err();
    bed.aws.change(|options| options.limits.rules_per_group = 200);
    bed.ensure(&*other, &many).await;
    // It is planned again after writes for another Service.
    for service in [&of_kind("small", "nlb", &[(80, 31090)]), &many] {
        bed.aws.clock().step(Duration::from_secs(60));
        bed.ensure(&*process, service).await;
    }
    let full = bed.aws.world(|world| world.ec2.groups[&bed.network.node_group].ingress.len());
    bed.aws.change(|options| options.limits.rules_per_group = full);
    let web = process.ensure(CLUSTER, &with_ranges("web", &[(80, 31081)], 40), &bed.nodes).await;
    let rules = at_nodes(&bed);
    assert_eq!((count(&rules, "tcp 31080"), count(&rules, "tcp 31443")), (30, 30), "{rules:?}");
    web.unwrap_err();
}

/// It is not sent to the other target groups.
#[tokio::test]
async fn a_target_that_aws_refuses_is_awaited_in_no_target_group() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[(80, 31080), (81, 31081)]);
    bed.ensure(&*process, &web).await;
    bed.add_nodes(1);
    bed.aws.clock().step(Duration::from_secs(60));
    let id = bed.nodes[3].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
    let unfit = Rule::every(code("InvalidTarget", &format!("The following targets are not valid: '{id}'")));
    bed.aws.fault(Rule { params: Some(id), ..unfit.on("elbv2", "RegisterTargets") });
    for _ in 0..2 {
        process.update(CLUSTER, &web, &bed.nodes).await.unwrap();
    }
}

fn is_client(rule: &str, port: &str) -> bool {
    rule.contains(port) && rule.contains(" 10.") && rule.ends_with(".0.0/16")
}

#[tokio::test]
async fn rules_for_fragmentation_needed_make_room_for_clients() {
    for (limit, networks) in [(42, 20), (16, 2)] {
        let bed = Bed::start("");
        bed.aws.change(|options| options.limits.rules_per_group = limit);
        let (process, cluster) = watched(&bed).await;
        let is_warned = || cluster.take_events().iter().any(|event| event.contains("icmp type 3 code 4"));
        let (many, web) = (with_ranges("many", &[(80, 31080)], networks), with_ranges("web", &[(80, 31081)], 9));
        bed.ensure(&*process, &many).await;
        assert_eq!(count(&at_nodes(&bed), "icmp"), networks, "{limit}");
        assert!(!is_warned(), "{limit}");
        bed.ensure(&*process, &web).await;
        let rules = at_nodes(&bed);
        // Two of each are for health checks.
        assert_eq!(count(&rules, "tcp 31080"), networks + 2, "{limit}: {rules:?}");
        assert_eq!(count(&rules, "tcp 31081"), 11, "{limit}: {rules:?}");
        assert!(rules.len() <= limit, "{limit}: {rules:?}");
        is_warned();
        bed.aws.clock().step(Duration::from_secs(60));
        bed.ensure(&*process, &many).await;
        assert!(is_warned(), "{limit}");
        bed.check();
    }
}

#[tokio::test]
async fn rules_for_fragmentation_needed_stay_if_the_clients_do_not_fit_without_them() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.limits.rules_per_group = 12);
    let process = bed.process().await;
    bed.ensure(&*process, &with_ranges("many", &[(80, 31080)], 2)).await;
    let before = at_nodes(&bed);
    let mark = bed.aws.mark();
    process.ensure(CLUSTER, &with_ranges("web", &[(80, 31081)], 9), &bed.nodes).await.unwrap_err();
    // The clients for whom there is room, and no health check.
    let rules = at_nodes(&bed);
    assert!(before.iter().all(|rule| rules.contains(rule)), "{rules:?}");
    assert_eq!((count(&rules, "tcp 31081"), rules.len()), (6, 12), "{rules:?}");
    assert!(!bed.writes(mark).contains(&"RevokeSecurityGroupIngress".to_owned()));
    bed.check();
}

#[tokio::test]
async fn a_service_opens_no_rule_for_the_clients_of_another() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let (many, web) = (with_ranges("many", &[(80, 31080)], 2), of_kind("web", "nlb", &[(80, 31081)]));
    bed.ensure(&*process, &many).await;
    bed.ensure(&*process, &web).await;
    let is_mtu_of_many = |rule: &model::Rule| rule.protocol == "icmp" && rule.peer != Peer::V4("0.0.0.0/0".to_owned());
    bed.aws.world(|world| {
        world.ec2.groups.get_mut(&bed.network.node_group).unwrap().ingress.retain(|rule| !is_mtu_of_many(rule));
    });
    bed.aws.clock().step(Duration::from_secs(60));
    let mark = bed.aws.mark();
    let process = bed.process().await;
    bed.ensure(&*process, &web).await;
    bed.delete(&*process, &web).await;
    assert!(!bed.writes(mark).contains(&"AuthorizeSecurityGroupIngress".to_owned()));
    bed.ensure(&*process, &many).await;
    assert_eq!(count(&at_nodes(&bed), "icmp"), 2);
    bed.check();
}

/// The first refusal ends the creation of listeners and their target groups, not the changes of other ports.
#[tokio::test]
async fn the_refusal_for_a_limit_is_asked_for_once_in_a_pass() {
    let bed = Bed::start("");
    bed.aws.change(|options| options.limits.network_listeners = 2);
    let process = bed.process().await;
    bed.ensure(&*process, &of_kind("web", "nlb", &[(80, 31080), (8443, 31843)])).await;
    let more = [(80, 31080), (81, 31081), (82, 31082), (83, 31083), (8443, 31844)];
    let mark = bed.aws.mark();
    let error = process.ensure(CLUSTER, &of_kind("web", "nlb", &more), &bed.nodes).await.unwrap_err();
    assert!(error.to_string().contains("TooManyListeners"), "{error}");
    let writes = bed.writes(mark);
    let count = |name: &str| writes.iter().filter(|write| *write == name).count();
    // One for the port that is refused, one for the port that has another node port.
    assert_eq!((count("CreateListener"), count("CreateTargetGroup")), (1, 2), "{writes:?}");
    assert_eq!(count("ModifyListener"), 1, "{writes:?}");
    // Others are not concerned.
    bed.ensure(&*process, &of_kind("other", "nlb", &[(80, 31090)])).await;
    bed.delete(&*process, &of_kind("web", "nlb", &more)).await;
    bed.check();
}

/// A limit of one listener does not concern the changes of others.
#[tokio::test]
async fn a_listener_with_too_many_certificates_keeps_no_other_from_moving() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let web = |certificate: &str, node_port: i32| {
        let tls = [("type", "nlb"), ("ssl-cert", certificate), ("ssl-ports", "443")];
        service("web", &tls, &[(443, 31443), (8443, node_port)], json!({}))
    };
    bed.ensure(&*process, &web(CERTIFICATE, 31844)).await;
    let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
    bed.aws.world(|world| world.elb.add_certificate(other));
    let full = Rule::every(code("TooManyCertificates", "as the test says")).on("elbv2", "ModifyListener");
    bed.aws.fault(Rule { params: Some("certificate/other".to_owned()), ..full });
    let error = process.ensure(CLUSTER, &web(other, 31845), &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("TooManyCertificates"), "{error}");
    let node_port = bed.aws.world(|world| {
        let listener = world.elbv2.listeners.values().find(|one| one.port == 8443).unwrap();
        world.elbv2.groups[&listener.group].settings.port
    });
    assert_eq!(node_port, 31845);
    bed.check();
}

#[tokio::test]
async fn a_full_classic_balancer_takes_the_instances_that_fit() {
    let mut bed = Bed::start("");
    bed.add_nodes(2);
    bed.aws.change(|options| options.limits.classic_instances = 4);
    let process = bed.process().await;
    let web = of_kind("web", "clb", &[(80, 31080)]);
    let answer = process.ensure(CLUSTER, &web, &bed.nodes).await;
    assert!(answer.unwrap_err().to_string().contains("as target"));
    assert_eq!(bed.hosts(), [4]);
}

/// Calls for many load balancers have one answer each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_refused_name_among_many_balancers_fails_alone() {
    for kind in ["nlb", "clb"] {
        let mut bed = Bed::start("");
        // More than one call names (20).
        let services: Vec<Service> =
            (0..22).map(|number| of_kind(&format!("s{number}"), kind, &[(80, 31000 + number)])).collect();
        bed.aws.change(|options| options.limits.classic_balancers = services.len());
        let process = bed.process().await;
        join_all(services.iter().map(|service| bed.ensure(&*process, service))).await;
        let hit = services[7].default_load_balancer_name();
        for (action, fault) in
            [("DescribeLoadBalancers", Fault::Deny), ("DescribeTags", code("ValidationError", "as the test says"))]
        {
            bed.aws.faults(Faults::clear);
            bed.aws.fault(Rule {
                action: Some(action.into()),
                params: Some(hit.clone()),
                ..Rule::every(fault.clone())
            });
            bed.add_nodes(1);
            // The caches of a new process are empty.
            let (process, _cluster) = watched(&bed).await;
            let updates = services.iter().map(|service| process.update(CLUSTER, service, &bed.nodes));
            let answers = join_all(updates).await.into_iter().enumerate();
            let failed: Vec<usize> = answers.filter(|(_, answer)| answer.is_err()).map(|(number, _)| number).collect();
            assert_eq!(failed, [7], "{kind} {action} {fault:?}");
            let counts = bed.hosts();
            let all = counts.iter().filter(|count| **count == bed.nodes.len()).count();
            assert_eq!(all, services.len() - 1, "{kind} {action}: {counts:?}");
        }
    }
}

#[tokio::test]
async fn a_full_target_group_takes_as_many_of_many_nodes_as_fit() {
    for (quota, nodes) in [(4, 60), (103, 180)] {
        let mut bed = Bed::start("");
        bed.add_nodes(nodes - 3);
        bed.aws.change(|options| options.limits.targets_per_group = quota);
        let process = bed.process().await;
        let web = of_kind("web", "nlb", &[(80, 31080)]);
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("as target"), "{error}");
        assert_eq!(bed.hosts(), [quota], "{nodes} nodes");
        assert!(registrations(&bed, 0) <= 16, "{} calls", registrations(&bed, 0));
    }
}

fn registrations(bed: &Bed, mark: u64) -> usize {
    let registers = |write: &String| ["RegisterTargets", "RegisterInstancesWithLoadBalancer"].contains(&&**write);
    bed.writes(mark).into_iter().filter(registers).count()
}

#[tokio::test]
async fn a_refused_registration_is_sent_again_after_a_minute_or_for_other_nodes() {
    for (kind, service, action) in
        [("nlb", "elbv2", "RegisterTargets"), ("clb", "elb", "RegisterInstancesWithLoadBalancer")]
    {
        let mut bed = Bed::start("");
        let refused = Rule::every(code("ValidationError", "as the test says")).on(service, action);
        bed.aws.fault(refused);
        let process = bed.process().await;
        let web = of_kind("web", kind, &[(80, 31080), (81, 31081)]);
        process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err();
        let first = registrations(&bed, 0);
        let mark = bed.aws.mark();
        for _ in 0..4 {
            bed.aws.clock().step(Duration::from_secs(12));
            let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains("as target: as the test says"), "{kind}: {error}");
        }
        assert_eq!(registrations(&bed, mark), 0, "{kind}");
        bed.add_nodes(1);
        process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err();
        assert!(registrations(&bed, mark) >= first, "{kind}");
        bed.aws.faults(Faults::clear);
        bed.aws.clock().step(Duration::from_secs(60));
        bed.ensure(&*process, &web).await;
        assert!(bed.hosts().iter().all(|count| *count == 4), "{kind}");
        bed.check();
    }
}

/// The new instance is registered first, so that the balancer is never without one.
#[tokio::test]
async fn a_full_load_balancer_takes_a_new_instance_when_another_leaves() {
    for (kind, is_update) in [("clb", true), ("clb", false), ("nlb", true), ("nlb", false)] {
        let mut bed = with_room_for(3, 0);
        let process = bed.process().await;
        let web = of_kind("web", kind, &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        bed.add_nodes(1);
        bed.nodes.remove(0);
        bed.aws.clock().step(Duration::from_secs(60));
        match is_update {
            true => process.update(CLUSTER, &web, &bed.nodes).await.unwrap(),
            false => drop(process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap()),
        }
        assert_eq!(instances(&bed), of_nodes(&bed), "{kind}");
        assert_eq!(registrations(&bed, 0), 3, "{kind}");
    }
}

/// A load balancer has room for so many instances, and a target group empties within these seconds.
fn with_room_for(instances: usize, draining: u64) -> Bed {
    let bed = Bed::start("");
    bed.aws.change(|options| {
        (options.limits.classic_instances, options.limits.targets_per_group) = (instances, instances);
        options.delays.target_draining = Duration::from_secs(draining);
    });
    bed
}

#[tokio::test]
async fn a_load_balancer_all_of_whose_instances_are_replaced_is_never_empty() {
    // It serves from the first write on, and AWS refuses all writes after some.
    for (kind, room, most) in [("clb", 3, 12), ("nlb", 3, 10), ("nlb", 1000, 2)] {
        for writes in 1..=most {
            let mut bed = with_room_for(room, 0);
            let process = bed.process().await;
            let web = of_kind("web", kind, &[(80, 31080)]);
            bed.ensure(&*process, &web).await;
            bed.add_nodes(3);
            bed.nodes.drain(..3);
            bed.aws.clock().step(Duration::from_secs(60));
            bed.aws.fault(Rule::writes_from(writes, Fault::Deny));
            let _ = process.update(CLUSTER, &web, &bed.nodes).await;
            assert!(bed.hosts()[0] > 0, "{kind} {room}: {writes}");
            bed.aws.faults(Faults::clear);
            bed.aws.clock().step(Duration::from_secs(60));
            bed.ensure(&*process, &web).await;
            assert_eq!(instances(&bed), of_nodes(&bed), "{kind} {room}: {writes}");
        }
    }
}

/// AWS may count targets until they have drained.
#[tokio::test]
async fn a_full_target_group_whose_draining_targets_count_is_replaced_in_the_end_and_never_empty() {
    let mut bed = with_room_for(3, 300);
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[(80, 31080), (81, 31081)]);
    bed.ensure(&*process, &web).await;
    bed.add_nodes(3);
    bed.nodes.drain(..3);
    for minute in 1..=15 {
        bed.aws.clock().step(Duration::from_secs(60));
        let _ = process.update(CLUSTER, &web, &bed.nodes).await;
        // One makes room at first.
        let most = if minute < 5 { 2 } else { 1 };
        assert!(bed.hosts().iter().all(|count| *count >= most), "after {minute} minutes: {:?}", bed.hosts());
    }
    assert_eq!((instances(&bed), bed.hosts()), (of_nodes(&bed), vec![3, 3]));
    bed.check();
}

/// The quota may be that of a zone, or of the load balancer.
#[tokio::test]
async fn a_full_target_group_keeps_no_other_from_the_nodes_that_replace_all() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    let web = of_kind("web", "nlb", &[(80, 31080), (81, 31081)]);
    bed.ensure(&*process, &web).await;
    bed.add_nodes(3);
    bed.nodes.drain(..3);
    bed.aws.clock().step(Duration::from_secs(60));
    let first = bed.aws.world(|world| world.elbv2.groups.keys().next().unwrap().rsplit('/').nth(1).unwrap().to_owned());
    let full = Rule::every(code("TooManyTargets", "as the test says")).on("elbv2", "RegisterTargets");
    bed.aws.fault(Rule { params: Some(first), ..full });
    process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err();
    assert_eq!(bed.hosts(), [2, 3], "one has left to make room");
    assert!(instances(&bed).is_superset(&of_nodes(&bed)));
    bed.check();
}

#[tokio::test]
async fn a_load_balancer_is_not_emptied_for_instances_that_aws_refuses() {
    let (empty, unhealthy) = ("would be empty", "would have no healthy one");
    for (kind, refusal, text) in [
        ("clb", "InvalidInstance", empty),
        ("clb", "ValidationError", empty),
        ("clb", "AccessDenied", "AccessDenied"),
        ("nlb", "InvalidTarget", unhealthy),
        ("nlb", "ValidationError", unhealthy),
        ("nlb", "AccessDenied", "AccessDenied"),
    ] {
        let mut bed = Bed::start("");
        let process = bed.process().await;
        let web = of_kind("web", kind, &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        bed.add_nodes(3);
        bed.nodes.drain(..3);
        for id in of_nodes(&bed) {
            let refused =
                Rule { action: Some("Register*".to_owned()), ..Rule::every(code(refusal, "as the test says")) };
            bed.aws.fault(Rule { params: Some(id), ..refused });
        }
        for _ in 0..4 {
            bed.aws.clock().step(Duration::from_secs(60));
            // What stays is not awaited to be gone.
            for _ in 0..2 {
                let error = process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
                assert!(error.contains(text), "{kind} {refusal}: {error}");
            }
        }
        assert_eq!(bed.hosts(), [3], "{kind} {refusal}");
        bed.aws.faults(Faults::clear);
        bed.aws.clock().step(Duration::from_secs(60));
        bed.ensure(&*process, &web).await;
        assert_eq!(instances(&bed), of_nodes(&bed), "{kind} {refusal}");
    }
}

/// The instances of all load balancers.
fn instances(bed: &Bed) -> BTreeSet<String> {
    bed.aws.world(|world| {
        let classic = world.elb.balancers.values().flat_map(|one| one.instances.iter());
        let targets = world.elbv2.groups.values().flat_map(|group| group.targets.values());
        let staying = targets.filter(|target| target.draining_until.is_none()).map(|target| &target.id);
        classic.chain(staying).cloned().collect()
    })
}

fn of_nodes(bed: &Bed) -> BTreeSet<String> {
    bed.nodes.iter().map(|node| node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned()).collect()
}

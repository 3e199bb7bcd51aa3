//! Source ranges that become narrower: the former ones are closed, whatever else fails.

use ccm_cloudsim::aws::ec2::model::Peer;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service};
use crate::leader::watched;

const WORLD: &str = "0.0.0.0/0";

fn web(annotations: &[(&str, &str)], ports: &[(i32, i32)], ranges: &[&str]) -> Service {
    let spec = json!({"loadBalancerSourceRanges": ranges});
    service("web", &[annotations, &[("type", "nlb")]].concat(), ports, spec)
}

fn refuse(bed: &Bed, action: &str, code: &str) {
    let fault = Fault::Code { status: 400, code: code.to_owned(), message: "as the test says".to_owned() };
    bed.aws.fault(Rule::every(fault).on("elbv2", action));
}

/// The ports that are open to a network, in all groups.
fn open_to(bed: &Bed, network: &str) -> Vec<(String, Option<i64>)> {
    bed.aws.world(|world| {
        let rules = world.ec2.groups.values().flat_map(|group| &group.ingress);
        let open = rules.filter(|rule| rule.peer == Peer::V4(network.to_owned()));
        open.map(|rule| (rule.protocol.clone(), rule.from)).collect()
    })
}

#[tokio::test]
async fn former_ranges_are_closed_while_a_setting_is_refused() {
    for config in ["NLBSecurityGroupMode = Managed", ""] {
        let bed = Bed::start(config);
        let process = bed.process().await;
        bed.ensure(&*process, &web(&[], &[(80, 31080)], &[WORLD])).await;
        assert_ne!(open_to(&bed, WORLD), [], "{config:?}");
        refuse(&bed, "ModifyLoadBalancerAttributes", "InvalidConfigurationRequest");
        let narrowed = web(&[("cross-zone-load-balancing-enabled", "true")], &[(80, 31080)], &["10.0.0.0/8"]);
        process.ensure(CLUSTER, &narrowed, &bed.nodes).await.unwrap_err();
        assert_eq!(open_to(&bed, WORLD), [], "{config:?}");
        assert!(open_to(&bed, "10.0.0.0/8").contains(&("tcp".to_owned(), Some(31080))), "{config:?}");
        bed.check();
    }
}

/// One node has two groups with the cluster's tag.
#[tokio::test]
async fn former_ranges_are_closed_while_a_node_has_no_clear_group() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web(&[], &[(80, 31080)], &[WORLD])).await;
    bed.add_group("sg-0123456789abcdef0", Some("owned"), Vec::new());
    bed.add_nodes(1);
    bed.set_groups(3, &[&bed.network.node_group, "sg-0123456789abcdef0"]);
    let process = bed.process().await;
    let narrowed = web(&[], &[(80, 31080)], &["10.0.0.0/8"]);
    let error = process.ensure(CLUSTER, &narrowed, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("node-3"), "{error}");
    assert_eq!(open_to(&bed, WORLD), []);
    bed.check();
}

/// As with AWS's policy for ROSA, which lacks `DeregisterTargets`.
#[tokio::test]
async fn former_ranges_are_closed_while_a_node_cannot_be_removed() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web(&[], &[(80, 31080)], &[WORLD])).await;
    bed.aws.fault(Rule::every(Fault::Deny).on("elbv2", "DeregisterTargets"));
    bed.nodes.remove(0);
    let narrowed = web(&[], &[(80, 31080)], &["10.0.0.0/8"]);
    process.ensure(CLUSTER, &narrowed, &bed.nodes).await.unwrap_err();
    assert_eq!(open_to(&bed, WORLD), []);
    bed.check();
}

/// The listener still forwards to it.
#[tokio::test]
async fn the_former_node_port_of_a_listener_that_cannot_move_stays_open() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web(&[], &[(80, 31080), (81, 31081)], &[WORLD])).await;
    refuse(&bed, "ModifyListener", "InvalidConfigurationRequest");
    let moved = web(&[], &[(80, 31090), (81, 31081)], &["10.0.0.0/8"]);
    process.ensure(CLUSTER, &moved, &bed.nodes).await.unwrap_err();
    let open = open_to(&bed, WORLD);
    assert!(open.contains(&("tcp".to_owned(), Some(31080))), "{open:?}");
    assert!(!open.contains(&("tcp".to_owned(), Some(31081))), "{open:?}");
    bed.check();
}

/// The health checks of the new target group use the node port by TCP too.
#[tokio::test]
async fn the_clients_of_a_listener_whose_protocol_cannot_change_stay_allowed() {
    for config in ["NLBSecurityGroupMode = Managed", ""] {
        let bed = Bed::start(config);
        let process = bed.process().await;
        let mut web = web(&[], &[(80, 31080)], &[WORLD]);
        bed.ensure(&*process, &web).await;
        let before = open_to(&bed, WORLD);
        refuse(&bed, "CreateTargetGroup", "TooManyTargetGroups");
        web.spec.ports[0].protocol = "UDP".to_owned();
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("TooManyTargetGroups"), "{config:?}: {error}");
        let after = open_to(&bed, WORLD);
        assert!(before.iter().all(|rule| after.contains(rule)), "{config:?}: {before:?} {after:?}");
        // The listener changes as soon as it can.
        bed.aws.faults(Faults::clear);
        bed.ensure(&*process, &web).await;
        let open = open_to(&bed, WORLD);
        assert!(open.iter().all(|(protocol, _)| protocol != "tcp"), "{config:?}: {open:?}");
        bed.check();
    }
}

/// The load balancers are IPv4.
#[tokio::test]
async fn former_ranges_are_closed_by_a_list_with_ranges_of_ipv6() {
    for (kind, port, config) in [("nlb", 31080, "NLBSecurityGroupMode = Managed"), ("nlb", 31080, ""), ("clb", 80, "")]
    {
        let what = format!("{kind} {config:?}");
        let bed = Bed::start(config);
        let (process, cluster) = watched(&bed).await;
        let web = |ranges: &[&str]| {
            let spec = json!({"loadBalancerSourceRanges": ranges});
            service("web", &[("type", kind)], &[(80, 31080)], spec)
        };
        bed.ensure(&*process, &web(&[WORLD])).await;
        assert_ne!(open_to(&bed, WORLD), [], "{what}");
        cluster.take_events();
        bed.ensure(&*process, &web(&["10.0.0.0/8", "2001:db8::/32"])).await;
        assert_eq!(open_to(&bed, WORLD), [], "{what}");
        assert!(open_to(&bed, "10.0.0.0/8").contains(&("tcp".to_owned(), Some(port))), "{what}");
        let events = cluster.take_events();
        assert!(events.iter().any(|event| event.contains("2001:db8::/32")), "{what}: {events:?}");
        let only_ipv6 = web(&["2001:db8::/32"]);
        for _ in 0..2 {
            let error = process.ensure(CLUSTER, &only_ipv6, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains("2001:db8::/32"), "{what}: {error}");
            assert_eq!(open_to(&bed, "10.0.0.0/8"), [], "{what}");
        }
        // Its nodes are followed.
        process.update(CLUSTER, &only_ipv6, &bed.nodes[1..]).await.unwrap();
        assert_eq!(bed.hosts(), [2], "{what}");
        bed.ensure(&*process, &web(&["10.0.0.0/8"])).await;
        assert!(open_to(&bed, "10.0.0.0/8").contains(&("tcp".to_owned(), Some(port))), "{what}");
        bed.check();
    }
}

#[tokio::test]
async fn nothing_is_created_for_a_service_that_allows_ipv6_only() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("NLBSecurityGroupMode = Managed");
        let spec = json!({"loadBalancerSourceRanges": ["2001:db8::/32"]});
        let web = service("web", &[("type", kind)], &[(80, 31080)], spec);
        let error = bed.process().await.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("spec.loadBalancerSourceRanges \"2001:db8::/32\""), "{kind}: {error}");
        assert_eq!(bed.writes(0), [""; 0], "{kind}");
    }
}

//! What holds for all Services and states.

use proptest::prelude::*;

use super::*;
use crate::annotations::{
    CROSS_ZONE, HEALTH_INTERVAL, HEALTH_PROTOCOL, SSL_CERT, SSL_PORTS, TARGET_GROUP_ATTRIBUTES, UNHEALTHY_THRESHOLD,
};
use crate::client::Tags;
use model::security_group;

/// A Service in one of many shapes; all of one Service, so that each can become any other.
pub(super) fn any_asked() -> impl Strategy<Value = Asked> {
    let ports =
        proptest::sample::subsequence(vec![(80, 31080), (443, 31443), (8080, 31808), (80, 31081), (443, 31080)], 1..4);
    let nodes = proptest::sample::subsequence(vec!["i-1", "i-2", "i-3"], 0..4);
    let flags = proptest::collection::vec(any::<bool>(), 10);
    (ports, nodes, flags, any::<bool>()).prop_map(|(mut ports, nodes, flags, reversed)| {
        // A Service has each port and each node port once.
        let (mut seen, mut seen_node) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        ports.retain(|(port, node_port)| seen.insert(*port) && seen_node.insert(*node_port));
        if reversed {
            ports.reverse();
        }
        let mut asked = asked(&ports).nodes(&nodes);
        let changes: [&dyn Fn(Asked) -> Asked; 10] = [
            &Asked::local,
            &Asked::shared,
            &|asked| asked.with(&SSL_CERT, CERTIFICATE),
            &|asked| asked.with(&SSL_PORTS, "443"),
            &|asked| asked.with(&HEALTH_PROTOCOL, "http"),
            &|asked| asked.with(&HEALTH_INTERVAL, "20"),
            &|asked| asked.with(&UNHEALTHY_THRESHOLD, "5"),
            &|asked| asked.with(&CROSS_ZONE, "true"),
            &|asked| asked.with(&TARGET_GROUP_ATTRIBUTES, "proxy_protocol_v2.enabled=true"),
            &|asked| asked.ranges(&["10.0.0.0/8", "192.168.0.0/16"]),
        ];
        for (change, wanted) in changes.iter().zip(&flags) {
            if *wanted {
                asked = change(asked);
            }
        }
        if flags[0] && flags[1] && !flags[2] { asked.udp() } else { asked }
    })
}

/// Objects of others, some with part of our marks.
fn with_bystanders(mut cloud: Cloud) -> Cloud {
    let other = current(&{
        let mut other = asked(&[(80, 30080), (443, 30443)]);
        other.service.metadata.name = "other".into();
        other.service.metadata.uid = "ffffffff-aaaa-bbbb-cccc-0123456789ab".into();
        other
    });
    let rename = |arn: &str| format!("{arn}-other");
    for (arn, mut one) in other.balancers {
        one.balancer.arn = rename(&arn);
        cloud.balancers.insert(rename(&arn), one);
    }
    for (arn, (owner, mut one)) in other.listeners {
        one.arn = rename(&arn);
        one.target_group = one.target_group.as_deref().map(rename);
        cloud.listeners.insert(rename(&arn), (rename(&owner), one));
    }
    for (arn, mut one) in other.groups {
        one.group.arn = rename(&arn);
        cloud.groups.insert(rename(&arn), one);
    }
    let foreign = security_group("sg-foreign", "k8s-elb-foreign", "somebody's", Tags::new());
    cloud.security_groups.insert("sg-foreign".to_owned(), foreign);
    cloud
}

/// All that is not of the Service under test.
fn bystanders(cloud: &Cloud) -> Cloud {
    let mut rest = cloud.clone();
    let other = |arn: &String| arn.ends_with("-other");
    rest.balancers.retain(|arn, _| other(arn));
    rest.listeners.retain(|arn, _| other(arn));
    rest.groups.retain(|arn, _| other(arn));
    rest.security_groups.retain(|id, _| id == "sg-foreign");
    rest.log.clear();
    rest.instances.clear();
    rest.forget_numbers();
    rest
}

/// What users see, without ARNs: these differ with the way that led there.
fn visible(cloud: &Cloud) -> Vec<String> {
    let group = |arn: &str| cloud.groups.get(arn).map(|found| found.group.name.clone());
    let listener = |(_, (_, one)): (&String, &(String, crate::client::elbv2::Listener))| {
        let group = one.target_group.as_deref().and_then(group);
        format!("listener {} {} {:?} {:?} {group:?}", one.port, one.protocol, one.certificates, one.ssl_policy)
    };
    let mut all: Vec<String> = cloud.listeners.iter().map(listener).collect();
    all.extend(cloud.groups.values().map(|found| {
        let mut check = found.group.health_check.clone();
        // Not asked for, it stays what it was.
        check.timeout = None;
        let targets: Vec<_> =
            found.targets.iter().map(|health| format!("{}:{}", health.target.id, health.target.port)).collect();
        format!("group {} {check:?} {targets:?}", found.group.name)
    }));
    all.extend(cloud.balancers.values().map(|one| format!("balancer {} {:?}", one.balancer.name, one.attributes)));
    all.extend(cloud.security_groups.values().map(|one| format!("security group {} {:?}", one.name, one.ingress)));
    all.sort();
    all
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_plan_applied_leaves_nothing_to_do(from in any_asked(), to in any_asked()) {
        let mut cloud = Cloud::with_nodes(3);
        from.settle(&mut cloud);
        to.settle(&mut cloud);
        to.settle_wish(&to.gone(), &mut cloud);
        prop_assert!(cloud.balancers.is_empty() && cloud.listeners.is_empty() && cloud.groups.is_empty());
        prop_assert!(cloud.security_groups.values().all(|group| group.ingress.is_empty()));
    }

    #[test]
    fn any_prefix_of_a_plan_then_another_plan_converges(from in any_asked(), to in any_asked(), managed in any::<bool>(), ends in any::<bool>()) {
        let (from, to) = if managed { (from.managed(), to.managed()) } else { (from, to) };
        let start = {
            let mut cloud = with_bystanders(Cloud::with_nodes(3));
            from.settle(&mut cloud);
            cloud
        };
        let desired = if ends { to.gone() } else { to.desired() };
        let mut whole = start.clone();
        to.settle_wish(&desired, &mut whole);
        let steps = to.plan(&desired, &start).steps;
        for prefix in 0..steps.len() {
            let mut cloud = start.clone();
            cloud.apply(&steps[..prefix]);
            // Whatever the Service wanted before, it may also change its mind now.
            let mut changed = cloud.clone();
            from.settle(&mut changed);
            to.settle_wish(&desired, &mut cloud);
            prop_assert_eq!(bystanders(&cloud), bystanders(&start));
            prop_assert_eq!(bystanders(&changed), bystanders(&start));
            // Attributes that nobody asks for any more stay: only then do the ways differ.
            prop_assert_eq!(visible(&cloud), visible(&whole), "after {} steps", prefix);
        }
    }

    #[test]
    fn the_order_of_ports_nodes_and_answers_does_not_matter(from in any_asked(), to in any_asked()) {
        let mut cloud = with_bystanders(Cloud::with_nodes(3));
        from.settle(&mut cloud);
        let plan = to.plan(&to.desired(), &cloud);
        let mut shuffled = to.clone();
        shuffled.service.spec.ports.reverse();
        shuffled.nodes.reverse();
        let desired = shuffled.desired();
        let mut observed = cloud.observe(&desired, &to.env);
        observed.unattached_target_groups.reverse();
        if let Some(network) = &mut observed.network {
            network.listeners.reverse();
            network.target_groups.reverse();
            network.target_groups.iter_mut().for_each(|found| found.targets.reverse());
        }
        prop_assert_eq!(shuffled.try_plan(&desired, &observed).unwrap(), plan);
    }
}

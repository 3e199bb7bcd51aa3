//! Parts of a load balancer fail alone: whatever AWS refuses, the targets follow the nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service, ServiceAction};
use serde_json::json;

use crate::bed::{Bed, CERTIFICATE, CLUSTER, service};
use crate::leader::watched;

const GONE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/gone";

fn desired(kind: &str, annotations: &[(&str, &str)], ports: &[(i32, i32)]) -> Service {
    service("web", &[annotations, &[("type", kind)]].concat(), ports, json!({}))
}

/// Every call of an operation is refused.
fn refuse(bed: &Bed, service: &str, action: &str, code: &str) {
    let fault = Fault::Code { status: 400, code: code.to_owned(), message: "as the test says".to_owned() };
    bed.aws.fault(Rule::every(fault).on(service, action));
}

/// Replaces the first node by a new one.
fn replace_node(bed: &mut Bed) {
    bed.add_nodes(1);
    bed.nodes.remove(0);
}

/// The targets of all balancers are the nodes.
fn follows(bed: &Bed, what: &str) {
    let ids: BTreeSet<String> =
        bed.nodes.iter().map(|node| node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned()).collect();
    let all: Vec<BTreeSet<String>> = bed.aws.world(|world| {
        let classic = world.elb.balancers.values().map(|balancer| balancer.instances.iter().cloned().collect());
        let staying = |group: &ccm_cloudsim::aws::elbv2::TargetGroup| {
            let staying = group.targets.values().filter(|target| target.draining_until.is_none());
            staying.map(|target| target.id.clone()).collect()
        };
        classic.chain(world.elbv2.groups.values().map(staying)).collect()
    });
    assert!(!all.is_empty());
    for hosts in all {
        assert_eq!(hosts, ids, "{what}");
    }
}

/// Two groups of a node carry the cluster's tag, as many modules for Terraform make them.
#[tokio::test]
async fn a_node_without_a_clear_group_freezes_no_target_and_no_rule_of_others() {
    for kind in ["nlb", "clb"] {
        let mut bed = Bed::start("");
        let process = bed.process().await;
        let web = desired(kind, &[], &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        bed.add_group("sg-0123456789abcdef0", Some("owned"), Vec::new());
        bed.add_group("sg-0123456789abcdef1", Some("owned"), Vec::new());
        bed.add_nodes(2);
        bed.set_groups(3, &[&bed.network.node_group, "sg-0123456789abcdef0"]);
        bed.set_groups(4, &["sg-0123456789abcdef1"]);
        bed.nodes.remove(0);
        let process = bed.process().await;
        let error = process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("node-3") && !error.contains("node-4"), "{error}");
        follows(&bed, kind);
        let rules = |id: &str| bed.aws.world(|world| world.ec2.groups[id].ingress.len());
        assert!(rules("sg-0123456789abcdef1") > 0, "{kind}: the group of another node is open");
        assert_eq!(rules("sg-0123456789abcdef0"), 0, "{kind}");
        // No rule that the node may need is closed.
        bed.nodes.retain(|node| &*node.name != "node-1" && &*node.name != "node-2");
        process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err();
        assert!(rules(&bed.network.node_group) > 0, "{kind}");
        follows(&bed, kind);
        bed.check();
    }
}

/// A group that EC2 does not show, and a group without room: the nodes with other groups get their rules.
#[tokio::test]
async fn a_node_whose_group_is_missing_or_full_keeps_no_other_group_closed() {
    for (kind, is_full) in [("nlb", false), ("clb", false), ("nlb", true), ("clb", true)] {
        let what = format!("{kind}, full: {is_full}");
        let mut bed = Bed::start("");
        let process = bed.process().await;
        let web = desired(kind, &[], &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        let (odd, other) = ("sg-0123456789abcdef0", "sg-0123456789abcdef1");
        bed.add_group(odd, Some("owned"), Vec::new());
        bed.add_group(other, Some("owned"), Vec::new());
        bed.add_nodes(2);
        bed.set_groups(3, &[odd]);
        bed.set_groups(4, &[other]);
        match is_full {
            true => {
                let full = Fault::Code {
                    status: 400,
                    code: "RulesPerSecurityGroupLimitExceeded".to_owned(),
                    message: String::new(),
                };
                let rule = Rule::every(full).on("ec2", "AuthorizeSecurityGroupIngress");
                bed.aws.fault(Rule { params: Some(odd.to_owned()), ..rule });
            }
            false => drop(bed.aws.world(|world| world.ec2.groups.remove(odd))),
        }
        bed.nodes.remove(0);
        let process = bed.process().await;
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains(odd), "{what}: {error}");
        follows(&bed, &what);
        let rules = |id: &str| bed.aws.world(|world| world.ec2.groups[id].ingress.len());
        assert!(rules(other) > 0, "{what}");
        assert!(rules(&bed.network.node_group) > 0, "{what}");
    }
}

/// A read that fails for one load balancer does not keep its nodes, and its status, from what is known.
#[tokio::test]
async fn targets_follow_the_nodes_and_the_status_is_known_whatever_cannot_be_read() {
    let reads: &[(&str, &str, &str, bool)] = &[
        ("nlb", "ec2", "DescribeSecurityGroups", true),
        ("nlb", "ec2", "DescribeSubnets", true),
        ("nlb", "elbv2", "DescribeListeners", true),
        ("nlb", "elbv2", "DescribeLoadBalancerAttributes", true),
        ("nlb", "elbv2", "DescribeTargetGroupAttributes", true),
        ("nlb", "elbv2", "DescribeTargetHealth", false),
        ("nlb", "ec2", "DescribeInstances", false),
        ("clb", "ec2", "DescribeSecurityGroups", true),
        ("clb", "ec2", "DescribeSubnets", true),
        ("clb", "elb", "DescribeLoadBalancerAttributes", true),
        ("clb", "elb", "DescribeLoadBalancerPolicies", true),
        ("clb", "ec2", "DescribeInstances", false),
    ];
    for (kind, service, action, is_followed) in reads {
        for is_ensured in [true, false] {
            let what = format!("{kind} {action} ensured: {is_ensured}");
            let mut bed = Bed::start("");
            let process = bed.process().await;
            let settings: &[(&str, &str)] = match *kind {
                "nlb" => &[("target-group-attributes", "preserve_client_ip.enabled=true")],
                _ => &[("ssl-cert", CERTIFICATE), ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01")],
            };
            let web = desired(kind, settings, &[(80, 31080)]);
            bed.ensure(&*process, &web).await;
            replace_node(&mut bed);
            bed.aws.fault(Rule::every(Fault::Deny).on(service, action));
            let process = bed.process().await;
            let hosts = bed.hosts();
            let work = if is_ensured { ServiceAction::Ensure } else { ServiceAction::UpdateHosts };
            let answer = process.reconcile_one(CLUSTER, &web, &bed.nodes, work).await;
            if is_ensured {
                answer.result.unwrap_err();
                assert_eq!(answer.status.unwrap().ingress.len(), 1, "{what}");
            }
            match is_followed {
                true => follows(&bed, &what),
                false => assert_eq!(bed.hosts(), hosts, "{what}: nothing is known, nothing is removed"),
            }
            bed.check();
        }
    }
}

/// Upstream reads them last, and its role may lack the permission.
#[tokio::test]
async fn settings_that_cannot_be_read_keep_no_port_from_its_change() {
    for (kind, service, action) in [
        ("nlb", "elbv2", "DescribeLoadBalancerAttributes"),
        ("nlb", "elbv2", "DescribeTargetGroupAttributes"),
        ("clb", "elb", "DescribeLoadBalancerAttributes"),
        ("clb", "elb", "DescribeLoadBalancerPolicies"),
    ] {
        let what = format!("{kind} {action}");
        let bed = Bed::start("");
        let settings: &[(&str, &str)] = match kind {
            "nlb" => &[("target-group-attributes", "preserve_client_ip.enabled=true")],
            _ => &[("ssl-cert", CERTIFICATE), ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01")],
        };
        bed.ensure(&*bed.process().await, &desired(kind, settings, &[(80, 31080), (82, 31082)])).await;
        bed.aws.fault(Rule::every(Fault::Deny).on(service, action));
        let changed = desired(kind, settings, &[(80, 31090), (81, 31081)]);
        let error = bed.process().await.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains(action), "{what}: {error}");
        let (listeners, opened) = bed.aws.world(|world| {
            let classic = world.elb.balancers.values().flat_map(|one| &one.listeners);
            let classic = classic.map(|(port, listener)| (i64::from(*port), i64::from(listener.instance_port)));
            let to = |group: &str| i64::from(world.elbv2.groups[group].settings.port);
            let network = world.elbv2.listeners.values().map(|one| (i64::from(one.port), to(&one.group)));
            let listeners: BTreeSet<(i64, i64)> = classic.chain(network).collect();
            let rules = world.ec2.groups.values().flat_map(|group| &group.ingress);
            (listeners, rules.filter_map(|rule| rule.from).collect::<BTreeSet<i64>>())
        });
        assert_eq!(listeners, [(80, 31090), (81, 31081)].into(), "{what}");
        let (new, former) = if kind == "nlb" { (31081, 31082) } else { (81, 82) };
        assert!(opened.contains(&new) && !opened.contains(&former), "{what}: {opened:?}");
        bed.aws.faults(Faults::clear);
        let process = bed.process().await;
        bed.ensure(&*process, &changed).await;
        bed.stays(&*process, &changed, 9).await;
        bed.check();
    }
}

#[tokio::test]
async fn targets_follow_the_nodes_whatever_else_is_refused() {
    let refusals: &[(&str, &str, &str, &str)] = &[
        ("nlb", "ec2", "AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded"),
        ("nlb", "ec2", "AuthorizeSecurityGroupIngress", "UnauthorizedOperation"),
        ("nlb", "ec2", "RevokeSecurityGroupIngress", "UnauthorizedOperation"),
        ("nlb", "ec2", "DescribeSecurityGroups", "UnauthorizedOperation"),
        ("nlb", "ec2", "DescribeSubnets", "UnauthorizedOperation"),
        ("nlb", "elbv2", "DescribeListeners", "AccessDenied"),
        ("nlb", "elbv2", "DescribeLoadBalancerAttributes", "AccessDenied"),
        ("nlb", "elbv2", "CreateListener", "TooManyListeners"),
        ("nlb", "elbv2", "CreateTargetGroup", "TooManyTargetGroups"),
        ("nlb", "elbv2", "ModifyListener", "CertificateNotFound"),
        ("nlb", "elbv2", "ModifyTargetGroup", "ValidationError"),
        ("nlb", "elbv2", "ModifyLoadBalancerAttributes", "InvalidConfigurationRequest"),
        ("clb", "ec2", "AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded"),
        ("clb", "ec2", "DescribeSecurityGroups", "UnauthorizedOperation"),
        ("clb", "elb", "DescribeLoadBalancerAttributes", "AccessDenied"),
        ("clb", "elb", "CreateLoadBalancerPolicy", "AccessDenied"),
        ("clb", "elb", "SetLoadBalancerPoliciesOfListener", "InvalidConfigurationRequest"),
    ];
    for (kind, service, action, code) in refusals {
        let what = format!("{kind} {action} {code}");
        let mut bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &desired(kind, &[("ssl-cert", CERTIFICATE)], &[(80, 31080)])).await;
        refuse(&bed, service, action, code);
        let policy = ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
        let other = [policy, ("ssl-cert", CERTIFICATE), ("healthcheck-healthy-threshold", "5")];
        let changed = desired(kind, &other, &[(80, 31080), (81, 31081)]);
        let process = bed.process().await;
        replace_node(&mut bed);
        let _ = process.update(CLUSTER, &changed, &bed.nodes).await;
        follows(&bed, &what);
        bed.check();
    }
}

/// After a restart, changes of the nodes come with an ensure.
#[tokio::test]
async fn targets_follow_the_nodes_in_an_ensure_whose_settings_are_refused() {
    let refusals: &[(&str, &str, &str, &str)] = &[
        ("nlb", "elbv2", "ModifyLoadBalancerAttributes", "InvalidConfigurationRequest"),
        ("nlb", "elbv2", "ModifyTargetGroup", "ValidationError"),
        ("nlb", "elbv2", "CreateListener", "TooManyListeners"),
        ("nlb", "ec2", "AuthorizeSecurityGroupIngress", "RulesPerSecurityGroupLimitExceeded"),
        ("clb", "elb", "ModifyLoadBalancerAttributes", "InvalidConfigurationRequest"),
        ("clb", "elb", "ConfigureHealthCheck", "ValidationError"),
        ("clb", "elb", "CreateLoadBalancerListeners", "CertificateNotFound"),
        ("clb", "elb", "AddTags", "TooManyTags"),
    ];
    for (kind, service, action, code) in refusals {
        let what = format!("{kind} {action} {code}");
        let mut bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &desired(kind, &[], &[(80, 31080)])).await;
        refuse(&bed, service, action, code);
        let settings = [
            ("healthcheck-healthy-threshold", "5"),
            ("cross-zone-load-balancing-enabled", "true"),
            ("additional-resource-tags", "team=web"),
        ];
        replace_node(&mut bed);
        let changed = desired(kind, &settings, &[(80, 31080), (81, 31081)]);
        let process = bed.process().await;
        process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
        let hosts = bed.hosts();
        assert!(hosts.iter().all(|count| [0, 3].contains(count)), "{what}: {hosts:?}");
        let first = bed.nodes.last().unwrap().provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        let serves = bed.aws.world(|world| {
            let classic = world.elb.balancers.values().any(|one| one.instances.contains(&first));
            classic || world.elbv2.groups.values().any(|one| one.targets.values().any(|target| target.id == first))
        });
        assert!(serves, "{what}");
        bed.check();
    }
}

#[tokio::test]
async fn a_listener_that_still_serves_keeps_its_nodes_while_its_successor_is_refused() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &desired("nlb", &[], &[(80, 31080)])).await;
    let moved = desired("nlb", &[("ssl-cert", GONE)], &[(8080, 31080)]);
    process.ensure(CLUSTER, &moved, &bed.nodes).await.unwrap_err();
    let ports =
        |bed: &Bed| bed.aws.world(|world| world.elbv2.listeners.values().map(|one| one.port).collect::<Vec<_>>());
    assert_eq!(ports(&bed), [80], "it serves until the new one does");
    replace_node(&mut bed);
    let _ = process.update(CLUSTER, &moved, &bed.nodes).await;
    let served = bed.aws.world(|world| {
        let listener = world.elbv2.listeners.values().next().unwrap();
        let group = &world.elbv2.groups[&listener.group];
        group.targets.values().filter(|target| target.draining_until.is_none()).map(|one| one.id.clone()).collect()
    });
    let nodes: BTreeSet<String> =
        bed.nodes.iter().map(|node| node.provider_id_or_empty().rsplit('/').next().unwrap().to_owned()).collect();
    let served: BTreeSet<String> = served;
    assert_eq!(served, nodes);
    bed.check();
}

/// A port whose certificate is missing does not keep other ports from their changes.
#[tokio::test]
async fn ports_fail_alone() {
    for kind in ["nlb", "clb"] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let tls = [("ssl-cert", CERTIFICATE), ("ssl-ports", "443")];
        bed.ensure(&*process, &desired(kind, &tls, &[(443, 31443), (8443, 31844)])).await;
        let wrong = [("ssl-cert", GONE), ("ssl-ports", "443")];
        let changed = desired(kind, &wrong, &[(443, 31443), (8443, 31845)]);
        let error = process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("certificate/gone"), "{error}");
        let (certificate, moved) = bed.aws.world(|world| match kind {
            "clb" => {
                let balancer = world.elb.balancers.values().next().unwrap();
                let port = |port| &balancer.listeners[&port];
                (port(443).certificate.clone(), port(8443).instance_port)
            }
            _ => {
                let port = |port| world.elbv2.listeners.values().find(|one| one.port == port).unwrap();
                let group = &world.elbv2.groups[&port(8443).group];
                (port(443).certificate.clone(), group.settings.port)
            }
        });
        assert_eq!(certificate.as_deref(), Some(CERTIFICATE), "{kind}: 443 serves as before");
        assert_eq!(moved, 31845, "{kind}");
        bed.check();
    }
}

/// The plain port moves, and the port whose new certificate is unknown is open with the old one, also for a role that
/// may not set certificates.
#[tokio::test]
async fn a_refused_listener_of_a_classic_balancer_leaves_its_port_open() {
    for denied in [false, true] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let tls = [("ssl-cert", CERTIFICATE), ("ssl-ports", "443")];
        bed.ensure(&*process, &desired("clb", &tls, &[(80, 31080), (443, 31443)])).await;
        if denied {
            refuse(&bed, "elb", "SetLoadBalancerListenerSSLCertificate", "AccessDenied");
        }
        let wrong = [("ssl-cert", GONE), ("ssl-ports", "443")];
        let changed = desired("clb", &wrong, &[(80, 31081), (443, 31443)]);
        process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
        // Another protocol takes a new listener.
        let http = [wrong[0], wrong[1], ("backend-protocol", "http")];
        process.ensure(CLUSTER, &desired("clb", &http, &[(80, 31081), (443, 31443)]), &bed.nodes).await.unwrap_err();
        let listeners = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners.clone());
        assert_eq!(listeners[&443].certificate.as_deref(), Some(CERTIFICATE), "denied: {denied}");
        assert_eq!(listeners[&80].instance_port, 31081, "denied: {denied}");
        // The certificate is there now. The process tries again after five minutes, or an hour if it had to close the port.
        bed.aws.world(|world| world.elb.add_certificate(GONE));
        let process = bed.process().await;
        bed.ensure(&*process, &changed).await;
        let listeners = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners.clone());
        assert_eq!(listeners[&443].certificate.as_deref(), Some(GONE), "denied: {denied}");
        bed.stays(&*process, &changed, 9).await;
        bed.check();
    }
}

/// The listener that was restored is not deleted again for a successor that AWS has refused for good.
#[tokio::test]
async fn a_port_stays_open_in_all_syncs_after_a_refusal() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &desired("clb", &[], &[(80, 31080), (443, 31443)])).await;
    let fault = Fault::Code { status: 400, code: "UnsupportedCertificate".to_owned(), message: "no".to_owned() };
    let of_tls = Some("SSLCertificateId".to_owned());
    bed.aws.fault(Rule { params: of_tls, ..Rule::every(fault).on("elb", "CreateLoadBalancerListeners") });
    let tls = [("ssl-cert", CERTIFICATE), ("ssl-ports", "443")];
    let changed = desired("clb", &tls, &[(80, 31080), (443, 31443)]);
    for sync in 0..3 {
        process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
        let ports = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners.len());
        assert_eq!(ports, 2, "sync {sync}");
    }
    bed.check();
}

/// The protocol of a port takes a new listener.
#[tokio::test]
async fn a_listener_whose_successor_is_refused_is_created_again() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let before = desired("nlb", &[], &[(53, 31053)]);
    bed.ensure(&*process, &before).await;
    let listener = || {
        bed.aws.world(|world| {
            let listener = world.elbv2.listeners.values().next().unwrap();
            (world.elbv2.listeners.len(), listener.port, listener.protocol.clone(), listener.group.clone())
        })
    };
    let was = listener();
    let fault = Fault::Code { status: 400, code: "InvalidConfigurationRequest".to_owned(), message: "no".to_owned() };
    let of_udp = Rule { params: Some("Protocol=UDP".to_owned()), ..Rule::every(fault).on("elbv2", "CreateListener") };
    bed.aws.fault(of_udp);
    let mut changed = before.clone();
    changed.spec.ports[0].protocol = "UDP".to_owned();
    for sync in 0..3 {
        process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
        assert_eq!(listener(), was, "sync {sync}");
    }
    bed.ensure(&*process, &before).await;
    assert_eq!(listener(), was);
    bed.check();
}

#[tokio::test]
async fn a_target_group_whose_targets_cannot_be_read_keeps_no_other_from_its_nodes() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    let web = desired("nlb", &[], &[(80, 31080), (443, 31443)]);
    bed.ensure(&*process, &web).await;
    let hit = bed.aws.world(|world| world.elbv2.groups.keys().next().unwrap().rsplit('/').nth(1).unwrap().to_owned());
    let of_one = Rule { params: Some(hit.clone()), ..Rule::every(Fault::Deny).on("elbv2", "DescribeTargetHealth") };
    bed.aws.fault(of_one);
    replace_node(&mut bed);
    process.update(CLUSTER, &web, &bed.nodes).await.unwrap_err();
    let new = bed.nodes[2].provider_id_or_empty().rsplit('/').next().unwrap();
    let with_new = bed.aws.world(|world| {
        let groups = world.elbv2.groups.iter();
        groups
            .filter(|(_, group)| group.targets.values().any(|target| target.id == new))
            .map(|(arn, _)| arn.clone())
            .collect::<Vec<String>>()
    });
    assert!(with_new.len() == 1 && !with_new[0].contains(&hit), "{with_new:?}");
    bed.check();
}

/// AWS names no target in some refusals.
#[tokio::test]
async fn one_target_that_aws_refuses_without_its_name_fails_alone() {
    for (kind, service, action, code) in [
        ("nlb", "elbv2", "RegisterTargets", "InvalidTarget"),
        ("nlb", "elbv2", "RegisterTargets", "ValidationError"),
        ("clb", "elb", "RegisterInstancesWithLoadBalancer", "InvalidInstance"),
    ] {
        let mut bed = Bed::start("");
        let process = bed.process().await;
        let web = desired(kind, &[], &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        bed.add_nodes(3);
        let hit = bed.nodes.remove(4);
        let fault = Fault::Code { status: 400, code: code.to_owned(), message: "as the test says".to_owned() };
        let hit_id = hit.provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        bed.aws.fault(Rule { params: Some(hit_id), ..Rule::every(fault).on(service, action) });
        let nodes: Vec<_> = bed.nodes.iter().cloned().chain([hit]).collect();
        let _ = process.update(CLUSTER, &web, &nodes).await;
        follows(&bed, code);
        bed.check();
    }
}

#[tokio::test]
async fn a_refused_health_check_is_sent_again_when_the_service_changes_and_targets_follow_the_nodes_meanwhile() {
    let mut bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &desired("nlb", &[], &[(80, 31080)])).await;
    refuse(&bed, "elbv2", "ModifyTargetGroup", "ValidationError");
    for (threshold, sent) in [("5", 1), ("5", 1), ("5", 1), ("6", 2), ("6", 2)] {
        replace_node(&mut bed);
        let changed = desired("nlb", &[("healthcheck-healthy-threshold", threshold)], &[(80, 31080)]);
        let error = process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("as the test says"), "{threshold}: {error}");
        follows(&bed, threshold);
        let writes = bed.writes(0);
        assert_eq!(writes.iter().filter(|write| *write == "ModifyTargetGroup").count(), sent, "{threshold}");
        bed.aws.clock().step(Duration::from_secs(60));
    }
    bed.check();
}

/// Upstream reads the timeout of network balancers and never sends it.
#[tokio::test]
async fn a_timeout_that_aws_refuses_is_not_sent_and_stops_nothing() {
    for timeout in ["30", "1", "121"] {
        let mut bed = Bed::start("");
        let local = |annotations: &[(&str, &str)]| {
            let spec = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000});
            service("web", &[annotations, &[("type", "nlb")]].concat(), &[(80, 31080)], spec)
        };
        bed.ensure(&*bed.process().await, &local(&[])).await;
        let (process, cluster) = watched(&bed).await;
        let copied = local(&[("healthcheck-timeout", timeout)]);
        replace_node(&mut bed);
        let mark = bed.aws.mark();
        process.ensure(CLUSTER, &copied, &bed.nodes).await.unwrap();
        follows(&bed, timeout);
        assert!(!bed.writes(mark).contains(&"ModifyTargetGroup".to_owned()), "{timeout}: {:?}", bed.writes(mark));
        let events = cluster.take_events();
        assert!(events.iter().any(|event| event.contains("healthcheck-timeout")), "{timeout}: {events:?}");
        bed.check();
    }
}

/// Annotations without their prefix.
type Settings = &'static [(&'static str, &'static str)];
/// The kind of the balancer, its annotations, and the one that the error names.
type Refused = (&'static str, Settings, &'static str);

const LOGS_EVERY_MINUTE: Settings =
    &[("access-log-enabled", "true"), ("access-log-s3-bucket-name", "logs"), ("access-log-emit-interval", "1")];

/// A value that AWS refuses with the default of another setting is found before anything exists.
#[tokio::test]
async fn pairs_of_settings_that_aws_refuses_are_refused_before_the_first_write() {
    let cases: &[Refused] = &[
        ("nlb", &[("healthcheck-interval", "5")], "healthcheck-interval"),
        ("nlb", &[("healthcheck-interval", "9")], "healthcheck-interval"),
        ("nlb", &[("healthcheck-protocol", "http"), ("healthcheck-interval", "5")], "healthcheck-interval"),
        ("nlb", &[("healthcheck-protocol", "https"), ("healthcheck-interval", "6")], "healthcheck-interval"),
        ("nlb", &[("healthcheck-healthy-threshold", "11")], "healthcheck-healthy-threshold"),
        ("nlb", &[("internal", "true"), ("eip-allocations", "eipalloc-1,eipalloc-2")], "eip-allocations"),
        ("nlb", &[("private-ipv4-addresses", "10.0.0.5,10.0.1.5")], "private-ipv4-addresses"),
        ("clb", &[("healthcheck-interval", "5")], "healthcheck-interval"),
        ("clb", &[("healthcheck-timeout", "10")], "healthcheck-timeout"),
        ("clb", &[("healthcheck-timeout", "20"), ("healthcheck-interval", "20")], "healthcheck-timeout"),
        ("clb", &[("healthcheck-unhealthy-threshold", "11")], "healthcheck-unhealthy-threshold"),
        ("clb", &[("connection-idle-timeout", "4001")], "connection-idle-timeout"),
        ("clb", LOGS_EVERY_MINUTE, "access-log-emit-interval"),
        ("nlb", &[("healthcheck-protocol", "http"), ("healthcheck-path", "healthz")], "healthcheck-path"),
        ("clb", &[("healthcheck-protocol", "http"), ("healthcheck-path", "healthz")], "healthcheck-path"),
        ("nlb", &[("additional-resource-tags", "aws:owner=me")], "additional-resource-tags"),
        ("clb", &[("additional-resource-tags", "AWS:owner=me")], "additional-resource-tags"),
    ];
    let bed = Bed::start("");
    let process = bed.process().await;
    for (kind, annotations, key) in cases {
        let mark = bed.aws.mark();
        let web = desired(kind, annotations, &[(80, 31080)]);
        let error = process.ensure(CLUSTER, &web, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains(key), "{kind} {annotations:?}: {error}");
        assert_eq!(bed.writes(mark), [""; 0], "{kind} {annotations:?}");
    }
    // These fit, AWS agrees.
    let fitting: &[(&str, Settings)] = &[
        ("nlb", &[("healthcheck-interval", "10")]),
        ("nlb", &[("healthcheck-interval", "5"), ("healthcheck-timeout", "5")]),
        ("nlb", &[("healthcheck-protocol", "http"), ("healthcheck-interval", "6")]),
        ("clb", &[("healthcheck-interval", "6")]),
        ("clb", &[("healthcheck-timeout", "9")]),
    ];
    for (kind, annotations) in fitting {
        let web = desired(kind, annotations, &[(80, 31080)]);
        bed.ensure(&*process, &web).await;
        bed.delete(&*process, &web).await;
    }
    bed.check();
}

#[tokio::test]
async fn security_groups_that_cannot_be_read_keep_no_listener_from_its_change() {
    let bed = Bed::start("");
    bed.ensure(&*bed.process().await, &desired("nlb", &[], &[(80, 31080), (82, 31082)])).await;
    bed.aws.fault(Rule::every(Fault::Deny).on("ec2", "DescribeSecurityGroups"));
    let changed = desired("nlb", &[], &[(80, 31090), (81, 31081)]);
    let error = bed.process().await.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("DescribeSecurityGroups"), "{error}");
    let listeners = bed.aws.world(|world| {
        let to = |group: &str| world.elbv2.groups[group].settings.port;
        world.elbv2.listeners.values().map(|one| (one.port, to(&one.group))).collect::<BTreeSet<_>>()
    });
    assert_eq!(listeners, [(80, 31090), (81, 31081)].into());
    bed.aws.faults(Faults::clear);
    let process = bed.process().await;
    bed.ensure(&*process, &changed).await;
    bed.stays(&*process, &changed, 9).await;
    bed.check();
}

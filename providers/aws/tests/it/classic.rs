//! Classic balancers over HTTP.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::aws::elb::Policy;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::{Value, json};

use crate::bed::{Bed, CERTIFICATE, CLUSTER, USER_GROUP, service, shape_of, unknown};
use crate::leader::watched;

fn clb(annotations: &[(&str, &str)], ports: &[(i32, i32)], spec: Value) -> Service {
    service("web", annotations, ports, spec)
}

pub(crate) fn plain() -> Service {
    let annotations =
        [("proxy-protocol", "*"), ("connection-draining-enabled", "true"), ("healthcheck-protocol", "http")];
    clb(&annotations, &[(80, 31080), (443, 31443)], json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}))
}

/// Another desired state of the same Service, which changes most settings.
pub(crate) fn changed() -> Service {
    clb(
        &[
            ("ssl-cert", CERTIFICATE),
            ("ssl-ports", "443"),
            ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01"),
            ("cross-zone-load-balancing-enabled", "true"),
            ("connection-idle-timeout", "600"),
            ("additional-resource-tags", "team=web"),
        ],
        &[(443, 31443), (8443, 31844)],
        json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32000}),
    )
}

/// With a group of the user instead of the managed one.
pub(crate) fn named() -> Service {
    clb(&[("security-groups", USER_GROUP)], &[(80, 31080)], json!({}))
}

pub(crate) fn start() -> Bed {
    let bed = Bed::start("");
    bed.add_group(USER_GROUP, None, Vec::new());
    bed
}

#[tokio::test]
async fn a_balancer_is_made_changed_and_removed_without_a_trace() {
    let bed = start();
    let empty = shape_of(&bed);
    let process = bed.process().await;
    let status = bed.ensure(&*process, &plain()).await;
    assert!(status.ingress[0].hostname.ends_with(".us-west-2.elb.amazonaws.com"), "{status:?}");
    let made = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
    assert_eq!(made.listeners.keys().collect::<Vec<_>>(), [&80, &443]);
    assert_eq!(made.backends.keys().collect::<Vec<_>>(), [&31080, &31443]);
    assert_eq!((made.instances.len(), made.subnets.len()), (3, 2));
    assert_eq!(made.health_check.target, "HTTP:31080/");
    assert_eq!(process.get(CLUSTER, &plain()).await.unwrap(), Some(status));

    bed.ensure(&*process, &changed()).await;
    let now = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
    assert_eq!(now.listeners[&443].protocol, "SSL");
    assert_eq!(now.listeners[&443].policies, ["k8s-SSLNegotiationPolicy-ELBSecurityPolicy-TLS-1-2-2017-01"]);
    assert_eq!(now.backends.len(), 0, "{:?}", now.backends);
    assert_eq!(now.health_check.target, "HTTP:32000/healthz");
    assert_eq!((now.attributes.cross_zone, now.attributes.idle_timeout, now.attributes.draining), (true, 600, false));
    assert_eq!(now.tags.get("team").map(String::as_str), Some("web"));

    bed.ensure(&*process, &named()).await;
    let now = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
    assert_eq!(now.groups, [USER_GROUP]);
    let groups = bed.aws.world(|world| world.ec2.groups.len());
    assert_eq!(groups, empty.len(), "the managed group is gone");

    bed.delete(&*process, &named()).await;
    assert_eq!(shape_of(&bed), empty);
    assert_eq!(process.get(CLUSTER, &plain()).await.unwrap(), None);
    bed.check();
}

#[tokio::test]
async fn a_second_sync_and_a_restart_write_nothing() {
    let bed = start();
    let process = bed.process().await;
    for desired in [plain(), changed(), named()] {
        bed.ensure(&*process, &desired).await;
        bed.stays(&*process, &desired, 7).await;
    }
    bed.check();
}

#[tokio::test]
async fn nodes_come_and_go_in_one_call_each() {
    let mut bed = start();
    let process = bed.process().await;
    bed.ensure(&*process, &plain()).await;
    bed.add_nodes(2);
    bed.nodes.remove(0);
    let mark = bed.aws.mark();
    process.update(CLUSTER, &plain(), &bed.nodes).await.unwrap();
    assert_eq!(bed.writes(mark), ["RegisterInstancesWithLoadBalancer", "DeregisterInstancesFromLoadBalancer"]);
    assert_eq!(bed.aws.world(|world| world.elb.balancers.values().next().unwrap().instances.len()), 4);
    bed.check();
}

/// Upstream leaves the group behind forever.
#[tokio::test]
async fn a_creation_refused_for_its_quota_leaves_nothing_when_the_service_goes() {
    let bed = start();
    let empty = shape_of(&bed);
    bed.aws.change(|options| options.limits.classic_balancers = 0);
    let process = bed.process().await;
    let error = process.ensure(CLUSTER, &plain(), &bed.nodes).await.unwrap_err().to_string();
    assert!(error.contains("quota"), "{error}");
    assert_ne!(shape_of(&bed), empty);
    bed.delete(&*bed.process().await, &plain()).await;
    assert_eq!(shape_of(&bed), empty);
    bed.check();
}

/// AWS never changes the scheme.
#[tokio::test]
async fn another_scheme_is_a_warning_and_everything_else_goes_on() {
    let bed = start();
    let (process, cluster) = watched(&bed).await;
    let desired = |internal, port| clb(internal, &[(port, 31080)], json!({}));
    bed.ensure(&*process, &desired(&[], 80)).await;
    cluster.take_events();
    bed.ensure(&*process, &desired(&[("internal", "true")], 81)).await;
    let events = cluster.take_events();
    let summary =
        |event: &&String| event.contains("the load balancer stays internet-facing: AWS cannot change the scheme");
    assert_eq!(events.iter().filter(summary).count(), 1, "{events:?}");
    let made = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
    assert_eq!((made.listeners.keys().collect::<Vec<_>>(), made.internal, made.subnets.len()), (vec![&81], false, 2));
    // The reverse change fails too.
    bed.delete(&*process, &desired(&[("internal", "true")], 81)).await;
    bed.ensure(&*process, &desired(&[("internal", "true")], 81)).await;
    cluster.take_events();
    bed.ensure(&*process, &desired(&[], 80)).await;
    assert!(cluster.take_events().iter().any(|event| event.contains("the load balancer stays internal")));
    bed.check();
}

/// Only the balancer that has the group shows that this program created the rule.
#[tokio::test]
async fn a_rule_for_a_group_of_the_user_goes_with_it_also_when_aws_shows_it_late() {
    let bed = start();
    let empty = shape_of(&bed);
    let (process, _cluster) = watched(&bed).await;
    bed.ensure(&*process, &plain()).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.aws.change(|options| options.stale_reads = Duration::from_secs(3));
    // The managed group still exists when it is attached to the balancer again.
    let held = Fault::Code { status: 400, code: "DependencyViolation".to_owned(), message: String::new() };
    bed.aws.fault(Rule { action: Some("DeleteSecurityGroup".to_owned()), ..Rule::every(held) });
    process.ensure(CLUSTER, &named(), &bed.nodes).await.unwrap_err();
    bed.aws.faults(Faults::clear);
    let error = process.ensure(CLUSTER, &plain(), &bed.nodes).await.unwrap_err();
    assert!(error.is_in_progress(), "{error:?}");
    bed.ensure(&*process, &plain()).await;
    bed.aws.clock().step(Duration::from_secs(60));
    bed.delete(&*process, &plain()).await;
    assert_eq!(shape_of(&bed), empty);
}

#[tokio::test]
async fn what_an_annotation_had_set_goes_back_to_its_default_with_it() {
    let bed = start();
    let process = bed.process().await;
    let common = [
        ("connection-draining-enabled", "true"),
        ("access-log-enabled", "true"),
        ("access-log-s3-bucket-name", "logs"),
    ];
    let more = [
        ("connection-draining-timeout", "60"),
        ("access-log-emit-interval", "5"),
        ("access-log-s3-bucket-prefix", "web"),
        ("connection-idle-timeout", "600"),
        ("cross-zone-load-balancing-enabled", "true"),
        ("proxy-protocol", "*"),
        ("healthcheck-interval", "30"),
    ];
    let ports = [(80, 31080)];
    bed.ensure(&*process, &clb(&common, &ports, json!({}))).await;
    let never = shape_of(&bed);
    let all: Vec<(&str, &str)> = common.into_iter().chain(more).collect();
    bed.ensure(&*process, &clb(&all, &ports, json!({}))).await;
    assert_ne!(shape_of(&bed), never);
    bed.ensure(&*process, &clb(&common, &ports, json!({}))).await;
    assert_eq!(shape_of(&bed), never);
    let mark = bed.aws.mark();
    bed.ensure(&*process, &clb(&common, &ports, json!({}))).await;
    assert_eq!(bed.writes(mark), Vec::<String>::new());
    bed.check();
}

/// AWS takes one subnet of a zone, so the former one is detached first. `InvalidSubnet` may pass.
#[tokio::test]
async fn a_subnet_whose_successor_is_refused_stays_attached() {
    for code in ["InvalidConfigurationRequest", "InvalidSubnet", "SubnetNotFound"] {
        let bed = start();
        let process = bed.process().await;
        let (public, private) = (&bed.network.public, &bed.network.private);
        let named = |subnets: &[&String]| {
            let subnets: Vec<&str> = subnets.iter().map(|id| id.as_str()).collect();
            clb(&[("subnets", &subnets.join(","))], &[(80, 31080)], json!({}))
        };
        let attached = || -> BTreeSet<String> {
            bed.aws.world(|world| world.elb.balancers.values().next().unwrap().subnets.keys().cloned().collect())
        };
        bed.ensure(&*process, &named(&[&public[0], &public[1]])).await;
        let before = attached();
        let fault = Fault::Code { status: 400, code: code.to_owned(), message: "no".to_owned() };
        let rule = Rule::every(fault).on("elb", "AttachLoadBalancerToSubnets");
        bed.aws.fault(Rule { params: Some(private[0].clone()), ..rule });
        let mark = bed.aws.mark();
        for sync in 0..3 {
            process.ensure(CLUSTER, &named(&[&private[0], &public[1]]), &bed.nodes).await.unwrap_err();
            assert_eq!(attached(), before, "{code}, sync {sync}");
        }
        let detached = bed.writes(mark).into_iter().filter(|write| write == "DetachLoadBalancerFromSubnets").count();
        assert_eq!(detached, 1, "{code}");
        // The other zone moves nevertheless.
        process.ensure(CLUSTER, &named(&[&private[0], &private[1]]), &bed.nodes).await.unwrap_err();
        assert_eq!(attached(), [public[0].clone(), private[1].clone()].into(), "{code}");
        bed.aws.faults(Faults::clear);
        let annotations = [("subnets", &*[&*private[0], &*private[1]].join(",")), ("connection-idle-timeout", "61")];
        bed.ensure(&*process, &clb(&annotations, &[(80, 31080)], json!({}))).await;
        assert_eq!(attached(), private.iter().cloned().collect(), "{code}");
        bed.check();
    }
}

/// The listener that is kept would send connections to its pods without the header that they demand.
#[tokio::test]
async fn a_listener_that_is_kept_for_a_refused_certificate_keeps_its_proxy_protocol() {
    let bed = start();
    let tls = |certificate, ports: &[(i32, i32)]| {
        clb(&[("proxy-protocol", "*"), ("ssl-cert", certificate), ("ssl-ports", "443")], ports, json!({}))
    };
    bed.ensure(&*bed.process().await, &tls(CERTIFICATE, &[(80, 31080), (443, 31443)])).await;
    let unknown = "arn:aws:acm:us-west-2:123456789012:certificate/other";
    let changed = tls(unknown, &[(443, 31443)]);
    for _ in 0..2 {
        bed.process().await.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err();
        let balancer = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
        assert!(balancer.listeners.contains_key(&80));
        assert_eq!(balancer.backends.keys().collect::<Vec<_>>(), [&31080, &31443]);
    }
    bed.aws.world(|world| world.elb.add_certificate(unknown));
    bed.ensure(&*bed.process().await, &changed).await;
    let balancer = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
    assert!(!balancer.listeners.contains_key(&80));
    assert_eq!(balancer.backends.keys().collect::<Vec<_>>(), [&31443]);
    bed.check();
}

/// AWS keeps them when it sets the certificate in place; if that is refused, the listener is replaced.
#[tokio::test]
async fn another_certificate_leaves_a_listener_its_policies() {
    for refusal in [None, Some(Fault::Deny), Some(unknown())] {
        let (bed, denied) = (start(), refusal.is_some());
        let tls = |certificate| {
            let policy = ("ssl-negotiation-policy", "ELBSecurityPolicy-TLS-1-2-2017-01");
            clb(&[policy, ("ssl-cert", certificate)], &[(443, 31443)], json!({}))
        };
        bed.ensure(&*bed.process().await, &tls(CERTIFICATE)).await;
        if let Some(refusal) = refusal {
            bed.aws.fault(Rule::every(refusal).on("elb", "SetLoadBalancerListenerSSLCertificate"));
        }
        let policies = || {
            bed.aws.world(|world| {
                let balancer = world.elb.balancers.values_mut().next().unwrap();
                let kind = "LBCookieStickinessPolicyType".to_owned();
                balancer.policies.insert("sticky".to_owned(), Policy { kind, attributes: Vec::new() });
                let listener = balancer.listeners.get_mut(&443).unwrap();
                listener.policies.sort();
                (listener.certificate.clone(), listener.policies.clone())
            })
        };
        policies();
        bed.aws.world(|world| {
            let balancer = world.elb.balancers.values_mut().next().unwrap();
            balancer.listeners.get_mut(&443).unwrap().policies.push("sticky".to_owned());
        });
        let (_, both) = policies();
        assert_eq!(both.len(), 2);
        let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
        for attempt in 0..3 {
            let mark = bed.aws.mark();
            bed.process().await.ensure(CLUSTER, &tls(other), &bed.nodes).await.unwrap_err();
            let sets = |write: &String| write.starts_with("SetLoadBalancerPolicies");
            assert!(denied || !bed.writes(mark).iter().any(sets), "{attempt}: {:?}", bed.writes(mark));
            assert_eq!(policies(), (Some(CERTIFICATE.to_owned()), both.clone()), "denied: {denied}, {attempt}");
        }
        bed.aws.world(|world| world.elb.add_certificate(other));
        let mark = bed.aws.mark();
        let process = bed.process().await;
        bed.ensure(&*process, &tls(other)).await;
        assert!(denied || bed.writes(mark) == ["SetLoadBalancerListenerSSLCertificate"], "{:?}", bed.writes(mark));
        assert_eq!(policies(), (Some(other.to_owned()), both), "denied: {denied}");
        bed.stays(&*process, &tls(other), 9).await;
        bed.check();
    }
}

/// AWS takes no listener whose backends have TLS beside one with the same instance port whose backends have none.
#[tokio::test]
async fn a_port_with_another_number_may_change_between_plain_and_tls_backends() {
    let plain = clb(&[], &[(80, 31080)], json!({}));
    let tls = |backend, port| {
        clb(
            &[("ssl-cert", CERTIFICATE), ("ssl-ports", "443"), ("backend-protocol", backend)],
            &[(port, 31080)],
            json!({}),
        )
    };
    for (from, to, expected) in [
        (plain.clone(), tls("https", 443), (443, "HTTPS", "HTTPS")),
        (plain.clone(), tls("ssl", 443), (443, "SSL", "SSL")),
        (tls("https", 443), plain, (80, "TCP", "TCP")),
        // Port 8443 is none of `ssl-ports`.
        (tls("https", 443), tls("https", 8443), (8443, "TCP", "TCP")),
    ] {
        let bed = start();
        let process = bed.process().await;
        bed.ensure(&*process, &from).await;
        bed.ensure(&*process, &to).await;
        let balancer = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
        let listeners = balancer.listeners.iter();
        let listeners: Vec<_> = listeners.map(|(port, one)| (*port, &*one.protocol, &*one.instance_protocol)).collect();
        assert_eq!(listeners, [expected]);
        assert_eq!(admitted(&bed), [expected.0].into());
        bed.stays(&*process, &to, 9).await;
        bed.check();
    }
}

/// The ports that the managed group lets clients in to.
fn admitted(bed: &Bed) -> BTreeSet<u16> {
    bed.aws.world(|world| {
        let group = world.ec2.groups.values().find(|group| group.name.starts_with("k8s-elb-")).unwrap();
        let rules = group.ingress.iter().filter(|rule| rule.protocol == "tcp");
        rules.map(|rule| u16::try_from(rule.from.unwrap()).unwrap()).collect()
    })
}

/// With TLS to the nodes too, it is deleted and created again.
#[tokio::test]
async fn a_port_whose_successor_lacks_its_certificate_serves_its_clients_until_there_is_one() {
    let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
    for backend in ["tcp", "https"] {
        let bed = start();
        let process = bed.process().await;
        bed.ensure(&*process, &clb(&[], &[(80, 31080)], json!({}))).await;
        let changed = clb(&[("ssl-cert", other), ("backend-protocol", backend)], &[(443, 31080)], json!({}));
        let mark = bed.aws.mark();
        for attempt in 0..3 {
            let error = process.ensure(CLUSTER, &changed, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains(other), "{error}");
            let balancer = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
            assert_eq!(balancer.listeners.keys().collect::<Vec<_>>(), [&80], "{backend}, {attempt}");
            assert!(admitted(&bed).contains(&80), "{backend}, {attempt}");
        }
        let deletions = bed.writes(mark).into_iter().filter(|write| write == "DeleteLoadBalancerListeners").count();
        assert_eq!(deletions, usize::from(backend == "https"));
        bed.aws.world(|world| world.elb.add_certificate(other));
        bed.ensure(&*bed.process().await, &changed).await;
        let balancer = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().clone());
        assert_eq!(balancer.listeners.keys().collect::<Vec<_>>(), [&443], "{backend}");
        assert_eq!(admitted(&bed), [443].into(), "{backend}");
        bed.check();
    }
}

//! Certificates that AWS does not know: the port serves with the former one, and follows its node port.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, Service};
use serde_json::json;

use crate::bed::{Bed, CERTIFICATE, CLUSTER, PREFIX, service};

const GONE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/gone";

fn web(kind: &str, certificate: Option<&str>, ports: &[(i32, i32)]) -> Service {
    let mut annotations = vec![("type", kind), ("ssl-ports", "443")];
    annotations.extend(certificate.map(|certificate| ("ssl-cert", certificate)));
    service("web", &annotations, ports, json!({}))
}

/// The certificate and the node port of the only listener of a network balancer.
fn listener(bed: &Bed) -> (String, Option<String>, i32) {
    bed.aws.world(|world| {
        let listeners: Vec<_> = world.elbv2.listeners.values().collect();
        let [one] = &*listeners else { panic!("{listeners:?}") };
        (one.protocol.clone(), one.certificate.clone(), world.elbv2.groups[&one.group].settings.port.into())
    })
}

#[tokio::test]
async fn a_port_with_an_unknown_certificate_moves_to_its_new_node_port() {
    for former in [Some(CERTIFICATE), None] {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &web("nlb", former, &[(443, 31443)])).await;
        let (protocol, certificate, _) = listener(&bed);
        for sync in 0..3 {
            let moved = web("nlb", Some(GONE), &[(443, 31843)]);
            let error = process.ensure(CLUSTER, &moved, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains("certificate/gone"), "{former:?}, sync {sync}: {error}");
            assert!(!error.contains("interrupts"), "no listener was deleted: {error}");
            let served = (protocol.clone(), certificate.clone(), 31843);
            assert_eq!(listener(&bed), served, "{former:?}, sync {sync}");
        }
        let right = web("nlb", Some(CERTIFICATE), &[(443, 31843)]);
        bed.ensure(&*process, &right).await;
        assert_eq!(listener(&bed), ("TLS".to_owned(), Some(CERTIFICATE.to_owned()), 31843), "{former:?}");
        assert_eq!(bed.hosts(), [3], "{former:?}");
        bed.check();
    }
}

/// AWS has a default policy only for new listeners.
#[tokio::test]
async fn a_port_of_a_network_balancer_that_gets_tls_gets_the_default_policy() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web("nlb", None, &[(443, 31443)])).await;
    let (mark, tls) = (bed.aws.mark(), web("nlb", Some(CERTIFICATE), &[(443, 31443)]));
    bed.ensure(&*process, &tls).await;
    assert_eq!(bed.writes(mark), ["ModifyListener"]);
    let policies: Vec<_> =
        bed.aws.world(|world| world.elbv2.listeners.values().map(|one| one.policy.clone()).collect());
    assert_eq!(policies, [Some("ELBSecurityPolicy-2016-08".to_owned())]);
    bed.stays(&*process, &tls, 9).await;
    bed.check();
}

/// AWS may know the certificate later, but each attempt would cut connections.
#[tokio::test]
async fn a_port_of_a_classic_balancer_is_closed_once_for_an_unknown_certificate() {
    let cases = [
        ("a new node port", Some(CERTIFICATE), 31843, false),
        ("without TLS before", None, 31443, false),
        ("a role that may not set certificates", Some(CERTIFICATE), 31443, true),
    ];
    for (case, former, node_port, is_denied) in cases {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &web("clb", former, &[(443, 31443)])).await;
        if is_denied {
            bed.aws.fault(Rule::every(Fault::Deny).on("elb", "SetLoadBalancerListenerSSLCertificate"));
        }
        let listeners = || bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners.clone());
        let before = listeners();
        let mark = bed.aws.mark();
        for sync in 0..3 {
            let wrong = web("clb", Some(GONE), &[(443, node_port)]);
            let error = process.ensure(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains("certificate/gone"), "{case}, sync {sync}: {error}");
            assert_eq!(listeners(), before, "{case}, sync {sync}");
            bed.later(Duration::from_secs(301)).await;
        }
        let closed = bed.writes(mark).into_iter().filter(|write| write == "DeleteLoadBalancerListeners").count();
        assert!(closed <= 1, "{case}: closed {closed} times");
        bed.aws.faults(Faults::clear);
        bed.ensure(&*process, &web("clb", Some(CERTIFICATE), &[(443, node_port)])).await;
        assert_eq!(listeners()[&443].certificate.as_deref(), Some(CERTIFICATE), "{case}");
        bed.check();
    }
}

/// Each attempt would cut connections.
#[tokio::test]
async fn a_port_of_a_classic_balancer_is_closed_once_for_a_listener_that_the_role_may_not_create() {
    for (case, node_port, denies_certificate) in [("a new node port", 31843, false), ("a certificate", 31443, true)] {
        let bed = Bed::start("");
        let process = bed.process().await;
        let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
        bed.aws.world(|world| world.elb.add_certificate(other));
        bed.ensure(&*process, &web("clb", Some(CERTIFICATE), &[(443, 31443)])).await;
        if denies_certificate {
            bed.aws.fault(Rule::every(Fault::Deny).on("elb", "SetLoadBalancerListenerSSLCertificate"));
        }
        let create = Rule::every(Fault::Deny).on("elb", "CreateLoadBalancerListeners");
        bed.aws.fault(Rule { params: Some("certificate/other".to_owned()), ..create });
        let mark = bed.aws.mark();
        for sync in 0..3 {
            let wanted = web("clb", Some(other), &[(443, node_port)]);
            let error = process.ensure(CLUSTER, &wanted, &bed.nodes).await.unwrap_err().to_string();
            assert!(error.contains("CreateLoadBalancerListeners"), "{case}, sync {sync}: {error}");
            bed.later(Duration::from_secs(301)).await;
        }
        let closed = bed.writes(mark).into_iter().filter(|write| write == "DeleteLoadBalancerListeners").count();
        assert_eq!(closed, 1, "{case}");
        bed.check();
    }
}

fn secured(certificate: &str, ports: &[(i32, i32)]) -> Service {
    let mut web = web("clb", Some(certificate), ports);
    let key = format!("{PREFIX}ssl-negotiation-policy");
    web.metadata.annotations.insert(key, "ELBSecurityPolicy-TLS-1-2-2017-01".into());
    web
}

/// A policy costs no write per attempt.
#[tokio::test]
async fn a_listener_that_comes_back_has_its_policy_and_each_refused_sync_leaves_it_alone() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let secured = |certificate, node_port| secured(certificate, &[(443, node_port)]);
    bed.ensure(&*process, &secured(CERTIFICATE, 31443)).await;
    let listeners = || bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners.clone());
    let before = listeners();
    for sync in 0..3 {
        let mark = bed.aws.mark();
        process.ensure(CLUSTER, &secured(GONE, 31843), &bed.nodes).await.unwrap_err();
        assert_eq!(listeners(), before, "sync {sync}");
        let writes = bed.writes(mark);
        assert!(sync == 0 || writes.is_empty(), "sync {sync}: {writes:?}");
        bed.later(Duration::from_secs(301)).await;
    }
    bed.ensure(&*process, &secured(CERTIFICATE, 31843)).await;
    assert_eq!(listeners()[&443].policies, before[&443].policies);
    bed.check();
}

#[tokio::test]
async fn a_new_listener_has_its_policy_at_once_although_another_one_is_refused_or_no_answer_comes() {
    let refused = Fault::Code { status: 400, code: "ValidationError".to_owned(), message: String::new() };
    for (fault, params) in [(refused, Some("31880")), (Fault::ResetAfter, None)] {
        let bed = Bed::start("");
        let process = bed.process().await;
        bed.ensure(&*process, &secured(CERTIFICATE, &[(443, 31443), (80, 31080)])).await;
        let listener = || bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners[&443].clone());
        let before = listener();
        let case = format!("{fault:?}");
        let create = Rule::every(fault).on("elb", "CreateLoadBalancerListeners");
        bed.aws.fault(Rule { params: params.map(str::to_owned), ..create });
        let moved = secured(CERTIFICATE, &[(443, 31843), (80, 31880)]);
        process.ensure(CLUSTER, &moved, &bed.nodes).await.unwrap_err();
        assert_eq!((listener().instance_port, listener().policies), (31843, before.policies), "{case}");
        bed.check();
    }
}

/// The Go program sets no policies either, unless an annotation names one.
#[tokio::test]
async fn a_listener_that_is_replaced_for_its_certificate_keeps_the_default_policy_without_a_permission() {
    let bed = Bed::start("");
    let process = bed.process().await;
    bed.ensure(&*process, &web("clb", Some(CERTIFICATE), &[(443, 31443)])).await;
    for action in ["SetLoadBalancerListenerSSLCertificate", "SetLoadBalancerPoliciesOfListener"] {
        bed.aws.fault(Rule::every(Fault::Deny).on("elb", action));
    }
    let other = "arn:aws:acm:us-west-2:123456789012:certificate/other";
    bed.aws.world(|world| world.elb.add_certificate(other));
    bed.ensure(&*process, &web("clb", Some(other), &[(443, 31443)])).await;
    let listener = bed.aws.world(|world| world.elb.balancers.values().next().unwrap().listeners[&443].clone());
    assert_eq!(listener.certificate.as_deref(), Some(other));
    assert_eq!(listener.policies, ["ELBSecurityPolicy-2016-08"]);
    bed.check();
}

/// The protocol of a port takes a new listener.
#[tokio::test]
async fn a_listener_is_created_again_if_the_certificate_of_its_successor_is_unknown() {
    let bed = Bed::start("");
    let process = bed.process().await;
    let mut before = web("nlb", None, &[(443, 31443)]);
    before.spec.ports[0].protocol = "UDP".to_owned();
    bed.ensure(&*process, &before).await;
    let mark = bed.aws.mark();
    for sync in 0..3 {
        let wrong = web("nlb", Some(GONE), &[(443, 31443)]);
        let error = process.ensure(CLUSTER, &wrong, &bed.nodes).await.unwrap_err().to_string();
        assert!(error.contains("each attempt interrupts the traffic"), "sync {sync}: {error}");
        assert_eq!(listener(&bed), ("UDP".to_owned(), None, 31443), "sync {sync}");
    }
    let closed = bed.writes(mark).into_iter().filter(|write| write == "DeleteListener").count();
    assert_eq!(closed, 1);
    bed.check();
}

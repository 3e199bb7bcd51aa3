//! Reads without a usable answer: nothing of others changes, no deletion is done with something left, and the error names
//! what was not read.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{LoadBalancerExt as _, LoadBalancerIngress, Service};
use futures::{StreamExt as _, future, stream};
use serde_json::json;

use crate::bed::{Bed, CLUSTER, service, shape_of};

const MANAGED: &str = "NLBSecurityGroupMode = Managed";

fn web(kind: &str, ports: &[(i32, i32)]) -> Service {
    let annotations = [("type", kind), ("cross-zone-load-balancing-enabled", "true")];
    service("web", &annotations, ports, json!({}))
}

/// The reads of a change and a deletion by new processes, with their services.
async fn reads(kind: &str) -> BTreeSet<(String, String)> {
    let bed = Bed::start(MANAGED);
    bed.ensure(&*bed.process().await, &web(kind, &[(80, 31080)])).await;
    let process = bed.process().await;
    let mark = bed.aws.mark();
    let changed = web(kind, &[(80, 31081)]);
    bed.ensure(&*process, &changed).await;
    bed.delete(&*bed.process().await, &changed).await;
    bed.aws.ledger(|ledger| {
        let reads = ledger.since(mark).filter(|entry| entry.action.starts_with("Describe"));
        reads.map(|entry| (entry.service.clone(), entry.action.clone())).collect()
    })
}

/// What goes wrong while a read has this fault.
async fn unanswered(kind: &str, (service, read): &(String, String), fault: &Fault) -> Option<String> {
    let bed = Bed::start(MANAGED);
    let empty = shape_of(&bed);
    let first = web(kind, &[(80, 31080)]);
    bed.ensure(&*bed.process().await, &first).await;
    let names = |shape: &[String]| -> BTreeSet<String> {
        shape.iter().map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" ")).collect()
    };
    let before = names(&shape_of(&bed));
    let process = bed.process().await;
    bed.aws.fault(Rule::every(fault.clone()).on(service, read));
    let mut changed = web(kind, &[(80, 31080), (443, 31443)]);
    changed.spec.load_balancer_source_ranges = Some(vec!["192.0.2.0/24".to_owned()]);
    let answer = process.ensure(CLUSTER, &changed, &bed.nodes).await;
    let after = names(&shape_of(&bed));
    let lost: Vec<&String> = before.difference(&after).collect();
    let mut problem = (!lost.is_empty()).then(|| format!("{kind}: {fault:?} of {read}: lost {lost:?}: {answer:?}"));
    match process.ensure_deleted(CLUSTER, &first).await {
        Ok(()) if shape_of(&bed) == empty => {}
        Err(error) if error.is_in_progress() || error.to_string().contains(read) => {}
        answer => problem = Some(format!("{kind}: {fault:?} of {read}: {answer:?} with {:#?}", shape_of(&bed))),
    }
    bed.aws.faults(Faults::clear);
    // A shared read that failed a moment ago is not repeated at once.
    while process.ensure_deleted(CLUSTER, &first).await.is_err() {
        bed.aws.clock().step(Duration::from_secs(5));
    }
    if shape_of(&bed) != empty {
        problem.get_or_insert(format!("{kind}: {fault:?} of {read}: left {:#?}", shape_of(&bed)));
    }
    problem
}

/// Answers that are none.
fn faults() -> [Fault; 2] {
    let code = Fault::Code { status: 501, code: "NotImplemented".to_owned(), message: String::new() };
    [code, Fault::Status { status: 200, body: "{}".to_owned() }]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_without_an_answer_loses_nothing_and_holds_the_deletion_up() {
    for kind in ["nlb", "clb"] {
        let reads = reads(kind).await;
        assert!(reads.iter().any(|(_, read)| read == "DescribeSecurityGroups") && reads.len() > 4, "{reads:?}");
        let cases: Vec<_> =
            reads.iter().flat_map(|read| faults().into_iter().map(move |fault| (read, fault))).collect();
        let problems = stream::iter(&cases).map(|(read, fault)| unanswered(kind, read, fault));
        let problems: Vec<String> = problems.buffer_unordered(8).filter_map(future::ready).collect().await;
        assert!(problems.is_empty(), "{problems:#?}");
    }
}

const CLASSIC: &str = "Elastic Load Balancing";
const NETWORK: &str = "Elastic Load Balancing v2";
const MINUTE: Duration = Duration::from_secs(60);

/// Upstream calls only the one that the annotation selects.
#[tokio::test]
async fn an_api_that_a_service_does_not_use_need_not_be_there() {
    for (kind, unused, other) in [("clb", NETWORK, "network"), ("nlb", CLASSIC, "classic")] {
        let mut bed = Bed::start(MANAGED);
        let empty = shape_of(&bed);
        let (process, cluster) = bed.without(&[unused]).await;
        let warned = || {
            let events = cluster.take_events();
            let is_it = |event: &&String| event.contains(&format!("not known whether a {other} one is left"));
            (events.iter().filter(is_it).count(), events)
        };
        let mut first = web(kind, &[(80, 31080)]);
        first.status.load_balancer = bed.ensure(&*process, &first).await;
        assert!(matches!(warned(), (1, _)), "{kind}");
        bed.add_nodes(1);
        process.update(CLUSTER, &first, &bed.nodes).await.unwrap();
        bed.ensure(&*process, &first).await;
        assert_eq!(bed.hosts(), [4], "{kind}");
        assert!(matches!(warned(), (0, _)), "{kind}: the one that is there was found");
        bed.aws.clock().step(MINUTE);
        bed.delete(&*process, &first).await;
        assert_eq!(shape_of(&bed), empty, "{kind}");
        let (warnings, events) = warned();
        assert!(warnings > 0, "{kind}: {events:?}");
        bed.check();
    }
}

/// Upstream makes no call.
#[tokio::test]
async fn a_service_of_another_controller_can_be_deleted_where_an_api_is_not_there() {
    for missing in [&[NETWORK][..], &[CLASSIC], &[CLASSIC, NETWORK]] {
        let bed = Bed::start("");
        let mut theirs = web("external", &[(80, 31080)]);
        let hostname = "k8s-shop-web-0123456789.elb.us-west-2.amazonaws.com".to_owned();
        let ingress = LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() };
        theirs.status.load_balancer.ingress = vec![ingress];
        let (process, _) = bed.without(missing).await;
        // It may be a short failure.
        process.ensure_deleted(CLUSTER, &theirs).await.unwrap_err();
        bed.aws.clock().step(MINUTE);
        process.ensure_deleted(CLUSTER, &theirs).await.unwrap();
    }
}

/// A network load balancer whose status was lost, and whose Service has a classic one now.
#[tokio::test]
async fn what_is_left_from_an_earlier_annotation_goes_with_the_service_after_a_failure_of_its_api() {
    let failures = [Fault::Throttle, Fault::Status { status: 503, body: String::new() }, Fault::ResetBefore];
    for (failure, restarts) in failures.into_iter().flat_map(|failure| [(failure.clone(), false), (failure, true)]) {
        let bed = Bed::start(MANAGED);
        let empty = shape_of(&bed);
        let mut process = bed.process().await;
        bed.ensure(&*process, &web("nlb", &[(80, 31080)])).await;
        let mut now = web("clb", &[(80, 31080)]);
        now.status.load_balancer = bed.ensure(&*process, &now).await;
        bed.aws.fault(Rule::every(failure.clone()).on("elbv2", "DescribeLoadBalancers"));
        if restarts {
            process = bed.process().await;
        }
        for _ in 0..2 {
            let error = process.ensure_deleted(CLUSTER, &now).await.unwrap_err().to_string();
            assert!(error.contains("DescribeLoadBalancers"), "{failure:?}, restarts: {restarts}: {error}");
            bed.aws.clock().step(MINUTE);
        }
        bed.aws.faults(Faults::clear);
        bed.later(MINUTE).await;
        bed.delete(&*bed.process().await, &now).await;
        assert_eq!(shape_of(&bed), empty, "{failure:?}, restarts: {restarts}");
    }
}

use super::*;
use crate::node::fleet;
use crate::tests::env;
use crate::tests::world::World;

#[tokio::test(start_paused = true)]
async fn a_service_that_has_not_been_reached_for_a_minute_and_never_before_is_absent() {
    let api = World::default().api();
    let zones = Arc::new(Zones::new(api.clone()));
    let reads = Reads::new(api.clone(), fleet::new(api), zones, Cluster::default(), &env());
    let operation = Operation::new(Service::ElbV2, "DescribeLoadBalancers");
    let silence: Answer<()> = Err(ApiError::of_kind(operation, ErrorKind::NotSent, "nobody listens"));
    reads.heard(Service::ElbV2, &silence);
    assert!(!reads.is_absent(Service::ElbV2), "it may be a short failure");
    tokio::time::advance(SHORT).await;
    assert!(!reads.is_absent(Service::ElbV2), "nobody has asked since");
    tokio::time::advance(LONG - SHORT).await;
    reads.heard(Service::ElbV2, &silence);
    assert!(!reads.is_absent(Service::ElbV2), "two short failures, far apart");
    tokio::time::advance(SHORT).await;
    reads.heard(Service::ElbV2, &silence);
    assert!(reads.is_absent(Service::ElbV2) && !reads.is_absent(Service::Elb));
    let busy = ApiError { status: Some(503), ..ApiError::of_kind(operation, ErrorKind::NoAnswer, "busy") };
    for answer in [Ok(()), Err(ApiError::refused(operation, "ValidationError", "")), Err(busy)] {
        reads.remembered.lock().silent.clear();
        for answer in [&answer, &silence, &silence] {
            reads.heard(Service::ElbV2, answer);
            tokio::time::advance(SHORT).await;
        }
        assert!(!reads.is_absent(Service::ElbV2), "it is down");
    }
}

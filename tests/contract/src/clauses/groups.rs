//! Services that share cloud objects, with or without a common group.

use std::sync::Arc;

use ccm_provider::{NodeRef, Service, ServiceAction, ServiceWork};

use super::balancers::{deleted, ensured, goes_whole, got, is_settled};
use crate::bed::{Bed, failed, holds};
use crate::{Harness, Outcome, Result};

/// Two Services that share, or are in one group as all are.
async fn sharing(bed: &Bed) -> Result<[Service; 2]> {
    let balancer = bed.balancer()?;
    let mut services = [bed.service("service-1"), bed.service("service-2")];
    let share = services.iter_mut().all(|service| bed.harness.share(service));
    let [one, two] = services.each_ref().map(|service| balancer.groups(service));
    match share || !one.is_disjoint(&two) {
        true => Ok(services),
        false => Err(Outcome::NotApplicable("no Services have a common group")),
    }
}

/// Executes two work items as the core does, concurrently.
async fn at_once(bed: &Bed, what: [(&Service, ServiceAction); 2], nodes: &[NodeRef]) -> Result {
    let work = what.map(|(service, action)| {
        let nodes = if action == ServiceAction::Delete { Arc::from([]) } else { Arc::from(nodes) };
        ServiceWork { service: Arc::new(service.clone()), nodes, action, namespace: None }
    });
    for answer in bed.reconciled(&work).await? {
        answer.map_err(failed(&format!("{:?} at the same time", what.map(|(_, action)| action))))?;
    }
    Ok(())
}

/// Creates, changes and deletes two Services concurrently; the result must be the same as one after the other.
async fn side_by_side(bed: &Bed, [one, two]: &[Service; 2]) -> Result {
    use ServiceAction::{Delete, Ensure};
    let (nodes, empty) = (bed.nodes(&["one", "two"]).await, bed.contents().await);
    let first = ensured(bed, one, &nodes).await?;
    let alone = bed.contents().await;
    let second = ensured(bed, two, &nodes).await?;
    let both = bed.contents().await;
    for (actions, want) in [([Ensure, Delete], &alone), ([Ensure, Ensure], &both), ([Delete, Delete], &empty)] {
        at_once(bed, [(one, actions[0]), (two, actions[1])], &nodes).await?;
        let now = bed.contents().await;
        let differ: Vec<&String> = now.symmetric_difference(want).collect();
        holds!(differ.is_empty(), "{actions:?} at the same time differs from one after the other: {differ:?}");
    }
    at_once(bed, [(one, Ensure), (two, Ensure)], &nodes).await?;
    // The assignment of addresses to Services may differ.
    let (now, apart) = (bed.contents().await, !first.same_as(&second));
    holds!(now.len() == both.len(), "made at the same time: {now:?}; made one after the other: {both:?}");
    let (first, second) = (ensured(bed, one, &nodes).await?, ensured(bed, two, &nodes).await?);
    holds!(apart != first.same_as(&second), "made at the same time they have {first:?} and {second:?}");
    at_once(bed, [(one, Delete), (two, Ensure)], &nodes).await?;
    is_settled(bed, two, &nodes).await?;
    goes_whole(bed, two, &empty).await
}

pub(super) async fn services_at_the_same_time_end_as_one_after_the_other(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    side_by_side(&bed, &[bed.service("service-1"), bed.service("service-2")]).await
}

pub(super) async fn services_that_share_have_one_group(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let (balancer, services) = (bed.balancer()?, sharing(&bed).await?);
    let [first, second] = services.map(|service| balancer.groups(&service));
    holds!(first == second, "two Services that share have the groups {first:?} and {second:?}");
    Ok(())
}

pub(super) async fn a_refused_service_gets_nothing_and_the_other_everything(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    bed.balancer()?;
    let (mut bad, mut good) = (bed.service("service-1"), bed.service("service-2"));
    // One call for both, if the provider has groups.
    for service in [&mut bad, &mut good] {
        bed.harness.share(service);
    }
    if !bed.harness.refuse(&mut bad) {
        return Err(Outcome::NotApplicable("the harness refuses no Service"));
    }
    let (nodes, empty) = (bed.nodes(&["one", "two"]).await, bed.contents().await);
    ensured(&bed, &good, &nodes).await?;
    let alone = bed.contents().await;
    goes_whole(&bed, &good, &empty).await?;
    let work = [&bad, &good].map(|service| ServiceWork::new(service, &nodes, ServiceAction::Ensure));
    let answers = bed.reconciled(&work).await?;
    holds!(matches!(answers.as_slice(), [Err(_), Ok(Some(_))]), "of a refused Service and another one: {answers:?}");
    let now = bed.contents().await;
    holds!(now.len() == alone.len(), "with a refused Service there is {now:?}, without it {alone:?}");
    let found = got(&bed, &bad).await?;
    holds!(found.is_none(), "get returns {found:?} for a refused Service");
    goes_whole(&bed, &good, &empty).await
}

pub(super) async fn a_group_changes_as_one(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    side_by_side(&bed, &sharing(&bed).await?).await
}

pub(super) async fn deleting_one_of_a_group_keeps_the_other(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let services = sharing(&bed).await?;
    let (nodes, empty) = (bed.nodes(&["one"]).await, bed.contents().await);
    // The one that created the shared object is deleted first, then the one that found it.
    for [stays, goes] in [[&services[1], &services[0]], [&services[0], &services[1]]] {
        ensured(&bed, &services[0], &nodes).await?;
        ensured(&bed, &services[1], &nodes).await?;
        is_settled(&bed, stays, &nodes).await?;
        deleted(&bed, goes).await?;
        is_settled(&bed.restarted().await?, stays, &nodes).await?;
        goes_whole(&bed, stays, &empty).await?;
    }
    Ok(())
}

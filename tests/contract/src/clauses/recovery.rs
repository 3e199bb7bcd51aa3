//! Calls that are interrupted.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use ccm_provider::{LoadBalancer, LoadBalancerExt as _, NodeRef, Service};

use super::balancers::{deleted, ensured, goes_whole, is_settled};
use crate::bed::{Bed, CLUSTER, holds};
use crate::{Harness, Outage, Outcome, Result};

/// Upper bound for the writes and awaits of one call.
const MOST: u64 = 200;

/// One Service and its instances, before the creation of the balancer.
struct Case {
    bed: Bed,
    service: Service,
    nodes: Vec<NodeRef>,
    before: BTreeSet<String>,
    /// The number of objects of a complete balancer.
    size: usize,
}

impl Case {
    async fn new(harness: Arc<dyn Harness>) -> Result<Self> {
        let bed = Bed::new(harness).await?;
        bed.balancer()?;
        let nodes = bed.nodes(&["one", "two"]).await;
        let before = bed.contents().await;
        let sample = bed.service("sample");
        ensured(&bed, &sample, &nodes).await?;
        let size = bed.contents().await.difference(&before).count();
        goes_whole(&bed, &sample, &before).await?;
        Ok(Self { bed, service: sample, nodes, before, size })
    }

    /// Uses another Service and another process each time, so that no cached state can help.
    async fn next(&mut self, number: u64) -> Result<Arc<dyn LoadBalancer>> {
        self.service = self.bed.service(&format!("service-{number}"));
        self.bed = self.bed.restarted().await?;
        self.bed.balancer()
    }

    /// Whether an ensure succeeds while the cloud fails.
    async fn ensures(&self, balancer: &dyn LoadBalancer) -> bool {
        self.bed.finished(async || balancer.ensure(CLUSTER, &self.service, &self.nodes).await).await.is_ok()
    }

    /// Whether a deletion succeeds while the cloud fails.
    async fn deletes(&self, balancer: &dyn LoadBalancer) -> bool {
        self.bed.finished(async || balancer.ensure_deleted(CLUSTER, &self.service).await).await.is_ok()
    }

    async fn calm(&mut self) -> Result {
        self.bed.harness.settle().await;
        self.bed.disrupt(Outage::None).await?;
        self.bed = self.bed.restarted().await?;
        Ok(())
    }

    /// Checks that the next ensure completes the balancer, without extra objects, and that it can be deleted.
    async fn finishes(&mut self, after: &str) -> Result {
        self.calm().await?;
        let fail = |outcome: Outcome| match outcome {
            Outcome::Broken(how) => Outcome::Broken(format!("after {after}: {how}")),
            other => other,
        };
        ensured(&self.bed, &self.service, &self.nodes).await.map_err(fail)?;
        let now = self.bed.contents().await;
        let made: Vec<&String> = now.difference(&self.before).collect();
        let (size, count) = (self.size, made.len());
        holds!(count == size, "after {after} a whole balancer has {count} object(s) instead of {size}: {made:?}");
        is_settled(&self.bed, &self.service, &self.nodes).await.map_err(fail)?;
        self.vanishes(after).await
    }

    async fn vanishes(&mut self, after: &str) -> Result {
        self.calm().await?;
        goes_whole(&self.bed, &self.service, &self.before).await.map_err(|outcome| match outcome {
            Outcome::Broken(how) => Outcome::Broken(format!("after {after}: {how}")),
            other => other,
        })
    }
}

fn endless(what: &str) -> Outcome {
    Outcome::Broken(format!("{what} still fails after {MOST} writes"))
}

pub(super) async fn an_interrupted_ensure_is_finished_by_the_next(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for writes in 0..MOST {
        let balancer = case.next(writes).await?;
        case.bed.disrupt(Outage::WritesRefusedAfter(writes)).await?;
        let done = case.ensures(&*balancer).await;
        holds!(!done || writes > 0, "every write is refused, and ensure succeeds");
        case.finishes(&format!("an ensure that was cut off after {writes} write(s)")).await?;
        if done {
            return Ok(());
        }
    }
    Err(endless("ensure"))
}

pub(super) async fn an_interrupted_ensure_is_removed_whole(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for writes in 0..MOST {
        let balancer = case.next(writes).await?;
        case.bed.disrupt(Outage::WritesRefusedAfter(writes)).await?;
        let done = case.ensures(&*balancer).await;
        case.vanishes(&format!("an ensure that was cut off after {writes} write(s)")).await?;
        if done {
            return Ok(());
        }
    }
    Err(endless("ensure"))
}

pub(super) async fn an_interrupted_deletion_is_finished_by_the_next(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for writes in 0..MOST {
        let balancer = case.next(writes).await?;
        ensured(&case.bed, &case.service, &case.nodes).await?;
        case.bed.disrupt(Outage::WritesRefusedAfter(writes)).await?;
        let done = case.deletes(&*balancer).await;
        let left = case.bed.contents().await != case.before;
        holds!(!done || !left, "a deletion of which {writes} write(s) took effect succeeded and left something");
        case.calm().await?;
        if left {
            // The core calls `get` before it deletes: objects that `get` does not report are never deleted.
            let found = case.bed.balancer()?.get(CLUSTER, &case.service).await;
            holds!(
                !matches!(found, Ok(None)),
                "after {writes} write(s) of a deletion parts are left, and get returns nothing"
            );
        }
        case.vanishes(&format!("a deletion that was cut off after {writes} write(s)")).await?;
        if done {
            return Ok(());
        }
    }
    Err(endless("the deletion"))
}

pub(super) async fn a_lost_answer_makes_no_second_object(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for writes in 0..MOST {
        let balancer = case.next(writes).await?;
        case.bed.disrupt(Outage::AnswerLostAfter(writes)).await?;
        let done = case.ensures(&*balancer).await;
        case.finishes(&format!("an ensure whose answer no. {} was lost", writes + 1)).await?;
        if done {
            return Ok(());
        }
    }
    Err(endless("ensure"))
}

/// The number of polls after which each attempt drops the call, and whether pending answers arrive first. For a cloud
/// in memory: each of the first polls, then polls at growing distances. For a cloud behind a network, which polls a
/// call hundreds of times: growing distances from the beginning.
fn drops(haste: u32) -> impl Iterator<Item = (u64, bool)> {
    let dense = if haste > 1 { 2 } else { 12 };
    let first = (1..=dense).flat_map(|polls| [(polls, false), (polls, true)]);
    let later = std::iter::successors(Some((dense, false)), |(polls, answered)| Some((polls + polls / 2, !answered)));
    first.chain(later.skip(1).take_while(|(polls, _)| *polls < MOST))
}

/// Polls a future up to `polls` times and drops it; with `answered`, pending answers arrive first. `None` if it was
/// dropped.
async fn dropped_after<F: Future>(future: F, polls: u64, answered: bool) -> Option<F::Output> {
    let mut future = pin!(future);
    let mut polled = 0;
    poll_fn(|context| {
        if polled == polls {
            return Poll::Ready(None);
        }
        polled += 1;
        match future.as_mut().poll(context) {
            Poll::Ready(output) => Poll::Ready(Some(output)),
            Poll::Pending if polled == polls && !answered => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        }
    })
    .await
}

pub(super) async fn an_ensure_dropped_at_any_await_is_finished_by_the_next(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for (polls, answered) in drops(case.bed.harness.haste()) {
        let balancer = case.next(2 * polls + u64::from(answered)).await?;
        let ended = dropped_after(case.ensures(&*balancer), polls, answered).await.is_some();
        // The process ends, with its background tasks.
        drop(balancer);
        case.finishes(&format!("an ensure that was dropped at await no. {polls}")).await?;
        if ended {
            return Ok(());
        }
    }
    Ok(())
}

pub(super) async fn a_deletion_dropped_at_any_await_is_finished_by_the_next(harness: Arc<dyn Harness>) -> Result {
    let mut case = Case::new(harness).await?;
    for (polls, answered) in drops(case.bed.harness.haste()) {
        let balancer = case.next(2 * polls + u64::from(answered)).await?;
        ensured(&case.bed, &case.service, &case.nodes).await?;
        let ended = dropped_after(case.deletes(&*balancer), polls, answered).await.is_some();
        drop(balancer);
        case.vanishes(&format!("a deletion that was dropped at await no. {polls}")).await?;
        // Alternatively, the Service is created again.
        ensured(&case.bed, &case.service, &case.nodes).await?;
        deleted(&case.bed, &case.service).await?;
        if ended {
            return Ok(());
        }
    }
    Ok(())
}

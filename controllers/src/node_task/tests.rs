//! Tasks that do not end, and the node of a key.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::deadline::{READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    FlagValues, Node, NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork, ObjectChange, Plan, ProviderError,
};
use ccm_runtime::runner::{Outcome, Reconciler, SyncError};
use ccm_runtime::{Gate, Queue, RateLimit};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Key, NodeTaskController};
use crate::{Shared, test_shared};

struct Hanging;

const SPEC: NodeTaskSpec = NodeTaskSpec {
    name: "hanging",
    aliases: &[],
    queue: "hanging",
    on_by_default: true,
    taints: &[],
    check: |_: &FlagValues| Vec::new(),
};

#[async_trait]
impl NodeTask for Hanging {
    fn limits(&self) -> NodeTaskLimits {
        NodeTaskLimits { batch: 10, workers: 1, rate: None, tries: None }
    }
    fn is_due(&self, _node: &Node) -> bool {
        true
    }
    async fn run(&self, _work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        std::future::pending().await
    }
    async fn plan(&self, _work: &NodeWork) -> Result<Plan, ProviderError> {
        std::future::pending().await
    }
}

async fn run(shared: Shared) -> Result<Outcome, SyncError> {
    let queue = Queue::new("hanging", RateLimit::DEFAULT, &shared.metrics);
    let controller = NodeTaskController { shared, task: Arc::new(Hanging), spec: &SPEC, queue };
    let node = Arc::new(Node { name: "a".into(), ..Node::default() });
    let key = Key { name: "a".into(), provider_id: None, deleted: false };
    let work = NodeWork { name: "a".into(), provider_id: None, node: Some(node) };
    controller.reconcile(vec![(key, work)]).await.remove(0).1
}

#[tokio::test(start_paused = true)]
async fn a_task_that_hangs_ends_after_its_deadline_and_is_tried_again() {
    let began = Instant::now();
    let error = run(test_shared::shared()).await.unwrap_err();
    assert_eq!(error.to_string(), "hanging did not answer within 10m0s");
    assert_eq!(began.elapsed(), WRITE_DEADLINE);
    let shared = test_shared::shared();
    let gate = Gate::new(shared.gate.client().clone(), shared.leadership.clone(), true, shared.metrics.clone());
    let error = run(Shared { gate, ..shared }).await.unwrap_err();
    assert_eq!(error.to_string(), "the plan did not answer within 2m0s");
    assert_eq!(began.elapsed(), WRITE_DEADLINE + READ_DEADLINE);
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_runs_no_task() {
    let shared = test_shared::shared();
    shared.leadership.lose();
    assert!(matches!(run(shared).await, Err(SyncError::Closed(_))));
}

#[test]
fn a_node_that_came_back_is_the_same_only_on_the_same_machine() {
    let key = Key { name: "a".into(), provider_id: Some("x:///1".into()), deleted: true };
    let node =
        |name: &str, id: Option<&str>| Node { name: name.into(), provider_id: id.map(Into::into), ..Node::default() };
    assert!(key.is_of(&node("a", Some("x:///1"))));
    for other in [node("a", Some("x:///2")), node("a", None), node("b", Some("x:///1"))] {
        assert!(!key.is_of(&other), "{other:?}");
    }
}

/// As those of the tagging controller of AWS, with a rate limit.
#[derive(Default)]
struct Fails(Mutex<Vec<bool>>);

#[async_trait]
impl NodeTask for Fails {
    fn limits(&self) -> NodeTaskLimits {
        NodeTaskLimits { batch: 10, workers: 1, rate: Some((10.0, 100)), tries: Some(9) }
    }
    fn is_due(&self, _node: &Node) -> bool {
        true
    }
    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        work.iter().map(|_| Err(ProviderError::unknown("EC2 does not know the instance yet"))).collect()
    }
    async fn plan(&self, _work: &NodeWork) -> Result<Plan, ProviderError> {
        std::future::pending().await
    }
    fn failed(&self, _work: &NodeWork, _error: &ProviderError, last: bool) {
        self.0.lock().push(last);
    }
}

#[tokio::test(start_paused = true)]
async fn events_of_a_node_are_no_failures_of_its_task() {
    let (shared, task) = (test_shared::shared(), Arc::new(Fails::default()));
    let queue = Queue::new("fails", RateLimit::DEFAULT, &shared.metrics);
    let controller = NodeTaskController { shared, task: task.clone(), spec: &SPEC, queue: queue.clone() };
    let node = Arc::new(Node { name: "a".into(), ..Node::default() });
    for _ in 0..20 {
        controller.changed(&ObjectChange::Updated(node.clone(), node.clone()));
    }
    let key = queue.take_ready(1).await.unwrap().remove(0);
    let work = NodeWork { name: "a".into(), provider_id: None, node: Some(node) };
    let mut answer = controller.reconcile(vec![(key.clone(), work)]).await;
    assert!(matches!(answer.remove(0).1, Err(SyncError::Provider { .. })), "it is tried again");
    assert_eq!(*task.0.lock(), [false]);
    assert!(queue.add_rate_limited(key) < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn a_deleted_node_whose_task_was_given_up_is_no_failure_any_more() {
    let shared = test_shared::shared();
    let (queue, failures) = (Queue::new("fails", RateLimit::DEFAULT, &shared.metrics), shared.metrics.failures());
    let controller = NodeTaskController { shared, task: Arc::new(Fails::default()), spec: &SPEC, queue };
    let fails = || failures.list().iter().any(|entry| entry.failure.as_ref().is_some_and(|failure| !failure.settled));
    failures.failed(SPEC.name, "node a".into(), ("given up", None), None);
    assert!(fails());
    controller.changed(&ObjectChange::Deleted(Arc::new(Node { name: "a".into(), ..Node::default() })));
    assert!(!fails());
}

//! Tasks that do not end, and the node of a key.

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::deadline::{READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    FlagValues, Node, NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork, Plan, ProviderError,
};
use ccm_runtime::runner::{Outcome, Reconciler, SyncError};
use ccm_runtime::{Gate, Queue, RateLimit};
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

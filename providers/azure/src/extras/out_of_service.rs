//! The taint `node.kubernetes.io/out-of-service` of nodes whose machine is stopped, so that their volumes are detached at
//! once.
//!
//! Upstream: `updateNodeTaint` in `azure.go`. A node that is Ready loses the taint; one that is not Ready and has the
//! taint for stopped machines gets it.

use async_trait::async_trait;
use ccm_provider::node::ConditionStatus;
use ccm_provider::{
    Node, NodeChanges, NodeTask, NodeTaskLimits, NodeTaskSpec, NodeWork, Plan, ProviderError, TaintEffect, TaintId,
};

use crate::node::identity::is_unmanaged;

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";
const OUT_OF_SERVICE: TaintId = TaintId { key: "node.kubernetes.io/out-of-service", effect: TaintEffect::NoExecute };

/// The controller.
pub(crate) const SPEC: NodeTaskSpec = NodeTaskSpec {
    name: "azure-out-of-service-controller",
    aliases: &["azure-out-of-service"],
    queue: "azure_out_of_service",
    on_by_default: true,
    taints: &[OUT_OF_SERVICE],
    check: |_| Vec::new(),
};

/// Whether the node must have the taint; `None`: it stays as it is.
fn wanted(node: &Node) -> Option<bool> {
    match node.ready {
        Some(ConditionStatus::True) => Some(false),
        Some(_) if node.has_taint(SHUTDOWN) => Some(true),
        _ => None,
    }
}

fn changes(node: &Node) -> NodeChanges {
    let taints = wanted(node).map(|wanted| (OUT_OF_SERVICE, wanted)).into_iter().collect();
    NodeChanges { taints, ..NodeChanges::default() }.against(node)
}

/// Adds and removes the taint.
#[derive(Debug)]
pub(crate) struct OutOfService;

#[async_trait]
impl NodeTask for OutOfService {
    fn limits(&self) -> NodeTaskLimits {
        NodeTaskLimits { batch: 100, workers: 1, rate: None, tries: None }
    }

    fn is_due(&self, node: &Node) -> bool {
        !is_unmanaged(node) && !changes(node).is_empty()
    }

    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>> {
        work.iter().map(|work| Ok(work.node.as_deref().map(changes).unwrap_or_default())).collect()
    }

    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError> {
        let node = work.node.as_deref();
        let step = node.and_then(|node| changes(node).step(node, "its machine is stopped, or runs again"));
        let plan = Plan::new(format!("node {}", work.name));
        Ok(match step {
            Some(step) => plan.with(step),
            None => plan,
        })
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::Taint;

    use super::*;

    fn node(ready: Option<ConditionStatus>, taints: &[(&str, &str)]) -> Node {
        let taint = |(key, effect): &(&str, &str)| Taint {
            key: (*key).into(),
            value: "".into(),
            effect: (*effect).into(),
            time_added: None,
        };
        Node { name: "n".into(), ready, taints: taints.iter().map(taint).collect(), ..Node::default() }
    }

    #[tokio::test]
    async fn a_stopped_node_gets_the_taint_and_a_ready_one_loses_it() {
        let (shutdown, out) = ((SHUTDOWN, "NoSchedule"), (OUT_OF_SERVICE.key, "NoExecute"));
        for (ready, taints, expected) in [
            (Some(ConditionStatus::Unknown), vec![shutdown], Some(true)),
            (Some(ConditionStatus::False), vec![shutdown, out], None),
            (Some(ConditionStatus::True), vec![shutdown, out], Some(false)),
            (Some(ConditionStatus::True), vec![shutdown], None),
            (Some(ConditionStatus::Unknown), vec![out], None),
            (None, vec![shutdown], None),
        ] {
            let node = node(ready, &taints);
            assert_eq!(OutOfService.is_due(&node), expected.is_some(), "{node:?}");
            assert_eq!(changes(&node).taints.get(&OUT_OF_SERVICE).copied(), expected, "{node:?}");
        }
    }
}

//! One pass of a controller that only shows its plans: for `ccm plan` and similar commands.
//!
//! The controllers themselves run, over stores that are filled once and a gate that collects plans instead of writing.
//! So the plans result from the same decisions.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use ccm_provider::{Change, Node, NodeName, Risk, ServiceKey, Step, Verb};
use ccm_runtime::SyncError;
use ccm_runtime::runner::Reconciler;
use futures::StreamExt;
use futures::future::BoxFuture;

/// Concurrent groups: enough for providers to batch their reads.
const GROUPS: usize = 64;

/// The scope of a preview.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Scope {
    /// Everything that the controllers manage.
    All,
    /// One node.
    Node(NodeName),
    /// One Service.
    Service(ServiceKey),
    /// The routes.
    Routes,
}

impl Scope {
    /// Whether the scope includes this node.
    pub fn has_node(&self, name: &NodeName) -> bool {
        match self {
            Self::All => true,
            Self::Node(asked) => asked == name,
            Self::Service(_) | Self::Routes => false,
        }
    }

    /// Whether the scope includes this Service.
    pub fn has_service(&self, key: &ServiceKey) -> bool {
        match self {
            Self::All => true,
            Self::Service(asked) => asked == key,
            Self::Node(_) | Self::Routes => false,
        }
    }

    /// Whether the scope includes nodes.
    pub fn has_nodes(&self) -> bool {
        matches!(self, Self::All | Self::Node(_))
    }

    /// Whether the scope includes Services.
    pub fn has_services(&self) -> bool {
        matches!(self, Self::All | Self::Service(_))
    }

    /// Whether the scope includes the routes.
    pub fn has_routes(&self) -> bool {
        matches!(self, Self::All | Self::Routes)
    }
}

/// An object for which no plan could be made.
#[derive(Debug, Clone)]
pub struct Unplanned {
    /// `node worker-1`, `service default/web`, `routes`
    pub subject: String,
    /// The error that the controller would have got.
    pub error: SyncError,
}

/// The pass: it sends plans to the gate, and returns the objects that could not be planned.
pub type Preview = BoxFuture<'static, Vec<Unplanned>>;

/// Syncs each key once, group by group, like the runner.
pub(crate) async fn sync_once<R: Reconciler>(controller: &R, keys: Vec<R::Key>) -> Vec<Unplanned> {
    let subject = |key: &R::Key| controller.subject(key);
    let mut failed = Vec::new();
    let mut groups: BTreeMap<BTreeSet<R::Group>, Vec<_>> = BTreeMap::new();
    let observed = controller.observe(&keys).await;
    for (key, observed) in keys.into_iter().zip(observed) {
        match observed {
            Ok(observed) => groups.entry(controller.groups(&key)).or_default().push((key, observed)),
            Err(error) => failed.push(Unplanned { subject: subject(&key), error }),
        }
    }
    let syncs = futures::stream::iter(groups.into_values().map(|work| controller.reconcile(work)));
    let answers: Vec<_> = syncs.buffer_unordered(GROUPS).collect().await;
    for (key, answer) in answers.into_iter().flatten() {
        match answer {
            // Expected: the gate of a preview is closed.
            Ok(_) | Err(SyncError::Closed(_)) => {}
            Err(error) => failed.push(Unplanned { subject: subject(&key), error }),
        }
    }
    failed
}

/// `node <name>`
pub(crate) fn node_subject(name: &dyn Display) -> String {
    format!("node {name}")
}

/// The update of a node as a plan step.
pub(crate) fn node_update(node: &Node, changes: Vec<Change>, reason: &str) -> Step {
    Step {
        verb: Verb::Update,
        kind: "Node".into(),
        id: node.name.to_string(),
        changes,
        reason: reason.to_owned(),
        risk: Risk::None,
    }
}

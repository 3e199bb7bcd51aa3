//! Nodes that another program manages ([`CloudProvider::unmanaged_label`]): some controllers ignore them.

use std::sync::Arc;

use ccm_provider::{CloudProvider, Node, NodeName, NodeRef, ObjectChange};

use crate::Shared;

/// The label of nodes that another program manages.
#[derive(Debug, Clone, Default)]
pub struct Unmanaged(Option<Arc<(String, String)>>);

impl Unmanaged {
    /// The label from the provider.
    pub fn of(provider: &dyn CloudProvider) -> Self {
        let label = provider.unmanaged_label();
        Self(label.map(|(key, value)| Arc::new((key.to_owned(), value.to_owned()))))
    }

    /// The label as text, if a node has it.
    pub fn label_on(&self, node: &Node) -> Option<String> {
        let (key, value) = &**self.0.as_ref()?;
        (node.labels.get(key) == Some(value)).then(|| format!("{key}={value}"))
    }

    pub(crate) fn has(&self, node: &Node) -> bool {
        self.0.as_ref().is_some_and(|label| node.labels.get(&label.0) == Some(&label.1))
    }

    /// The change as seen by a controller that ignores these nodes.
    fn filter(&self, change: ObjectChange<NodeRef>) -> Option<ObjectChange<NodeRef>> {
        match change {
            ObjectChange::Updated(old, new) => match (self.has(&old), self.has(&new)) {
                (false, false) => Some(ObjectChange::Updated(old, new)),
                (true, false) => Some(ObjectChange::Added(new)),
                (false, true) => Some(ObjectChange::Deleted(old)),
                (true, true) => None,
            },
            ObjectChange::Added(node) => (!self.has(&node)).then_some(ObjectChange::Added(node)),
            ObjectChange::Deleted(node) => (!self.has(&node)).then_some(ObjectChange::Deleted(node)),
        }
    }
}

impl Shared {
    /// Whether no other program manages the node.
    pub(crate) fn manages(&self, node: &Node) -> bool {
        !self.unmanaged.has(node)
    }

    /// The nodes without the label.
    pub(crate) fn managed_nodes(&self) -> Vec<NodeRef> {
        let mut nodes = self.nodes.list();
        nodes.retain(|node| self.manages(node));
        nodes
    }

    /// A node without the label.
    pub(crate) fn managed_node(&self, name: &NodeName) -> Option<NodeRef> {
        self.nodes.get(name).filter(|node| self.manages(node))
    }

    /// Registers a handler for changes of nodes without the label. A node that gets the label is reported as deleted.
    pub(crate) fn on_managed_change(&self, handler: impl Fn(ObjectChange<NodeRef>) + Send + Sync + 'static) {
        let unmanaged = self.unmanaged.clone();
        self.nodes.on_change(move |change| {
            if let Some(change) = unmanaged.filter(change) {
                handler(change);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use async_trait::async_trait;
    use ccm_provider::well_known::TAINT_UNINITIALIZED;
    use ccm_provider::{Aspects, Evidence, EvidenceKind, InstanceMetadata, InstancesV2, Lookup, Schemes, Taint};
    use ccm_runtime::{Gate, InstanceView};
    use parking_lot::Mutex;

    use super::*;
    use crate::preview::Scope;
    use crate::test_shared::{self, Events};
    use crate::{lifecycle, node};

    const LABEL: (&str, &str) = ("example.com/unmanaged", "true");

    fn node(name: &str, version: &str, unmanaged: &str) -> Node {
        let labels = [(LABEL.0.to_owned(), unmanaged.to_owned())];
        Node {
            name: name.into(),
            resource_version: version.into(),
            labels: labels.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
            ..Node::default()
        }
    }

    #[tokio::test]
    async fn unmanaged_nodes_appear_and_disappear_with_the_label() {
        let shared = test_shared::unmanaged(LABEL);
        shared.nodes.apply(node("a", "1", "true"));
        shared.nodes.apply(node("b", "1", "false"));
        let log = Arc::new(Mutex::new(Vec::new()));
        shared.on_managed_change({
            let log = log.clone();
            move |change| {
                log.lock().push(match change {
                    ObjectChange::Added(node) => format!("+{}", node.name),
                    ObjectChange::Updated(_, node) => format!("~{}", node.name),
                    ObjectChange::Deleted(node) => format!("-{}", node.name),
                });
            }
        });
        shared.nodes.apply(node("a", "2", "true"));
        shared.nodes.apply(node("a", "3", ""));
        shared.nodes.apply(node("a", "4", ""));
        shared.nodes.apply(node("b", "4", "true"));
        // As after a missed deletion: the next list removes the last known state.
        shared.nodes.remove(&"b".into(), "5");
        shared.nodes.remove(&"a".into(), "6");
        assert_eq!(*log.lock(), ["+b", "+a", "~a", "-b", "-a"]);
    }

    #[tokio::test]
    async fn an_unmanaged_node_is_neither_listed_nor_found() {
        let shared = test_shared::unmanaged(LABEL);
        shared.nodes.apply(node("a", "1", "true"));
        shared.nodes.apply(node("b", "1", "no"));
        let names: Vec<_> = shared.managed_nodes().iter().map(|node| node.name.to_string()).collect();
        assert_eq!(names, ["b"]);
        assert!(shared.managed_node(&"a".into()).is_none() && shared.managed_node(&"b".into()).is_some());
        assert_eq!(shared.unmanaged.label_on(&node("a", "1", "true")).as_deref(), Some("example.com/unmanaged=true"));
        assert_eq!(test_shared::shared().managed_nodes().len() + shared.nodes.len(), 2);
    }

    /// Every instance is terminated, and still has metadata.
    struct Cloud;

    #[async_trait]
    impl InstancesV2 for Cloud {
        async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
            let kind = EvidenceKind::Terminated { state: "TERMINATED".into() };
            let gone = Evidence { kind, read_began: SystemTime::now(), grace: std::time::Duration::ZERO };
            let metadata = |node: &NodeRef| InstanceMetadata {
                provider_id: format!("cloud://{}", node.name),
                ..InstanceMetadata::default()
            };
            let one = |node: &NodeRef| match aspects.existence {
                true => Lookup::Gone(gone.clone()),
                false => Lookup::found(metadata(node)),
            };
            nodes.iter().map(one).collect()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_unmanaged_node_without_instance_is_neither_deleted_nor_initialized() {
        let shared = test_shared::unmanaged(LABEL);
        let view = InstanceView::new(Arc::new(Cloud), Schemes::new(["cloud"]), shared.metrics.clone());
        let gate = Gate::collecting(shared.gate.client().clone(), shared.leadership.clone(), shared.metrics.clone());
        let shared = Shared { gate, view: Some(view), ..shared };
        let (value, effect) = ("".into(), "NoSchedule".into());
        let taint = Taint { key: TAINT_UNINITIALIZED.into(), value, effect, time_added: None };
        for (name, unmanaged, tainted) in
            [("theirs", "true", false), ("theirs-new", "true", true), ("ours", "", false), ("ours-new", "", true)]
        {
            let taints = if tainted { [taint.clone()].into() } else { Box::default() };
            let created = Some("2020-01-01T00:00:00Z".parse().unwrap());
            shared.nodes.apply(Node { taints, created, ..node(name, "1", unmanaged) });
        }
        let events = Arc::new(Events::default());
        node::preview(shared.clone(), events.clone(), &Scope::All, false).unwrap().await;
        let plans: Vec<_> = shared.gate.collected().into_iter().map(|plan| plan.subject).collect();
        assert_eq!(plans, ["node ours-new"]);
        let config = lifecycle::Config {
            period: std::time::Duration::from_secs(5),
            budget: lifecycle::decide::Budget::DEFAULT,
            concurrent_syncs: None,
            wait_timeout: None,
        };
        lifecycle::preview(shared.clone(), events, config).unwrap().await;
        let plans: Vec<_> = shared.gate.collected().into_iter().map(|plan| plan.subject).collect();
        assert_eq!(plans, ["node ours", "node ours-new"]);
    }
}

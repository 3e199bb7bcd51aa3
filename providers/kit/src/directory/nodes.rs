//! [`Nodes`]: the answers about nodes.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{Aspects, EvidenceKind, InstancesV2, Lookup, Node, NodeRef, ProviderError};
use futures::FutureExt;

use super::{Directory, Observed, Source};
use crate::near_miss::{FoundNames, Machine, no_machine};
use crate::{Cached, Cluster, Interrupted, call};

/// The maximum age of the machines that are compared with a name that none has.
const MACHINES_AGE: Duration = Duration::from_secs(300);

/// The type of the keys of a cloud.
type Key<C> = <<C as NodeCloud>::Source as Source>::Key;
/// The type of the instances of a cloud.
type Value<C> = <<C as NodeCloud>::Source as Source>::Value;

/// The meaning of instances for nodes.
#[async_trait]
pub trait NodeCloud: Debug + Send + Sync + 'static {
    /// Where instances are read.
    type Source: Source;
    /// What is read besides the instances: ports, types, data for labels.
    type Details: Send + Sync;

    /// The absence of an instance is ignored for nodes younger than this.
    const GRACE: Duration;

    /// The same, if users can set it.
    fn grace(&self) -> Duration {
        Self::GRACE
    }

    /// The key of a node's instance, or the answer for a node that has none.
    fn key(&self, node: &Node) -> Result<Key<Self>, Lookup>;

    /// The name in a key, if the instance may have another name than the Node.
    fn name(_key: &Key<Self>) -> Option<&str> {
        None
    }

    /// Whether an instance that was found by a name has exactly this name. Only the absence of such a one is evidence.
    fn has_name(_instance: &Value<Self>, _name: &str) -> bool {
        true
    }

    /// The texts of the error for a name that no instance has: what was looked for and where, and the remedy.
    fn missing(&self, _name: &str) -> (String, &'static str) {
        Default::default()
    }

    /// All machines that a node may mean whose name no machine has.
    async fn machines(&self) -> Result<Vec<Machine>, ProviderError> {
        Ok(Vec::new())
    }

    /// Reads what `aspects` need besides the instances, for all nodes together. What could not be read is an error in
    /// the details, for its nodes only.
    async fn details(
        &self,
        nodes: &[(&NodeRef, &Key<Self>)],
        observed: &Observed<Self::Source>,
        aspects: Aspects,
    ) -> Self::Details;

    /// The answer for a node. Pure.
    fn judge(&self, node: &Node, key: &Key<Self>, observed: &Observed<Self::Source>, details: &Self::Details)
    -> Lookup;
}

/// [`InstancesV2`] of a cloud.
#[derive(Debug)]
pub struct Nodes<C: NodeCloud> {
    cloud: Arc<C>,
    cluster: Cluster,
    directory: Directory<C::Source>,
    /// Names of nodes that were those of machines: only their absence is evidence.
    found: FoundNames,
    machines: Cached<Vec<Machine>, ProviderError>,
}

impl<C: NodeCloud> Nodes<C> {
    /// The nodes of a cloud.
    pub fn new(cloud: C, source: C::Source, cluster: Cluster) -> Self {
        let cloud = Arc::new(cloud);
        let reader = cloud.clone();
        let read = move || {
            let cloud = reader.clone();
            async move { cloud.machines().await }.boxed()
        };
        let interrupted = |how: Interrupted| ProviderError::unknown(how.to_string());
        let machines =
            Cached::new(read, interrupted as fn(Interrupted) -> ProviderError).keeping_failures(MACHINES_AGE);
        let directory = Directory::new(source, cluster.clone());
        Self { cloud, cluster, directory, found: FoundNames::default(), machines }
    }

    /// The cloud.
    pub fn cloud(&self) -> &C {
        &self.cloud
    }

    /// The instances.
    pub fn directory(&self) -> &Directory<C::Source> {
        &self.directory
    }

    /// The error for a node without provider ID whose name no machine ever had.
    async fn never_found(&self, node: &Node, name: &str) -> ProviderError {
        // The machine of a new node may not be listed yet.
        let grace = jiff::SignedDuration::try_from(self.cloud.grace()).unwrap_or_default();
        let is_new = |created| jiff::Timestamp::try_from(self.cluster.wall()).is_ok_and(|now| now - grace < created);
        if node.created.is_some_and(is_new) {
            return ProviderError::InstanceNotFound;
        }
        let machines = self.machines.get(MACHINES_AGE, None).await;
        let machines = machines.as_ref().map(|machines| machines.value.as_slice()).map_err(ToString::to_string);
        let (looked_for, remedy) = self.cloud.missing(name);
        no_machine(node, &looked_for, machines, remedy)
    }

    /// The answer for a node. A name that no machine ever had says nothing about a machine.
    async fn answer(&self, node: &Node, key: &Key<C>, observed: &Observed<C::Source>, answer: Lookup) -> Lookup {
        match (C::name(key), &answer) {
            (Some(name), Lookup::Unknown(ProviderError::InstanceNotFound)) => match self.found.contains(name) {
                true => observed.gone(EvidenceKind::Unlisted, self.cloud.grace()),
                false => Lookup::Unknown(self.never_found(node, name).await),
            },
            _ => answer,
        }
    }
}

#[async_trait]
impl<C: NodeCloud> InstancesV2 for Nodes<C> {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let keys: Vec<Result<Key<C>, Lookup>> = nodes.iter().map(|node| self.cloud.key(node)).collect();
        let known: Vec<(&NodeRef, &Key<C>)> =
            nodes.iter().zip(&keys).filter_map(|(node, key)| Some((node, key.as_ref().ok()?))).collect();
        let wanted: BTreeSet<Key<C>> = known.iter().map(|(_, key)| (*key).clone()).collect();
        let read = async {
            let observed = match aspects {
                // Only a current answer shows whether an instance exists or is stopped.
                Aspects { existence: true, .. } | Aspects { shutdown: true, .. } => {
                    self.directory.look_up(wanted).await
                }
                _ => self.directory.recent(wanted).await,
            };
            let details = self.cloud.details(&known, &observed, aspects).await;
            (observed, details)
        };
        let (observed, details) = match aspects {
            // Addresses of initialized nodes are not urgent.
            Aspects::ADDRESSES => call::refreshing(read).await,
            _ => read.await,
        };
        let found = known.iter().filter_map(|(_, key)| Some((observed.one(key)?, C::name(key)?)));
        self.found.add(found.filter(|(instance, name)| C::has_name(instance, name)).map(|(_, name)| name));
        let mut answers = Vec::with_capacity(nodes.len());
        for (node, key) in nodes.iter().zip(&keys) {
            answers.push(match key {
                Ok(key) => {
                    let answer = self.cloud.judge(node, key, &observed, &details);
                    self.answer(node, key, &observed, answer).await
                }
                Err(answer) => answer.clone(),
            });
        }
        answers
    }
}

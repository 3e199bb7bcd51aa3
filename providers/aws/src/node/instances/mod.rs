//! The instances behind the nodes.
//!
//! Upstream: `pkg/providers/v1/{instances_v2,describe_instance_batch}.go`, one lookup per node, batched. Here the core
//! asks about many nodes at once: [`Directory`] over [`source`] reads their keys (`identity`), and [`judge`] (pure)
//! interprets the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Cluster, Directory, call, directory};
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Aspects, InstancesV2, Lookup, NodeRef, ProviderError, Snapshot};
use regex::Regex;

use crate::client::Api;
use crate::node::identity::{self, InstanceId, Own, ProviderId, Wanted};
use crate::node::topology::Topology;
use crate::node::zones::Zones;
use crate::ownership::Ownership;
use crate::start::config::Family;

pub(crate) mod addresses;
pub(crate) mod describe;
mod judge;
mod source;
#[cfg(test)]
#[cfg(feature = "sdk")]
pub(crate) mod tests;

use describe::Instances;
use judge::{LABEL_LAYER_1, LABEL_ZONE_ID, Labels};
use source::{Ec2, Found};

/// Some EC2 servers do not know new instances for a while: the absence of a younger node's instance means nothing.
pub(crate) const GRACE: Duration = Duration::from_secs(300);

/// The settings that lookups need.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) region: String,
    pub(crate) vpc: String,
    pub(crate) families: Vec<Family>,
    /// `None` outside EC2.
    pub(crate) own: Option<Own>,
    pub(crate) ownership: Ownership,
    /// The configured pattern, if any.
    pub(crate) topology_types: Option<Regex>,
    /// A Fargate node whose interface exists counts as shut down, as upstream: if it is not Ready, it gets the shutdown
    /// taint. If false, it never does.
    pub(crate) fargate_counts_as_stopped: bool,
}

/// Implements [`InstancesV2`] for EC2 and Fargate.
#[derive(Debug)]
pub(crate) struct Ec2Instances {
    settings: Settings,
    zones: Arc<Zones>,
    topology: Topology,
    cluster: Cluster,
    directory: Directory<Ec2>,
}

type Observed = directory::Observed<Ec2>;

impl Ec2Instances {
    pub(crate) fn new(settings: Settings, api: Arc<dyn Api>, zones: Arc<Zones>, cluster: Cluster) -> Self {
        let topology = Topology::new(api.clone(), settings.topology_types.clone());
        let source =
            Ec2 { instances: Instances(api), ownership: settings.ownership.clone(), vpc: settings.vpc.clone() };
        let directory = Directory::new(source, cluster.clone());
        Self { settings, zones, topology, cluster, directory }
    }

    fn wanted(&self, nodes: &[NodeRef]) -> Vec<Wanted> {
        nodes.iter().map(|node| identity::wanted(node, self.settings.own.as_ref())).collect()
    }

    /// The data for the labels of these nodes; not read for labels that a node has already.
    async fn labels<'a>(&self, nodes: impl Iterator<Item = (&'a NodeRef, &'a Wanted)>, observed: &Observed) -> Labels {
        let mut wanted_zones: BTreeSet<&str> = BTreeSet::new();
        let mut instances = BTreeMap::new();
        for (node, wanted) in nodes {
            let Some(found) = observed.one(wanted) else { continue };
            if !node.labels.contains_key(LABEL_ZONE_ID) {
                wanted_zones.insert(found.zone());
            }
            if let Found::Ec2(instance) = found
                && !node.labels.contains_key(LABEL_LAYER_1)
                && let Some(id) = InstanceId::parse(&instance.id)
            {
                instances.insert(id, instance.instance_type.clone());
            }
        }
        let zones = async {
            if wanted_zones.is_empty() {
                return Ok(None);
            }
            self.zones.knowing(wanted_zones).await.map_err(Into::into)
        };
        let (zones, layers) = futures::join!(zones, self.topology.layers(&instances));
        Labels { zones, layers }
    }

    fn judge<'a>(&'a self, observed: &'a Observed, labels: Option<&'a Labels>) -> judge::Judge<'a> {
        judge::Judge { settings: &self.settings, observed, labels }
    }
}

fn keys(wanted: &[Wanted]) -> BTreeSet<Wanted> {
    wanted.iter().filter(|wanted| !matches!(wanted, Wanted::Never(_))).cloned().collect()
}

#[async_trait]
impl InstancesV2 for Ec2Instances {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let wanted = self.wanted(nodes);
        let keys = keys(&wanted);
        let observed = match aspects {
            // Only a current answer of EC2 shows whether an instance exists or is stopped.
            Aspects { existence: true, .. } | Aspects { shutdown: true, .. } => self.directory.look_up(keys).await,
            // Addresses of initialized nodes are not urgent.
            Aspects::ADDRESSES => call::refreshing(self.directory.recent(keys)).await,
            _ => self.directory.recent(keys).await,
        };
        let labels = match aspects.metadata {
            true => Some(self.labels(nodes.iter().zip(&wanted), &observed).await),
            false => None,
        };
        let judge = self.judge(&observed, labels.as_ref());
        nodes.iter().zip(&wanted).map(|(node, wanted)| judge.node(node, wanted)).collect()
    }

    async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
        // Without the nodes, the required IDs of an answer are unknown.
        let nodes = self.cluster.nodes()?.list();
        let wanted = self.wanted(&nodes);
        let observed = match self.directory.all(keys(&wanted)).await {
            Ok(observed) => observed,
            Err(error) => return Some(Err(error)),
        };
        // Labels are set once, at initialization.
        let is_new = |node: &NodeRef| node.has_taint(TAINT_UNINITIALIZED);
        let new = nodes.iter().zip(&wanted).filter(|(node, _)| is_new(node));
        let labels = match nodes.iter().any(is_new) {
            true => Some(self.labels(new, &observed).await),
            false => None,
        };
        let answers = nodes.iter().zip(&wanted).map(|(node, wanted)| {
            let id = observed.one(wanted).and_then(|found| match found {
                Found::Ec2(instance) => Some(ProviderId::format(&instance.zone, &instance.id)),
                Found::Fargate(_) => None,
            });
            let judge = self.judge(&observed, labels.as_ref().filter(|_| is_new(node)));
            (node, id, judge.node(node, wanted))
        });
        Some(Ok(observed.snapshot(GRACE, answers)))
    }
}

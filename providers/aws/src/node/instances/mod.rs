//! The instances behind the nodes.
//!
//! Upstream: `pkg/providers/v1/{instances_v2,describe_instance_batch}.go`, one lookup per node, batched. Here the core
//! asks about many nodes at once: [`Nodes`] over [`source`] reads their keys (`identity`), and [`judge`] (pure)
//! interprets the answers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::directory::{self, NodeCloud, Nodes};
use ccm_provider::{Aspects, Lookup, Node, NodeRef, ProviderError};
use regex::Regex;

use crate::client::Api;
use crate::node::identity::{self, BadProviderId, InstanceId, Own, Wanted};
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

/// The instances of EC2 and Fargate.
pub(crate) type Ec2Instances = Nodes<Ec2Nodes>;

/// The rules of EC2 and Fargate.
#[derive(Debug)]
pub(crate) struct Ec2Nodes {
    settings: Settings,
    zones: Arc<Zones>,
    topology: Topology,
}

type Observed = directory::Observed<Ec2>;

pub(crate) fn instances(settings: Settings, api: Arc<dyn Api>, zones: Arc<Zones>, cluster: Cluster) -> Ec2Instances {
    let topology = Topology::new(api.clone(), settings.topology_types.clone());
    let (ownership, region, vpc) = (settings.ownership.clone(), settings.region.clone(), settings.vpc.clone());
    let source = Ec2 { instances: Instances(api), ownership, region, vpc };
    Nodes::new(Ec2Nodes { settings, zones, topology }, source, cluster)
}

#[async_trait]
impl NodeCloud for Ec2Nodes {
    type Source = Ec2;
    type Details = Option<Labels>;

    const GRACE: Duration = GRACE;

    fn key(&self, node: &Node) -> Result<Wanted, Lookup> {
        match identity::wanted(node, self.settings.own.as_ref()) {
            Wanted::Never(BadProviderId::Foreign(_)) => Err(Lookup::Foreign),
            Wanted::Never(error @ BadProviderId::Malformed(_)) => {
                Err(Lookup::Unknown(ProviderError::unknown(error.to_string())))
            }
            key => Ok(key),
        }
    }

    /// The data for the labels of the nodes; not read for labels that a node has already.
    async fn details(&self, nodes: &[(&NodeRef, &Wanted)], observed: &Observed, aspects: Aspects) -> Option<Labels> {
        if !aspects.metadata {
            return None;
        }
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
        Some(Labels { zones, layers })
    }

    fn judge(&self, node: &Node, key: &Wanted, observed: &Observed, labels: &Option<Labels>) -> Lookup {
        judge::Judge { settings: &self.settings, observed, labels: labels.as_ref() }.node(node, key)
    }
}

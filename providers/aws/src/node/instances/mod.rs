//! The instances behind the nodes.
//!
//! Upstream: `pkg/providers/v1/{instances_v2,describe_instance_batch}.go`, one question per node, joined by a batcher. Here
//! the core asks about many nodes at once, and the shape is: what is wanted (`identity`), reads ([`describe`]), judgement
//! ([`judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_kit::{Cached, Cluster, Interrupted, call};
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{Aspects, InstancesV2, Lookup, Node, NodeRef, ProviderError, Snapshot};
use futures::FutureExt;
use regex::Regex;

use crate::client::ec2::{Instance, NetworkInterface};
use crate::client::{Api, ApiError};
use crate::node::fargate;
use crate::node::identity::{self, InstanceId, Machine, Own, ProviderId, Wanted};
use crate::node::topology::{Layers, Topology};
use crate::node::zones::{self, Zones};
use crate::ownership::Ownership;
use crate::start::config::Family;

pub(crate) mod addresses;
pub(crate) mod describe;
mod judge;
mod list;
#[cfg(all(test, feature = "sdk"))]
pub(crate) mod tests;

use describe::Instances;
use judge::{LABEL_LAYER_1, LABEL_ZONE_ID};

/// New instances are unknown to some of EC2's servers for a while: a node younger than this is not judged by absence.
pub(crate) const GRACE: Duration = Duration::from_secs(300);
/// A list this young serves new nodes, whose instances it shows as running, instead of a call.
const RECENT: Duration = Duration::from_secs(10);

/// What the look-ups need to know of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) region: String,
    pub(crate) vpc: String,
    pub(crate) families: Vec<Family>,
    /// `None` off-instance.
    pub(crate) own: Option<Own>,
    pub(crate) ownership: Ownership,
    /// The pattern of the configuration, if any.
    pub(crate) topology_types: Option<Regex>,
    /// A Fargate node whose interface is found counts as shut down, as upstream has it: not Ready, it gets the shutdown
    /// taint. Off: it never does.
    pub(crate) fargate_counts_as_stopped: bool,
}

/// EC2 and Fargate behind [`InstancesV2`].
#[derive(Debug)]
pub(crate) struct Ec2Instances {
    settings: Settings,
    api: Arc<dyn Api>,
    instances: Instances,
    zones: Arc<Zones>,
    topology: Topology,
    cluster: Cluster,
    listed: Cached<list::Listed, ApiError>,
    // Instances that the last list held; 0 before the first.
    size: AtomicUsize,
}

/// What was read to answer one question.
#[derive(Debug, Default)]
struct Observed {
    by_id: BTreeMap<InstanceId, Result<Option<describe::Seen>, ApiError>>,
    by_name: BTreeMap<String, Result<Vec<Arc<Instance>>, ApiError>>,
    by_address: BTreeMap<Ipv4Addr, Result<Vec<NetworkInterface>, ApiError>>,
}

/// What labels are made of.
#[derive(Debug)]
struct Labels {
    zones: Result<Arc<zones::ByName>, ProviderError>,
    layers: Layers,
}

impl Ec2Instances {
    /// # Errors
    ///
    /// Never with the built-in topology pattern.
    pub(crate) fn new(
        settings: Settings,
        api: Arc<dyn Api>,
        zones: Arc<Zones>,
        cluster: Cluster,
    ) -> Result<Self, regex::Error> {
        let topology = Topology::new(api.clone(), settings.topology_types.clone())?;
        let instances = Instances(api.clone());
        let listed = list::cached(instances.clone(), settings.ownership.clone(), settings.vpc.clone(), cluster.clone());
        Ok(Self { settings, api, instances, zones, topology, cluster, listed, size: AtomicUsize::new(0) })
    }

    fn wanted(&self, nodes: &[NodeRef]) -> Vec<Wanted> {
        nodes.iter().map(|node| identity::wanted(node, self.settings.own.as_ref())).collect()
    }

    /// Reads what is wanted and not among the listed already.
    async fn observe(&self, wanted: &[Wanted], listed: Option<&list::Listed>) -> Observed {
        let mut observed = Observed::default();
        let (mut ids, mut names, mut addresses) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for wanted in wanted {
            match wanted {
                Wanted::Machine(Machine::Ec2(id)) => match listed.and_then(|listed| listed.by_id(id)) {
                    Some(seen) => drop(observed.by_id.insert(id.clone(), Ok(Some(seen)))),
                    None => drop(ids.insert(id.clone())),
                },
                Wanted::Machine(Machine::Fargate(address)) => drop(addresses.insert(*address)),
                Wanted::Name(name) => match listed.and_then(|listed| listed.by_name(name)) {
                    Some(found) => drop(observed.by_name.insert(name.clone(), Ok(found))),
                    None => drop(names.insert(name.clone())),
                },
                Wanted::Never(_) => {}
            }
        }
        let (by_id, by_name, by_address) =
            futures::join!(self.read_ids(&ids), self.read_names(&names), self.read_addresses(&addresses));
        observed.by_id.extend(by_id);
        observed.by_name.extend(by_name);
        observed.by_address.extend(by_address);
        observed
    }

    async fn read_ids(
        &self,
        ids: &BTreeSet<InstanceId>,
    ) -> BTreeMap<InstanceId, Result<Option<describe::Seen>, ApiError>> {
        let mut answers = BTreeMap::new();
        for (some, answer) in self.instances.by_ids(ids).await {
            answers.extend(some.into_iter().map(|id| {
                let seen = answer.as_ref().map(|seen| seen.get(&id).cloned()).map_err(Clone::clone);
                (id, seen)
            }));
        }
        answers
    }

    async fn read_names(&self, names: &BTreeSet<String>) -> BTreeMap<String, Result<Vec<Arc<Instance>>, ApiError>> {
        if names.is_empty() {
            return BTreeMap::new();
        }
        let found = self.instances.by_names(names, &self.settings.ownership).await;
        let of_name = |name: &String| {
            let found = found.as_ref().map_err(Clone::clone)?;
            Ok(found.iter().filter(|instance| instance.private_dns_name == *name).cloned().collect())
        };
        names.iter().map(|name| (name.clone(), of_name(name))).collect()
    }

    async fn read_addresses(
        &self,
        addresses: &BTreeSet<Ipv4Addr>,
    ) -> BTreeMap<Ipv4Addr, Result<Vec<NetworkInterface>, ApiError>> {
        if addresses.is_empty() {
            return BTreeMap::new();
        }
        let found = fargate::interfaces(&*self.api, &self.settings.vpc, addresses).await;
        let of_address = |address| match &found {
            Ok(found) => Ok(found.get(address).cloned().unwrap_or_default()),
            Err(error) => Err(error.clone()),
        };
        addresses.iter().map(|address| (*address, of_address(address))).collect()
    }

    /// What the labels of these nodes are made of; those that a node carries already are not asked for.
    async fn labels<'a>(&self, nodes: impl Iterator<Item = (&'a Node, &'a Wanted)>, observed: &Observed) -> Labels {
        let mut wanted_zones: BTreeSet<&str> = BTreeSet::new();
        let mut instances = BTreeMap::new();
        for (node, wanted) in nodes {
            let Some(found) = observed.one(wanted) else { continue };
            if !node.labels.contains_key(LABEL_ZONE_ID) {
                wanted_zones.insert(found.zone());
            }
            if !node.labels.contains_key(LABEL_LAYER_1)
                && let Some((id, kind)) = found.instance_type()
            {
                instances.insert(id, kind);
            }
        }
        let zones = async {
            if wanted_zones.is_empty() {
                return Ok(Arc::default());
            }
            self.zones.knowing(wanted_zones).await.map_err(Into::into)
        };
        let (zones, layers) = futures::join!(zones, self.topology.layers(&instances));
        Labels { zones, layers }
    }

    fn judge(
        &self,
        nodes: &[NodeRef],
        wanted: &[Wanted],
        observed: &Observed,
        labels: Option<&Labels>,
        began: SystemTime,
    ) -> Vec<Lookup> {
        let judge = judge::Judge { settings: &self.settings, observed, labels, began };
        nodes.iter().zip(wanted).map(|(node, wanted)| judge.node(node, wanted)).collect()
    }
}

#[async_trait]
impl InstancesV2 for Ec2Instances {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let wanted = self.wanted(nodes);
        // Whether an instance exists or is stopped is told by what EC2 says now.
        let listed = if aspects.existence || aspects.shutdown { None } else { self.recent(&wanted).await };
        let began = listed.as_ref().map_or_else(|| self.cluster.wall(), |listed| listed.wall);
        let reading = self.observe(&wanted, listed.as_deref());
        // Nobody waits for addresses of nodes that work already.
        let observed = if aspects == Aspects::ADDRESSES { call::refreshing(reading).await } else { reading.await };
        let labels = match aspects.metadata {
            true => Some(self.labels(nodes.iter().map(|node| &**node).zip(&wanted), &observed).await),
            false => None,
        };
        self.judge(nodes, &wanted, &observed, labels.as_ref(), began)
    }

    async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
        // Without the nodes it is not known which IDs an answer must hold.
        let nodes = self.cluster.nodes()?.list();
        Some(self.list_nodes(&nodes).await)
    }
}

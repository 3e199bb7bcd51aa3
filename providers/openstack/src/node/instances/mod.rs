//! The servers behind the nodes.
//!
//! Upstream: `pkg/openstack/instances.go`, up to four calls per node. Here the core looks up many nodes at once: their
//! servers are read ([`Directory`] over [`source`]), then all their ports and flavors together, and the answers are
//! evaluated ([`Judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::near_miss::{FoundNames, Machine, no_machine};
use ccm_kit::{Cached, Cluster, Directory, call, directory};
use ccm_provider::{
    Aspects, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup, Node, NodeRef, ProviderError, Snapshot,
};
use futures::FutureExt;

use self::attached::BySubport;
use self::flavors::{Flavors, Types};
use self::source::Nova;
use super::identity::{BadProviderId, Identity, ServerId, Wanted};
use super::labels;
use super::ports::NodePorts;
use crate::client::compute::Server;
use crate::client::network::Port;
use crate::client::operation::SERVER_LIST;
use crate::client::{ApiError, Client};
use crate::start::config::Networking;

mod addresses;
mod attached;
mod flavors;
mod source;
#[cfg(test)]
mod tests;

/// The databases of Nova's cells may lag a little: for a node younger than this, a missing server proves nothing.
const GRACE: Duration = Duration::from_secs(60);
/// The maximum age of the servers that are compared with a name that none has.
const MACHINES_AGE: Duration = Duration::from_secs(300);
/// The only status that counts as shut down.
const SHUTOFF: &str = "SHUTOFF";

/// The settings of look-ups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) identity: Identity,
    pub(crate) networking: Networking,
}

/// [`InstancesV2`] on Nova and Neutron.
#[derive(Debug)]
pub(crate) struct NovaInstances {
    settings: Settings,
    client: Client,
    cluster: Cluster,
    directory: Directory<Nova>,
    ports: NodePorts,
    flavors: Flavors,
    /// Names of nodes that were those of servers: only their absence is evidence.
    found: FoundNames,
    /// All servers, to show those that come close to a name that none has.
    machines: Cached<Vec<Machine>, ApiError>,
}

type Observed = directory::Observed<Nova>;

/// The data that is read besides the servers.
#[derive(Debug)]
struct Details {
    ports: Result<BTreeMap<ServerId, Vec<Port>>, ApiError>,
    attached: BySubport,
    /// `None`: the caller reads no types.
    types: Option<Types>,
}

impl NovaInstances {
    pub(crate) fn new(settings: Settings, client: Client, ports: NodePorts, cluster: Cluster) -> Self {
        let directory = Directory::new(Nova::new(client.clone()), cluster.clone());
        let flavors = Flavors::new(client.clone());
        let reader = client.clone();
        let read = move || {
            let client = reader.clone();
            async move { Nova::machines(&client).await }.boxed()
        };
        let machines = Cached::new(read, |how| ApiError::interrupted(SERVER_LIST, how));
        Self { settings, client, cluster, directory, ports, flavors, found: FoundNames::default(), machines }
    }

    fn wanted(&self, nodes: &[NodeRef]) -> Vec<Wanted> {
        nodes.iter().map(|node| self.settings.identity.wanted(node)).collect()
    }

    /// One list of ports for all of the servers.
    async fn details(&self, wanted: &[Wanted], observed: &Observed, with_types: bool) -> Details {
        let servers = || wanted.iter().filter_map(|wanted| observed.one(wanted)).map(|server| &**server);
        let ids: BTreeSet<ServerId> = servers().filter_map(|server| ServerId::parse(&server.id)).collect();
        let ports = async {
            let ports = self.ports.of(&ids).await;
            let attached = match &ports {
                Ok(ports) => attached::read(&self.client, ports.values().flatten()).await,
                Err(_) => Ok(BTreeMap::new()),
            };
            (ports, attached)
        };
        let types = async {
            match with_types {
                true => Some(self.flavors.of(servers()).await),
                false => None,
            }
        };
        let ((ports, attached), types) = futures::join!(ports, types);
        Details { ports, attached, types }
    }

    /// The answer for a node. A name that no server ever had says nothing about a server.
    async fn answer(&self, judge: &Judge<'_>, node: &Node, wanted: &Wanted) -> Lookup {
        match (judge.node(node, wanted), wanted) {
            (Lookup::Unknown(ProviderError::InstanceNotFound), Wanted::Name(name)) => match self.found.contains(name) {
                true => judge.observed.gone(EvidenceKind::Unlisted, GRACE),
                false => Lookup::Unknown(self.never_found(node, name).await),
            },
            (answer, _) => answer,
        }
    }

    /// The error for a node without provider ID whose name no server has.
    async fn never_found(&self, node: &Node, name: &str) -> ProviderError {
        // The server of a new node may not be listed yet.
        let grace = jiff::SignedDuration::try_from(GRACE).unwrap_or_default();
        let is_new = |created| jiff::Timestamp::try_from(self.cluster.wall()).is_ok_and(|now| now - grace < created);
        if node.created.is_some_and(is_new) {
            return ProviderError::InstanceNotFound;
        }
        let machines = self.machines.get(MACHINES_AGE, None).await;
        let looked_for = format!("no server of the project has the name {name:?}");
        let remedy =
            "name the server like the Node, or set the provider ID of the Node (openstack:///<ID of the server>)";
        let machines = machines.as_ref().map(|machines| machines.value.as_slice()).map_err(ToString::to_string);
        no_machine(node, &looked_for, machines, remedy)
    }

    fn judge<'a>(&'a self, observed: &'a Observed, details: Option<&'a Details>) -> Judge<'a> {
        Judge { settings: &self.settings, observed, details }
    }
}

/// The servers to read.
fn keys(wanted: &[Wanted]) -> BTreeSet<Wanted> {
    wanted.iter().filter(|wanted| !matches!(wanted, Wanted::Never(_))).cloned().collect()
}

#[async_trait]
impl InstancesV2 for NovaInstances {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        let wanted = self.wanted(nodes);
        let keys = keys(&wanted);
        let read = async {
            let observed = match aspects {
                // Only a current answer of Nova shows whether a server exists or is stopped.
                Aspects { existence: true, .. } | Aspects { shutdown: true, .. } => self.directory.look_up(keys).await,
                _ => self.directory.recent(keys).await,
            };
            let details = match aspects.addresses || aspects.metadata {
                true => Some(self.details(&wanted, &observed, aspects.metadata).await),
                false => None,
            };
            (observed, details)
        };
        let (observed, details) = match aspects {
            // Addresses of initialized nodes are not urgent.
            Aspects::ADDRESSES => call::refreshing(read).await,
            _ => read.await,
        };
        let named = wanted.iter().filter_map(|wanted| match wanted {
            Wanted::Name(name) if observed.one(wanted).is_some() => Some(&**name),
            _ => None,
        });
        self.found.add(named);
        let judge = self.judge(&observed, details.as_ref());
        let mut answers = Vec::with_capacity(nodes.len());
        for (node, wanted) in nodes.iter().zip(&wanted) {
            answers.push(self.answer(&judge, node, wanted).await);
        }
        answers
    }

    async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
        // Without the nodes it is not known which IDs an answer must contain.
        let nodes = self.cluster.nodes()?.list();
        let wanted = self.wanted(&nodes);
        let observed = match self.directory.all(keys(&wanted)).await {
            Ok(observed) => observed,
            Err(error) => return Some(Err(error)),
        };
        let details = self.details(&wanted, &observed, true).await;
        let judge = self.judge(&observed, Some(&details));
        let answers = nodes.iter().zip(&wanted).map(|(node, wanted)| {
            let id = observed.one(wanted).map(|server| self.settings.identity.format(&server.id));
            (node, id, judge.node(node, wanted))
        });
        Some(Ok(observed.snapshot(GRACE, answers)))
    }
}

/// Evaluates the answers of Nova for a node. Pure.
struct Judge<'a> {
    settings: &'a Settings,
    observed: &'a Observed,
    /// `None`: the caller reads no metadata.
    details: Option<&'a Details>,
}

impl Judge<'_> {
    fn node(&self, node: &Node, wanted: &Wanted) -> Lookup {
        match wanted {
            Wanted::Never(BadProviderId::Foreign(_)) => Lookup::Foreign,
            Wanted::Never(error) => Lookup::Unknown(ProviderError::unknown(error.to_string())),
            _ => self.observed.judge(wanted, GRACE, |server| {
                Lookup::Found(Arc::new(Instance {
                    shutdown: Ok(server.status == SHUTOFF),
                    metadata: self.details.map(|details| self.metadata(node, server, details)).transpose(),
                }))
            }),
        }
    }

    fn metadata(&self, node: &Node, server: &Server, details: &Details) -> Result<InstanceMetadata, ProviderError> {
        let by_server = details.ports.as_ref().map_err(Clone::clone)?;
        let ports = by_server.get(&*server.id).map(Vec::as_slice).unwrap_or_default();
        let attached = attached::of_server(ports, &details.attached)?;
        let instance_type = match &details.types {
            Some(types) => flavors::instance_type(server, types)?,
            None => String::new(),
        };
        Ok(InstanceMetadata {
            provider_id: match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
                Some(id) => id.to_owned(),
                None => self.settings.identity.format(&server.id),
            },
            instance_type,
            node_addresses: addresses::of_server(server, ports, &attached, &self.settings.networking),
            zone: labels::sanitized(&server.zone),
            region: self.settings.identity.region.clone(),
            additional_labels: BTreeMap::new(),
        })
    }
}

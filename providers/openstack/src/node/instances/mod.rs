//! The servers behind the nodes.
//!
//! Upstream: `pkg/openstack/instances.go`, up to four calls per node. Here the core looks up many nodes at once: their
//! servers are read ([`Nodes`] over [`source`]), then all their ports and flavors together, and the answers are
//! evaluated ([`Judge`], pure).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::directory::{self, NodeCloud, Nodes};
use ccm_kit::near_miss::Machine;
use ccm_provider::{Aspects, Instance, InstanceMetadata, Lookup, Node, NodeRef, ProviderError};

use self::attached::BySubport;
use self::flavors::{Flavors, Types};
use self::source::Nova;
use super::identity::{BadProviderId, Identity, ServerId, Wanted};
use super::labels;
use super::ports::NodePorts;
use crate::client::compute::Server;
use crate::client::network::Port;
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
/// Which servers of a project share a host.
const LABEL_HOST: &str = "topology.openstack.org/host-id";
/// The only status that counts as shut down.
const SHUTOFF: &str = "SHUTOFF";

/// The settings of look-ups.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    pub(crate) identity: Identity,
    pub(crate) networking: Networking,
}

/// The instances of Nova.
pub(crate) type NovaInstances = Nodes<NovaNodes>;

/// The rules of Nova and Neutron.
#[derive(Debug)]
pub(crate) struct NovaNodes {
    settings: Settings,
    client: Client,
    ports: NodePorts,
    flavors: Flavors,
}

type Observed = directory::Observed<Nova>;

/// The data that is read besides the servers.
#[derive(Debug)]
pub(crate) struct Details {
    ports: Result<BTreeMap<ServerId, Vec<Port>>, ApiError>,
    attached: BySubport,
    /// `None`: the caller reads no types.
    types: Option<Types>,
}

pub(crate) fn instances(settings: Settings, client: Client, ports: NodePorts, cluster: Cluster) -> NovaInstances {
    let (source, flavors) = (Nova::new(client.clone()), Flavors::new(client.clone()));
    Nodes::new(NovaNodes { settings, client, ports, flavors }, source, cluster)
}

#[async_trait]
impl NodeCloud for NovaNodes {
    type Source = Nova;
    /// `None`: the caller reads no metadata.
    type Details = Option<Details>;

    const GRACE: Duration = GRACE;

    fn key(&self, node: &Node) -> Result<Wanted, Lookup> {
        match self.settings.identity.wanted(node) {
            Wanted::Never(BadProviderId::Foreign(_)) => Err(Lookup::Foreign),
            Wanted::Never(error) => Err(Lookup::Unknown(ProviderError::unknown(error.to_string()))),
            key => Ok(key),
        }
    }

    fn name(key: &Wanted) -> Option<&str> {
        match key {
            Wanted::Name(name) => Some(name),
            Wanted::Server(_) | Wanted::Never(_) => None,
        }
    }

    /// A server whose name differs in case may have nothing to do with the node.
    fn has_name(server: &Arc<Server>, name: &str) -> bool {
        server.name == name
    }

    fn missing(&self, name: &str) -> (String, &'static str) {
        let remedy =
            "name the server like the Node, or set the provider ID of the Node (openstack:///<ID of the server>)";
        (format!("no server of the project has the name {name:?}"), remedy)
    }

    async fn machines(&self) -> Result<Vec<Machine>, ProviderError> {
        Ok(Nova::machines(&self.client).await?)
    }

    /// One list of ports for all of the servers.
    async fn details(&self, nodes: &[(&NodeRef, &Wanted)], observed: &Observed, aspects: Aspects) -> Option<Details> {
        if !aspects.addresses && !aspects.metadata {
            return None;
        }
        let servers = || nodes.iter().filter_map(|(_, wanted)| observed.one(wanted)).map(|server| &**server);
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
            match aspects.metadata {
                true => Some(self.flavors.of(servers()).await),
                false => None,
            }
        };
        let ((ports, attached), types) = futures::join!(ports, types);
        Some(Details { ports, attached, types })
    }

    fn judge(&self, node: &Node, key: &Wanted, observed: &Observed, details: &Option<Details>) -> Lookup {
        Judge { settings: &self.settings, observed, details: details.as_ref() }.node(node, key)
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
        self.observed.judge(wanted, GRACE, |server| {
            Lookup::Found(Arc::new(Instance {
                shutdown: Ok(server.status == SHUTOFF),
                metadata: self.details.map(|details| self.metadata(node, server, details)).transpose(),
            }))
        })
    }

    fn metadata(&self, node: &Node, server: &Server, details: &Details) -> Result<InstanceMetadata, ProviderError> {
        let by_server = details.ports.as_ref().map_err(Clone::clone)?;
        let ports = by_server.get(&*server.id).map(Vec::as_slice).unwrap_or_default();
        let attached = attached::of_server(ports, &details.attached)?;
        let instance_type = match &details.types {
            Some(types) => flavors::instance_type(server, types)?,
            None => String::new(),
        };
        let host = Some(&server.host_id).filter(|host| labels::is_value(host));
        Ok(InstanceMetadata {
            provider_id: match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
                Some(id) => id.to_owned(),
                None => self.settings.identity.format(&server.id),
            },
            instance_type,
            node_addresses: addresses::of_server(server, ports, &attached, &self.settings.networking),
            zone: labels::sanitized(&server.zone),
            region: self.settings.identity.region.clone(),
            additional_labels: host.map(|host| (LABEL_HOST.to_owned(), host.clone())).into_iter().collect(),
        })
    }
}

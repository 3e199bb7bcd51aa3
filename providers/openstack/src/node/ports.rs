//! The ports of servers: one list for concurrent requests. Subports are read only for load balancers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Bulk, Interrupted, Known, Limits};

use super::identity::ServerId;
use crate::client::network::Port;
use crate::client::operation::PORT_LIST;
use crate::client::{ApiError, Client};

/// Maximum age of the ports of a server, unless a port was written since.
const AGE: Duration = Duration::from_secs(5);
/// Maximum number of servers in one list.
const AT_ONCE: usize = 100_000;

/// Ports by server. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct NodePorts {
    known: Known<OfServers>,
    whole: Known<OfServers>,
    client: Client,
}

#[derive(Debug)]
struct OfServers {
    client: Client,
    with_subports: bool,
}

impl NodePorts {
    pub(crate) fn new(client: Client) -> Self {
        let of = |with_subports| OfServers { client: client.clone(), with_subports };
        let known = |with_subports| Known::new(of(with_subports), Limits::of(AT_ONCE), AGE, AGE);
        Self { known: known(false), whole: known(true), client }
    }

    /// The ports of these servers in Neutron's order, read after the last write to a port. A server without ports has
    /// an empty list. An incomplete answer is an error.
    pub(crate) async fn of(&self, servers: &BTreeSet<ServerId>) -> Result<BTreeMap<ServerId, Vec<Port>>, ApiError> {
        self.known.get(servers, AGE, self.client.ports_written()).await
    }

    /// The same with the subports of their trunks, which have addresses of nodes too and no device.
    pub(crate) async fn with_subports(
        &self,
        servers: &BTreeSet<ServerId>,
    ) -> Result<BTreeMap<ServerId, Vec<Port>>, ApiError> {
        self.whole.get(servers, AGE, self.client.ports_written()).await
    }
}

#[async_trait]
impl Bulk for OfServers {
    type Item = ServerId;
    type Answer = Vec<Port>;
    type Error = ApiError;

    async fn call(&self, servers: &[ServerId]) -> Result<BTreeMap<ServerId, Vec<Port>>, ApiError> {
        let ids: Vec<&str> = servers.iter().map(ServerId::as_str).collect();
        let mut ports: BTreeMap<ServerId, Vec<Port>> = servers.iter().map(|id| (id.clone(), Vec::new())).collect();
        for port in self.client.ports_of(&ids).await? {
            if let Some(of_server) = ports.get_mut(&*port.device_id) {
                of_server.push(port);
            }
        }
        if self.with_subports {
            let parents = ports.iter().flat_map(|(server, ports)| ports.iter().map(move |port| (server, port)));
            let subports = parents.flat_map(|(server, parent)| parent.subports().map(move |id| (id, server)));
            let owners: BTreeMap<String, ServerId> =
                subports.map(|(id, server)| (id.to_owned(), server.clone())).collect();
            let ids: Vec<&str> = owners.keys().map(String::as_str).collect();
            for port in self.client.ports_by_id(&ids).await? {
                if let Some(of_server) = owners.get(&port.id).and_then(|server| ports.get_mut(server)) {
                    of_server.push(port);
                }
            }
        }
        Ok(ports)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(PORT_LIST, how)
    }
}

//! The ports of servers: one list for concurrent requests.

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
    client: Client,
}

#[derive(Debug)]
struct OfServers(Client);

impl NodePorts {
    pub(crate) fn new(client: Client) -> Self {
        Self { known: Known::new(OfServers(client.clone()), Limits::of(AT_ONCE), AGE, AGE), client }
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
        let mut ports = self.of(servers).await?;
        let ids: BTreeSet<&str> = ports.values().flatten().flat_map(Port::subports).collect();
        let found = self.client.ports_by_id(&ids.into_iter().collect::<Vec<_>>()).await?;
        for of_server in ports.values_mut() {
            let is_own = |port: &&Port| of_server.iter().any(|parent| parent.subports().any(|id| id == port.id));
            let own: Vec<Port> = found.iter().filter(is_own).cloned().collect();
            of_server.extend(own);
        }
        Ok(ports)
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
        for port in self.0.ports_of(&ids).await? {
            if let Some(of_server) = ports.get_mut(&*port.device_id) {
                of_server.push(port);
            }
        }
        Ok(ports)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(PORT_LIST, how)
    }
}

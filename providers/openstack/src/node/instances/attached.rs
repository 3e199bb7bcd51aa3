//! The ports in the trunks of servers.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;

use super::addresses::Attached;
use crate::client::network::Port;
use crate::client::{Client, seen};

/// Subports by their IDs.
pub(super) type BySubport = Result<BTreeMap<String, Attached>, ProviderError>;

/// Reads the subports of these ports and the names of their networks, if there are any. Those not visible to the
/// project are logged and left out.
pub(super) async fn read(client: &Client, ports: impl Iterator<Item = &Port>) -> BySubport {
    let ids: BTreeSet<&str> = ports.flat_map(Port::subports).collect();
    if ids.is_empty() {
        return Ok(BTreeMap::new());
    }
    let ids: Vec<&str> = ids.into_iter().collect();
    let found = seen(client.ports_by_id(&ids)).await?;
    let networks: BTreeSet<&str> = found.iter().map(|port| &*port.network_id).collect();
    let networks: Vec<&str> = networks.into_iter().collect();
    let networks = seen(client.networks_by_id(&networks)).await?;
    let names: BTreeMap<&str, &str> = networks.iter().map(|network| (&*network.id, &*network.name)).collect();
    let attached = found.iter().filter_map(|port| {
        let network = (*names.get(&*port.network_id)?).to_owned();
        let addresses = port.fixed_ips.iter().map(|fixed| fixed.ip_address.clone()).collect();
        Some((port.id.clone(), Attached { network, addresses }))
    });
    Ok(attached.collect())
}

/// The subports of a server's ports. An error if one could not be read: without it the server would lose addresses.
pub(super) fn of_server<'a>(ports: &[Port], read: &'a BySubport) -> Result<Vec<&'a Attached>, ProviderError> {
    let mut attached = Vec::new();
    for id in ports.iter().flat_map(Port::subports) {
        match read.as_ref().map_err(Clone::clone)?.get(id) {
            Some(subport) => attached.push(subport),
            None => tracing::error!(subport = id, "the port or its network cannot be read: its addresses are left out"),
        }
    }
    Ok(attached)
}

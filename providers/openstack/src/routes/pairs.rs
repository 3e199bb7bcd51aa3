//! The ranges that the ports of nodes may forward: allowed address pairs, with one write per port.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Bulk, Cached, Interrupted};
use ccm_provider::address::{parse_cidr, parse_ip};
use ccm_provider::{ErrorClass, ProviderError};
use futures::{FutureExt, StreamExt};
use serde_json::json;

use super::Change;
use crate::client::network::{AddressPair, Port};
use crate::client::operation::{PORT_LIST, PORT_UPDATE};
use crate::client::{ApiError, Client, Query};

/// The rule of Neutron's policy for pairs: by default only the owner of the network may change them.
const POLICY: &str = "update_port:allowed_address_pairs";
/// Maximum number of concurrent port writes.
const IN_FLIGHT: usize = 16;
/// Maximum age of the router's networks.
const NETWORKS_AGE: Duration = Duration::from_secs(60);

/// The ports behind a router.
#[derive(Debug)]
pub(super) struct Pairs {
    client: Client,
    router: String,
    /// The IDs of the networks of the router, in the order of its ports.
    networks: Cached<Vec<String>, ApiError>,
}

impl Pairs {
    pub(super) fn new(client: Client, router: String) -> Self {
        let (reader, id) = (client.clone(), router.clone());
        let read = move || {
            let (client, id) = (reader.clone(), id.clone());
            async move {
                let ports = client.ports(Query::default().with("device_id", &id)).await?;
                Ok(ports.into_iter().map(|port| port.network_id).collect())
            }
            .boxed()
        };
        let interrupted: fn(Interrupted) -> ApiError = |how| ApiError::interrupted(PORT_LIST, how);
        Self { client, router, networks: Cached::new(read, interrupted) }
    }

    /// The ports with their changes; a change whose address belongs to no port is left out.
    async fn ports(&self, changes: &[Change]) -> Result<Vec<(Port, Vec<Change>)>, ApiError> {
        let hops: BTreeSet<String> = changes.iter().map(|change| change.route.nexthop.clone()).collect();
        let hops: Vec<String> = hops.into_iter().collect();
        let networks = self.networks.get(NETWORKS_AGE, None);
        let (networks, ports) = futures::try_join!(networks, self.client.ports_at(&hops))?;
        let mut by_port: BTreeMap<&str, (Port, Vec<Change>)> = BTreeMap::new();
        for change in changes {
            if let Some(port) = port_at(&ports, &networks.value, &change.route.nexthop) {
                by_port.entry(&port.id).or_insert_with(|| (port.clone(), Vec::new())).1.push(change.clone());
            }
        }
        Ok(by_port.into_values().collect())
    }

    async fn change(&self, port: Port, changes: &[Change]) -> Result<(), ProviderError> {
        if !port.is_secured() {
            tracing::warn!(
                port = port.id,
                "port security is off: the port forwards everything, no address pair is changed"
            );
            return Ok(());
        }
        let change = |port: &Port| {
            let pairs = changed(port, changes)?;
            Some(json!({ "allowed_address_pairs": pairs }))
        };
        match self.client.change_port(&port, change).await {
            Ok(false) if changes.iter().any(|change| change.is_added) => {
                Err(ProviderError::new(ErrorClass::Conflict, format!("port {} was deleted meanwhile", port.id)))
            }
            answer => answer.map(drop).map_err(|error| failed(&port, changes, error)),
        }
    }
}

fn failed(port: &Port, changes: &[Change], error: ApiError) -> ProviderError {
    let ranges: Vec<&str> = changes.iter().map(|change| &*change.route.destination).collect();
    let context = format!("allowed address pairs of port {} ({POLICY}), {}", port.id, ranges.join(", "));
    ProviderError::from(error).wrap(context)
}

/// The port with this address in a network of the router: in the first network where exactly one port has it.
fn port_at<'a>(ports: &'a [Port], networks: &[String], hop: &str) -> Option<&'a Port> {
    let hop = parse_ip(hop);
    networks.iter().find_map(|network| {
        let has_hop = |port: &&Port| port.fixed_ips.iter().any(|fixed| parse_ip(&fixed.ip_address) == hop);
        let mut found = ports.iter().filter(|port| port.network_id == *network).filter(has_hop);
        found.next().filter(|_| found.next().is_none())
    })
}

/// The pairs of a port with these changes; `None` if nothing differs. Ours have the MAC address of the port.
fn changed(port: &Port, changes: &[Change]) -> Option<Vec<AddressPair>> {
    let pairs = &port.allowed_address_pairs;
    let is_of = |pair: &AddressPair, change: &Change| {
        pair.mac_address.as_ref().is_none_or(|mac| mac.eq_ignore_ascii_case(&port.mac_address))
            && (pair.ip_address == change.route.destination
                || parse_cidr(&pair.ip_address)
                    .is_some_and(|range| Some(range) == parse_cidr(&change.route.destination)))
    };
    let mut new = pairs.clone();
    for change in changes {
        if !change.is_added {
            new.retain(|pair| !is_of(pair, change));
        } else if !new.iter().any(|pair| is_of(pair, change)) {
            new.push(AddressPair { ip_address: change.route.destination.clone(), mac_address: None });
        }
    }
    (new != *pairs).then_some(new)
}

#[async_trait]
impl Bulk for Pairs {
    type Item = Change;
    type Answer = Result<(), ProviderError>;
    type Error = ProviderError;

    async fn call(&self, changes: &[Change]) -> Result<BTreeMap<Change, Self::Answer>, ProviderError> {
        let no_port = |change: &Change| match change.is_added {
            true => Err(ProviderError::unknown(format!(
                "no port in the networks of router {} has the address {}: is [Route] router-id the router of the nodes?",
                self.router, change.route.nexthop
            ))),
            // The port was deleted with its server.
            false => Ok(()),
        };
        let mut answers: BTreeMap<Change, Self::Answer> =
            changes.iter().map(|change| (change.clone(), no_port(change))).collect();
        let writes = self.ports(changes).await?.into_iter().map(|(port, changes)| async move {
            let answer = self.change(port, &changes).await;
            (changes, answer)
        });
        // Not all at once: a call that waits too long for its turn is given up.
        let mut written = futures::stream::iter(writes).buffer_unordered(IN_FLIGHT);
        while let Some((changes, answer)) = written.next().await {
            answers.extend(changes.into_iter().map(|change| (change, answer.clone())));
        }
        Ok(answers)
    }

    fn interrupted(&self, how: Interrupted) -> ProviderError {
        ApiError::interrupted(PORT_UPDATE, how).into()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::network::ExtraRoute;

    fn change(is_added: bool, destination: &str) -> Change {
        let route = ExtraRoute { destination: destination.to_owned(), nexthop: "10.0.0.1".to_owned() };
        Change { is_added, route }
    }

    fn port(id: &str, network: &str, ip: &str) -> Port {
        let value: Value =
            json!({"id": id, "network_id": network, "fixed_ips": [{"subnet_id": "s", "ip_address": ip}]});
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn all_pairs_of_a_port_change_at_once_and_those_of_others_stay_as_they_are() {
        let pair = |ip: &str, mac: Option<&str>| AddressPair {
            ip_address: ip.to_owned(),
            mac_address: mac.map(str::to_owned),
        };
        let present = [pair("192.0.2.1", Some("fa:16:3e:00:00:01")), pair("10.1.1.0/24", Some("fa:16:3e:00:00:02"))];
        let changes = [change(false, "10.1.1.0/24"), change(true, "10.1.2.0/24"), change(true, "fd00:1::/80")];
        let with = |pairs: &[AddressPair]| Port {
            mac_address: "fa:16:3e:00:00:02".to_owned(),
            allowed_address_pairs: pairs.to_vec(),
            ..Port::default()
        };
        let new = changed(&with(&present), &changes).unwrap();
        assert_eq!(new, [present[0].clone(), pair("10.1.2.0/24", None), pair("fd00:1::/80", None)]);
        assert_eq!(changed(&with(&new), &changes), None);
    }

    #[test]
    fn the_port_of_an_address_is_the_only_one_in_a_network_of_the_router() {
        let ports = [
            port("foreign", "x", "10.0.0.1"),
            port("one", "b", "10.0.0.1"),
            port("v6", "b", "fd00::1"),
            port("two", "a", "10.0.0.2"),
            port("three", "a", "10.0.0.2"),
        ];
        let networks = ["a".to_owned(), "b".to_owned()];
        let found = |hop| port_at(&ports, &networks, hop).map(|port| &*port.id);
        assert_eq!(
            [found("10.0.0.1"), found("fd00:0::1"), found("10.0.0.2"), found("10.0.0.9")],
            [Some("one"), Some("v6"), None, None]
        );
    }
}

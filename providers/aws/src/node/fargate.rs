//! Fargate nodes: micro-VMs of which EC2 knows only the network interface.
//!
//! Upstream: `pkg/providers/v1/variant/fargate/fargate.go`, with one call per node and lookup; here one call looks up
//! all nodes.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv4Addr;

use crate::client::ec2::{self, NetworkInterface};
use crate::client::{Answer, Api, FILTER_VALUES, Query};

/// The attached interfaces that have one of the addresses as their first private IPv4 address.
pub(crate) async fn interfaces(
    api: &dyn Api,
    vpc: &str,
    addresses: &BTreeSet<Ipv4Addr>,
) -> Answer<BTreeMap<Ipv4Addr, Vec<NetworkInterface>>> {
    let addresses: Vec<String> = addresses.iter().map(Ipv4Addr::to_string).collect();
    let calls = addresses.chunks(FILTER_VALUES).map(|some| async move {
        let query = Query::by("attachment.status", ["attached"]).and("vpc-id", [vpc]);
        api.network_interfaces(&query.and("private-ip-address", some)).await
    });
    let mut found: BTreeMap<Ipv4Addr, Vec<NetworkInterface>> = BTreeMap::new();
    for interface in futures::future::try_join_all(calls).await?.into_iter().flatten() {
        if let Some(address) = interface.private_ip.as_deref().and_then(ec2::ipv4) {
            found.entry(address).or_default().push(interface);
        }
    }
    Ok(found)
}

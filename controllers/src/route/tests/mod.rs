//! The routes that are deleted, created and kept.

mod decide;
mod properties;
mod reconcile;

use std::collections::BTreeSet;

use ccm_provider::{AddressType, Node, NodeAddress, NodeName, Route, Schemes};
use ipnet::IpNet;

use super::decide::Changes;
use crate::cluster_cidrs::parse_cluster_cidrs;

fn schemes() -> Schemes {
    Schemes::new(["fake"])
}

fn addresses(text: &str) -> Vec<NodeAddress> {
    text.split_whitespace().map(|ip| NodeAddress::new(AddressType::InternalIp, ip)).collect()
}

/// A node with these pod ranges and addresses.
fn node(name: &str, ranges: &str, ips: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        provider_id: Some(format!("fake://{name}").into()),
        pod_cidrs: ranges.split_whitespace().map(Into::into).collect(),
        addresses: addresses(ips).into(),
        ..Node::default()
    }
}

/// `10.0.1.0/24 a`; without a name it is a blackhole.
fn route(text: &str) -> Route {
    let mut words = text.split_whitespace();
    let destination_cidr = words.next().unwrap().to_owned();
    let target_node = words.next().map(NodeName::from);
    Route { name: text.into(), target_node, destination_cidr, ..Route::default() }
}

fn cluster() -> Vec<IpNet> {
    parse_cluster_cidrs("10.0.0.0/16,fd00::/48").unwrap()
}

fn names(text: &str) -> BTreeSet<NodeName> {
    text.split_whitespace().map(NodeName::from).collect()
}

fn text(route: &Route) -> String {
    format!("{} {}", route.destination_cidr, route.target_node.clone().unwrap_or_default()).trim().to_owned()
}

/// `-10.0.1.0/24 a` for a deletion, `+` for a creation, `?` for a node that may be gone.
fn print(changes: &Changes) -> Vec<String> {
    let delete = changes.delete.iter().map(|route| format!("-{}", text(route)));
    let create = changes.create.iter().map(|new| format!("+{}", text(&new.route)));
    delete.chain(create).chain(changes.unconfirmed.iter().map(|name| format!("?{name}"))).collect()
}

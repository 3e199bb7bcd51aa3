//! The nodes behind load balancers. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_provider::{AddressType, Node, NodeRef};

use super::super::env::{Env, PoolKind, Several};
use super::super::names::Family;
use crate::client::id::same;
use crate::node::identity::{group_label, is_unmanaged};

const EXCLUDED: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const MASTERS: [&str; 2] = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"];
const OLD_ROLE: &str = "kubernetes.io/role";

/// A node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Host {
    pub(crate) provider_id: String,
    /// Its internal addresses.
    pub(crate) addresses: Vec<IpAddr>,
    /// Those of several load balancers that select it by its labels.
    pub(crate) selected: Vec<String>,
}

/// Nodes by name.
pub(crate) type Hosts = BTreeMap<String, Host>;

/// Their internal addresses.
pub(crate) fn addresses_of<'h>(hosts: impl Iterator<Item = &'h Host>) -> BTreeSet<IpAddr> {
    hosts.flat_map(|host| host.addresses.iter().copied()).collect()
}

fn is_master(node: &Node) -> bool {
    MASTERS.iter().any(|label| node.labels.contains_key(label)) || node.labels.get(OLD_ROLE) == Some("master")
}

/// Why a node is never behind load balancers.
pub(crate) fn left_out(env: &Env, node: &Node) -> Option<&'static str> {
    let is_elsewhere = || group_label(node).is_some_and(|group| !same(group, &env.group));
    let is_left_out = || env.excludes_masters || env.pools == PoolKind::Addresses;
    match () {
        () if node.provider_id.as_deref().is_some_and(|id| !id.starts_with("azure://")) => {
            Some("its provider ID is that of another cloud")
        }
        () if is_unmanaged(node) => Some("it has the label kubernetes.azure.com/managed=false"),
        () if is_elsewhere() => Some("its label kubernetes.azure.com/resource-group names another resource group"),
        () if is_master(node) && is_left_out() => {
            Some("it is of the control plane (excludeMasterFromStandardLB, or members by address)")
        }
        () if node.labels.contains_key(EXCLUDED) => {
            Some("it has the label node.kubernetes.io/exclude-from-external-load-balancers")
        }
        () => None,
    }
}

/// Whether a node may be behind load balancers.
pub(crate) fn may_serve(env: &Env, node: &Node) -> bool {
    left_out(env, node).is_none()
}

/// The internal addresses of a node.
pub(crate) fn internal_addresses(node: &Node) -> impl Iterator<Item = IpAddr> {
    node.addresses
        .iter()
        .filter(|address| address.kind == AddressType::InternalIp)
        .filter_map(ccm_provider::NodeAddress::ip)
}

/// The load balancers that select a node.
fn selected(env: &Env, node: &Node) -> Vec<String> {
    let selects = |one: &&Several| one.nodes.as_ref().is_some_and(|selector| selector.matches_pairs(&node.labels));
    env.several.iter().filter(selects).map(|one| one.name.clone()).collect()
}

/// The properties of a node that matter.
pub(crate) fn backend(env: &Env, node: &Node) -> Option<String> {
    may_serve(env, node).then(|| {
        let addresses: Vec<String> = internal_addresses(node).map(|ip| ip.to_string()).collect();
        format!("{} {} {}", node.provider_id_or_empty(), addresses.join(" "), selected(env, node).join(" "))
    })
}

/// The nodes that may serve.
pub(crate) fn hosts(env: &Env, nodes: &[NodeRef]) -> Hosts {
    let of = |node: &&NodeRef| may_serve(env, node);
    let host = |node: &NodeRef| {
        let host = Host {
            provider_id: node.provider_id_or_empty().to_owned(),
            addresses: internal_addresses(node).collect(),
            selected: selected(env, node),
        };
        (node.name.to_string(), host)
    };
    nodes.iter().filter(of).map(host).collect()
}

impl Host {
    /// The first address of a family.
    pub(crate) fn address(&self, family: Family) -> Option<IpAddr> {
        self.addresses.iter().copied().find(|ip| Family::of(*ip) == family)
    }
}

//! Links between a node and the cloud.

use std::fmt::Display;

use ccm_provider::address::parse_cidr;
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{AddressType, Fact, Instance, Lookup, Node, NodeAddress};

use super::unreadable;
use crate::routes::{Entry, Target};

fn id(node: &Node) -> String {
    format!("provider ID {}", node.provider_id_or_empty())
}

/// The provider ID belongs to another cloud.
pub fn foreign(node: &Node) -> Fact {
    Fact::good(id(node), "belongs to another cloud: this provider does nothing with the node")
}

/// The provider ID is malformed.
pub fn malformed(node: &Node, error: impl Display) -> Fact {
    let hint = "spec.providerID cannot be changed: delete the Node and let the kubelet register it again, with the right \
                --provider-id or none";
    Fact::bad(id(node), error.to_string(), hint)
}

/// The provider ID, or how the instance is found without one. `names`: the object with that ID, `instance i-0123`;
/// `what`: the cloud's word for an instance.
pub fn provider_id(node: &Node, names: &str, what: &str) -> Fact {
    match node.provider_id_or_empty() {
        "" if node.has_taint(TAINT_UNINITIALIZED) => {
            let text = format!("not set yet: it is set when the node is initialized, from the {what} with its name");
            Fact::waiting("provider ID", text)
        }
        "" => Fact::good("provider ID", format!("not set: the {what} is found by the node's name")),
        _ => Fact::good(id(node), format!("names {names}")),
    }
}

/// The controllers' reaction to an instance that was not found (`seen`). `answer`: the result of their look-up;
/// `cloud`: the API that was called; `elsewhere`: where the instance may be instead, and what to correct.
pub fn missing(about: String, seen: &str, answer: Option<&Lookup>, cloud: &str, elsewhere: &str) -> Fact {
    let text = match answer {
        Some(Lookup::Gone(evidence)) => format!(
            "{seen}: {evidence}. The node is deleted once it is not Ready and older than {} s",
            evidence.grace.as_secs()
        ),
        Some(Lookup::Unknown(error)) => format!("{seen}: {error}. The node is left unchanged"),
        _ => format!("{seen}, in one of two reads: {cloud} is not consistent yet"),
    };
    let hint = format!(
        "if the machine exists, it is in {elsewhere}; if it no longer exists, leave the node to the controllers or delete it"
    );
    Fact::bad(about, text, hint)
}

/// Compares the addresses of the node with those of its instance. `hint`: what to do if none of them is internal.
pub fn addresses(node: &Node, instance: &Instance, hint: &str) -> Option<Fact> {
    let metadata = match &instance.metadata {
        Ok(metadata) => metadata.as_ref()?,
        Err(error) => return Some(unreadable("addresses", error.clone())),
    };
    let has = |wanted: &NodeAddress| {
        node.addresses.iter().any(|address| address.kind == wanted.kind && address.address == wanted.address)
    };
    let all = &metadata.node_addresses;
    let text: Vec<String> = all.iter().map(|one| format!("{} {}", one.kind.as_str(), one.address)).collect();
    let text = text.join(", ");
    Some(if all.is_empty() {
        Fact::bad("addresses", "the instance has none", hint)
    } else if !all.iter().any(|address| address.kind == AddressType::InternalIp) {
        Fact::bad("addresses", format!("no internal one among: {text}"), hint)
    } else if all.iter().all(has) {
        Fact::good("addresses", text)
    } else {
        Fact::waiting("addresses", format!("{text}; the node does not have all of them yet"))
    })
}

/// The routes to the pods of a node with these `hops`. `table`: the table's name, `router r1`; `none`: the meaning of a
/// range without a route, if any.
pub fn routes<H: PartialEq + Display>(
    node: &Node,
    hops: &[H],
    entries: &[Entry<H>],
    table: &str,
    none: Option<&str>,
) -> Vec<Fact> {
    let fact = |cidr: &str| {
        let (about, range) = (format!("route {cidr}"), parse_cidr(cidr)?);
        let Some(found) = entries.iter().find(|entry| parse_cidr(&entry.destination) == Some(range)) else {
            return none.map(|none| Fact::waiting(about, none));
        };
        let to: &dyn Display = match &found.target {
            Target::Blackhole(Some(hop)) if hops.contains(hop) => {
                let text = format!("a blackhole in {table} that leads to the node: its instance does not run");
                return Some(Fact::waiting(about, text));
            }
            Target::Blackhole(_) => {
                let text = format!("a blackhole in {table}: the route controller replaces it");
                return Some(Fact::waiting(about, text));
            }
            Target::Hop(hop) if hops.contains(hop) => {
                return Some(Fact::good(about, format!("leads to the node in {table}")));
            }
            Target::Hop(hop) => hop,
            Target::Foreign(what) => what,
        };
        let hint = format!("if the route controller does not correct it, remove the route from {table}");
        Some(Fact::bad(about, format!("leads to {to} in {table}, not to the node"), hint))
    };
    node.pod_cidrs.iter().filter_map(|cidr| fact(cidr)).collect()
}

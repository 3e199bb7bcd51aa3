//! `ccm explain node`: the instance, its state, its addresses and pod ranges, and the routes to its pods.

use std::sync::Arc;

use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    Aspects, Fact, InstanceMetadata, InstancesV2 as _, Lookup, Node, NodeAddress, NodeRef, PodRanges as _,
    ProviderError, Routes as _,
};

use super::{Inspector, unreadable};
use crate::node::identity::{BadProviderId, Wanted, wanted};

pub(super) async fn explain(gce: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    if let Wanted::Never(error) = wanted(node) {
        return vec![no_instance(node, &error)];
    }
    let mut facts = vec![id_fact(node)];
    let reference: NodeRef = Arc::new(node.clone());
    let answer = gce.instances.lookup(std::slice::from_ref(&reference), Aspects::ALL).await.pop();
    let about = format!("instance of {}", node.name);
    match answer {
        Some(Lookup::Found(instance)) => {
            facts.push(Fact::good(about, state(instance.shutdown.as_ref())));
            match &instance.metadata {
                Ok(Some(metadata)) => facts.push(addresses(node, metadata)),
                Ok(None) => {}
                Err(error) => facts.push(unreadable("addresses", error.clone())),
            }
            facts.push(ranges(gce, &reference).await);
            facts.extend(routes(gce, cluster, node).await);
        }
        Some(Lookup::Gone(evidence)) => facts.push(Fact::bad(
            about,
            format!("{evidence}. The node is deleted once it is not Ready and older than {} s", evidence.grace.as_secs()),
            "if the machine exists, it is in another project than this program works in: correct project-id; if it no longer \
             exists, leave the node to the controllers or delete it",
        )),
        Some(Lookup::Unknown(error)) => facts.push(unreadable(about, error)),
        Some(Lookup::Foreign) | None => {}
    }
    facts
}

fn no_instance(node: &Node, error: &BadProviderId) -> Fact {
    let about = format!("provider ID {}", node.provider_id_or_empty());
    match error {
        BadProviderId::Foreign(_) => {
            Fact::good(about, "belongs to another cloud: this provider does nothing with the node")
        }
        BadProviderId::Malformed(_) => Fact::bad(
            about,
            error.to_string(),
            "spec.providerID cannot be changed: delete the Node and let the kubelet register it again, with the right \
             --provider-id or none",
        ),
    }
}

fn id_fact(node: &Node) -> Fact {
    match node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => Fact::good(format!("provider ID {id}"), "names an instance"),
        None if node.has_taint(TAINT_UNINITIALIZED) => Fact::waiting(
            "provider ID",
            "not set yet: it is set when the node is initialized, from the instance with its name",
        ),
        None => Fact::good("provider ID", "not set: the instance is found by the node's name"),
    }
}

fn state(shutdown: Result<&bool, &ProviderError>) -> &'static str {
    match shutdown {
        Ok(true) => "exists and is stopped: a node that is not Ready keeps the taint for stopped instances",
        Ok(false) => "exists and is not stopped",
        Err(_) => "exists; nodes of stopped instances are not tainted (--gce-taint-stopped-instances)",
    }
}

/// What the node has, against what it would get.
fn addresses(node: &Node, metadata: &InstanceMetadata) -> Fact {
    let text = |address: &NodeAddress| format!("{} {}", address.kind.as_str(), address.address);
    let all: Vec<String> = metadata.node_addresses.iter().map(text).collect();
    let is_missing = |wanted: &&String| !node.addresses.iter().any(|address| text(address) == **wanted);
    match (all.is_empty(), all.iter().any(|wanted| is_missing(&wanted))) {
        (true, _) => Fact::bad("addresses", "the instance has none", "give its first NIC an address"),
        (_, false) => Fact::good("addresses", all.join(", ")),
        (_, true) => Fact::waiting("addresses", format!("{}; the node does not have all of them yet", all.join(", "))),
    }
}

async fn ranges(gce: &Inspector, node: &NodeRef) -> Fact {
    let about = "alias ranges and IPv6 of its NICs";
    match gce.instances.pod_ranges(std::slice::from_ref(node)).await.pop() {
        Some(Ok(nics)) => {
            let all: Vec<String> = nics.into_iter().flat_map(|nic| nic.ranges).collect();
            let text = if all.is_empty() { "none".to_owned() } else { all.join(", ") };
            Fact::good(about, format!("{text}; used for pods with --cidr-allocator-type=CloudAllocator"))
        }
        Some(Err(error)) => unreadable(about, error),
        None => unreadable(about, ProviderError::bug("no answer")),
    }
}

/// The routes to the pods of the node.
async fn routes(gce: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    if node.pod_cidrs.is_empty() {
        return Vec::new();
    }
    let listed = match gce.routes.list(cluster).await {
        Ok(listed) => listed,
        Err(error) => return vec![unreadable("routes", error)],
    };
    let fact = |cidr: &str| {
        let about = format!("route {cidr}");
        match listed.iter().find(|route| route.destination_cidr == cidr) {
            Some(route) if route.target_node.as_ref() == Some(&node.name) => {
                Fact::good(about, format!("{} leads to the node", route.name))
            }
            Some(route) => Fact::bad(
                about,
                format!("{} leads elsewhere", route.name),
                "if the route controller does not correct it, delete the route",
            ),
            None => Fact::waiting(
                about,
                "there is none: it is made with --configure-cloud-routes, and not needed with alias ranges or an overlay",
            ),
        }
    };
    node.pod_cidrs.iter().map(|cidr| fact(cidr)).collect()
}

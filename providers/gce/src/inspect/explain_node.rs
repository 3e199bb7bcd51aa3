//! `ccm explain node`: the instance, its state, its addresses and pod ranges, and the routes to its pods.

use std::sync::Arc;

use ccm_kit::inspect::node as links;
use ccm_kit::routes::RouteTable as _;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, NodeRef, PodRanges as _, ProviderError};

use super::{Inspector, unreadable};
use crate::node::identity::{BadProviderId, Wanted, wanted};
use crate::node::instances::GcePodRanges;
use crate::routes::NetworkRoutes;

pub(super) async fn explain(gce: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    match wanted(node) {
        Wanted::Never(BadProviderId::Foreign(_)) => return vec![links::foreign(node)],
        Wanted::Never(error) => return vec![links::malformed(node, error)],
        Wanted::Instance(_) | Wanted::Name(_) => {}
    }
    let mut facts = vec![links::provider_id(node, "an instance", "instance")];
    let reference: NodeRef = Arc::new(node.clone());
    let answer = gce.instances.lookup(std::slice::from_ref(&reference), Aspects::ALL).await.pop();
    let about = format!("instance of {}", node.name);
    match answer {
        Some(Lookup::Found(instance)) => {
            facts.push(Fact::good(about, state(instance.shutdown.as_ref())));
            facts.extend(links::addresses(node, &instance, "give its first NIC an address"));
            facts.push(ranges(gce, &reference).await);
            facts.extend(routes(gce, cluster, node).await);
        }
        Some(Lookup::Unknown(error)) => facts.push(unreadable(about, error)),
        answer => {
            let elsewhere = "another project than this program works in: correct project-id";
            let seen = "Compute Engine does not show it";
            facts.push(links::missing(about, seen, answer.as_ref(), "Compute Engine", elsewhere));
        }
    }
    facts
}

fn state(shutdown: Result<&bool, &ProviderError>) -> &'static str {
    match shutdown {
        Ok(true) => "exists and is stopped: a node that is not Ready keeps the taint for stopped instances",
        Ok(false) => "exists and is not stopped",
        Err(_) => "exists; nodes of stopped instances are not tainted (--gce-taint-stopped-instances)",
    }
}

async fn ranges(gce: &Inspector, node: &NodeRef) -> Fact {
    let about = "alias ranges and IPv6 of its NICs";
    match GcePodRanges(gce.instances.clone()).pod_ranges(std::slice::from_ref(node)).await.pop() {
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
    let none =
        "there is none: it is made with --configure-cloud-routes, and not needed with alias ranges or an overlay";
    match gce.routes.table(cluster).await {
        Ok(table) => links::routes(node, &NetworkRoutes::hops(node), &table.entries, "the network", Some(none)),
        Err(error) => vec![unreadable("routes", error)],
    }
}

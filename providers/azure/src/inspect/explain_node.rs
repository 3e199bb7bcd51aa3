//! `ccm explain node`: the machine, its state, its addresses, and the routes to its pods.

use std::sync::Arc;

use ccm_kit::inspect::node as links;
use ccm_kit::routes::RouteTable as _;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, NodeRef};

use super::{Inspector, unreadable};
use crate::node::identity::{Foreign, is_unmanaged, wanted};
use crate::routes::AzureTable;

pub(super) async fn explain(azure: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    match wanted(node) {
        Err(Foreign::Other) if is_unmanaged(node) => {
            let text = "is false: another program manages the node, and this one does nothing with it";
            return vec![Fact::good("label kubernetes.azure.com/managed", text)];
        }
        Err(Foreign::Other) => return vec![links::foreign(node)],
        Err(malformed) => return vec![links::malformed(node, malformed)],
        Ok(_) => {}
    }
    let mut facts = vec![links::provider_id(node, "a virtual machine", "machine")];
    let reference: NodeRef = Arc::new(node.clone());
    let answer = azure.instances.lookup(std::slice::from_ref(&reference), Aspects::ALL).await.pop();
    let about = format!("machine of {}", node.name);
    match answer {
        Some(Lookup::Found(instance)) => {
            facts.push(match &instance.shutdown {
                Ok(true) => Fact::bad(
                    about,
                    "exists and is stopped: a node that is not Ready keeps the taint for stopped machines",
                    "start the machine, or delete it: then the node is deleted",
                ),
                Ok(false) => Fact::good(about, "exists and is not stopped"),
                Err(error) => unreadable(about, error.clone()),
            });
            facts.extend(links::addresses(node, &instance, "give its primary interface an address"));
            facts.extend(routes(azure, cluster, node).await);
        }
        Some(Lookup::Unknown(error)) => facts.push(unreadable(about, error)),
        answer => {
            let elsewhere =
                "another subscription or resource group: label the node kubernetes.azure.com/resource-group";
            let seen = "Azure does not show it";
            facts.push(links::missing(about, seen, answer.as_ref(), "Azure", elsewhere));
        }
    }
    facts
}

/// The routes to the pods of the node.
async fn routes(azure: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    let Some(routes) = azure.routes.as_ref().filter(|_| !node.pod_cidrs.is_empty()) else { return Vec::new() };
    let name = format!("route table {}", azure.shared.config.route_table_name);
    let none = "there is none: it is made with --configure-cloud-routes, and not needed with an overlay";
    match routes.planned().table(cluster).await {
        Ok(table) => links::routes(node, &AzureTable::hops(node), &table.entries, &name, Some(none)),
        Err(error) => vec![unreadable(name, error)],
    }
}

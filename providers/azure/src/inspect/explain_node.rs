//! `ccm explain node`: the machine, its state, its addresses, the routes to its pods, and its load balancers.

use std::sync::Arc;

use ccm_kit::balancer::BalancerCloud as _;
use ccm_kit::inspect::node as links;
use ccm_kit::routes::RouteTable as _;
use ccm_provider::{Aspects, Fact, InstancesV2 as _, Lookup, Node, NodeReader, NodeRef};

use super::explain_service::members;
use super::{Inspector, unreadable};
use crate::client::id::same;
use crate::loadbalancer::env::Several;
use crate::loadbalancer::machines::Machine;
use crate::loadbalancer::names::{is_pool_of_all, without_internal};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Wanted;
use crate::loadbalancer::wanted::hosts::{Host, Hosts, hosts, left_out};
use crate::loadbalancer::{json, plan};
use crate::node::identity::{Foreign, is_unmanaged, wanted};
use crate::routes::{AzureTable, with_machine};

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
            facts.extend(routes(azure, cluster, &with_machine(node, &instance)).await);
            facts.extend(balancers(azure, cluster, node).await);
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

/// The load balancers of the node, and why it is behind them.
async fn balancers(azure: &Inspector, cluster: &str, node: &Node) -> Vec<Fact> {
    let (balancers, about) = (azure.balancers.cloud(), "load balancers");
    let env = balancers.env();
    if let Some(why) = left_out(env, node) {
        return vec![Fact::good(about, format!("the node is behind none: {why}"))];
    }
    let own = hosts(env, &[Arc::new(node.clone())]);
    let mut all: Hosts = hosts(env, &azure.shared.cluster.nodes().map(NodeReader::list).unwrap_or_default());
    all.extend(own.clone());
    let wanted = Wanted { cluster: cluster.to_owned(), hosts: Some(all), ..Wanted::default() };
    let observed = match balancers.observe(cluster, &[], &wanted).await {
        Ok(observed) => observed,
        Err(error) => return vec![unreadable(about, error)],
    };
    let places = plan::places(env, &observed, &wanted);
    let is_placed = |plain: &str| {
        places
            .as_ref()
            .is_none_or(|places| places.iter().any(|(name, nodes)| same(name, plain) && nodes.contains(&*node.name)))
    };
    let has_none = |plain: &str| places.iter().flatten().any(|(name, nodes)| same(name, plain) && nodes.is_empty());
    let host = own.values().next();
    let of = |balancer: &serde_json::Value| {
        let name = json::name(balancer);
        // The pools of single Services hold nodes of all load balancers.
        let members = members(&observed, balancer, |name| env.several.is_empty() || is_pool_of_all(cluster, name));
        let machine = host.and_then(|host| Machine::of(&host.provider_id)).map(|machine| machine.id().folded());
        let is_member = machine.is_some_and(|id| members.contains(&id))
            || host.is_some_and(|host| host.addresses.iter().any(|ip| members.contains(&ip.to_string())));
        let plain = without_internal(name).0;
        let about = format!("load balancer {name}");
        match (is_placed(plain), is_member) {
            (true, true) => {
                Some(Fact::good(about, format!("the node is a member: {}", why(&env.several, &observed, host, plain))))
            }
            (true, false) => {
                Some(Fact::waiting(about, "the node is not a member yet: the next sync adds it if it is eligible"))
            }
            (false, true) if has_none(plain) => Some(Fact::good(
                about,
                "the node is a member: none belongs to this load balancer, which keeps all that it has",
            )),
            (false, true) => {
                Some(Fact::waiting(about, "the node is a member and belongs to another one: the next sync moves it"))
            }
            (false, false) => None,
        }
    };
    let facts: Vec<Fact> = observed.balancers.iter().map(Arc::as_ref).filter_map(of).collect();
    match facts.is_empty() {
        true if observed.balancers.is_empty() => vec![Fact::good(about, "there is none")],
        true => {
            let hint = "correct the labels of the node, or add an entry without nodeSelector to the configuration";
            vec![Fact::bad(about, "no entry of multipleStandardLoadBalancerConfigurations accepts the node", hint)]
        }
        false => facts,
    }
}

/// Why a node is behind this load balancer.
fn why(several: &[Several], observed: &Observed, host: Option<&Host>, plain: &str) -> String {
    let Some(one) = several.iter().find(|one| same(&one.name, plain)) else {
        return "all nodes of the cluster are behind it".to_owned();
    };
    let set = host.and_then(|host| plan::set_of(observed, host));
    match () {
        () if set.is_some_and(|set| same(&set, &one.primary_set)) => format!("{} is its primaryVMSet", one.primary_set),
        () if host.is_some_and(|host| host.selected.contains(&one.name)) => {
            "its nodeSelector chooses the node".to_owned()
        }
        () => "the node stays where it is; it had the fewest nodes of those that take any".to_owned(),
    }
}

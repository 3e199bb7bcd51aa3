//! Checks before this program takes over a cluster.
//!
//! | Check | About |
//! |---|---|
//! | `cloud-config` | settings with another effect than in the Go program, or none |
//! | `permissions` | the roles of the login, and each read; see [`permissions`] |
//! | `provider-ids`, `node-names`, `node-addresses` | the servers of the nodes; see [`nodes`] |
//! | `routes` | the treatment of the router's routes |
//! | `cluster-name` | whether other clusters of the project may have the same |
//! | `load-balancers` | the remaining work for each Service |

mod nodes;
mod permissions;

use std::collections::BTreeSet;
use std::net::IpAddr;

use ccm_kit::inspect::first_few;
use ccm_kit::inspect::migration::{configuration, services};
use ccm_provider::address::{parse_cidr, parse_ip};
use ccm_provider::{Check, Claims};

use super::{Inspector, unchecked};
use crate::client::network::ExtraRoute;
use crate::loadbalancer::names;

/// All checks. A failed read is an error of its check.
pub(super) async fn checks(openstack: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let mut checks = configuration(&openstack.findings);
    checks.extend(permissions::checks(openstack, claims).await);
    checks.extend(nodes::checks(openstack, claims).await);
    checks.extend(router(openstack, claims).await);
    match openstack.balancers() {
        Ok(balancers) => {
            checks.extend(cluster_name(cluster));
            checks.extend(services(balancers, cluster, claims).await);
        }
        Err(off) => checks.push(Check::good("load-balancers", "", off.to_string())),
    }
    checks
}

fn cluster_name(cluster: &str) -> Option<Check> {
    let [risk, fix] = names::SHARED_NAME;
    (cluster == names::DEFAULT_CLUSTER).then(|| Check::warning("cluster-name", cluster, risk, fix))
}

async fn router(openstack: &Inspector, claims: &Claims) -> Vec<Check> {
    const CHECK: &str = "routes";
    let Some(router) = &openstack.router else {
        return vec![Check::good(CHECK, "", "[Route] router-id is not set: no routes are made")];
    };
    let subject = format!("router {router}");
    if !openstack.makes_routes {
        return vec![Check::good(CHECK, subject, "not checked: no controller makes routes")];
    }
    let routes = match openstack.client.router(router).await {
        Ok(found) => found.routes,
        Err(error) => return vec![unchecked(CHECK, subject, error)],
    };
    let of_nodes: BTreeSet<IpAddr> =
        claims.nodes.iter().flat_map(|node| &node.addresses).filter_map(ccm_provider::NodeAddress::ip).collect();
    let is_to_node = |route: &&ExtraRoute| parse_ip(&route.nexthop).is_some_and(|hop| of_nodes.contains(&hop));
    let in_cluster = |route: &&ExtraRoute| {
        parse_cidr(&route.destination)
            .is_some_and(|range| openstack.cluster_cidrs.iter().any(|cluster| cluster.contains(&range)))
    };
    let (ours, others): (Vec<&ExtraRoute>, Vec<&ExtraRoute>) = routes.iter().partition(is_to_node);
    let (going, left): (Vec<&ExtraRoute>, Vec<&ExtraRoute>) = others.into_iter().partition(in_cluster);
    let names = |routes: &[&ExtraRoute]| {
        let names: Vec<String> =
            routes.iter().map(|route| format!("{} via {}", route.destination, route.nexthop)).collect();
        first_few(&names.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let mut checks = vec![Check::good(CHECK, &*subject, format!("routes to nodes: {}", ours.len()))];
    if !left.is_empty() {
        checks.push(Check::good(CHECK, &*subject, format!("routes of others, which are left alone: {}", names(&left))));
    }
    if !going.is_empty() {
        let text = format!(
            "routes inside of --cluster-cidr to addresses that no node has, which are removed, as by the Go program: {}",
            names(&going)
        );
        checks.push(Check::warning(CHECK, subject, text, "give another cluster on this router another --cluster-cidr"));
    }
    checks
}

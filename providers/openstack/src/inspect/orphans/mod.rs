//! Objects of this cluster, by their names, that nothing in the cluster claims.
//!
//! Names, tags and descriptions of objects contain the cluster name, which several clusters in a project may share:
//! `kubernetes` is the default. So an object counts only if *two* of them match, and it is kept unless something shows
//! that it belongs to this cluster: a node behind a balancer, a server with a security group, or a cluster name that is
//! not the default. Doubtful objects are listed and kept.

mod delete;
mod found;

use std::collections::BTreeSet;

use ccm_kit::inspect::orphans::Services;
use ccm_provider::{Claims, Orphan, ProviderError};
use serde::{Deserialize, Serialize};

use super::Inspector;
use crate::client::Query;
use crate::client::network::{FloatingIp, SecurityGroup};
use crate::client::octavia::LoadBalancer;
use crate::loadbalancer::env::Features;
use crate::loadbalancer::names::{self, DEFAULT_CLUSTER};
pub(super) use delete::delete;

/// Identity of an orphan for its deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum OrphanRef {
    LoadBalancer {
        id: String,
        name: String,
        service: String,
    },
    /// `port`: the port of a balancer that is also an orphan.
    FloatingIp {
        id: String,
        description: String,
        port: Option<String>,
    },
    SecurityGroup {
        id: String,
        name: String,
        uid: String,
        service: String,
    },
}

/// All candidates.
#[derive(Debug, Default)]
struct Inventory {
    balancers: Vec<LoadBalancer>,
    floating_ips: Vec<FloatingIp>,
    security_groups: Vec<SecurityGroup>,
    has_tags: bool,
}

/// The objects that the cluster claims.
#[derive(Debug)]
struct Claimed<'a> {
    cluster: &'a str,
    services: Services<'a>,
    /// Names, and tags, of the balancers of Services that have or had one.
    names: BTreeSet<String>,
    /// The balancer IDs in Service annotations.
    ids: BTreeSet<&'a str>,
    groups: BTreeSet<String>,
    /// Addresses of nodes.
    addresses: BTreeSet<String>,
    /// Servers of nodes.
    servers: BTreeSet<String>,
}

/// # Errors
///
/// A read failed.
pub(super) async fn find(openstack: &Inspector, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    openstack.balancers()?;
    let inventory = read(openstack).await?;
    let claimed = Claimed::new(openstack, cluster, claims);
    found::orphans(openstack, &inventory, &claimed).await
}

async fn read(openstack: &Inspector) -> Result<Inventory, ProviderError> {
    let client = &openstack.client;
    let (version, balancers, floating_ips, security_groups) = futures::try_join!(
        client.octavia_version(),
        client.load_balancers(Query::default()),
        client.floating_ips(Query::default()),
        client.all_security_groups(),
    )?;
    let is_ovn = openstack.balancers()?.env().is_ovn();
    Ok(Inventory { balancers, floating_ips, security_groups, has_tags: Features::of(version, is_ovn).tags })
}

impl<'a> Claimed<'a> {
    fn new(openstack: &Inspector, cluster: &'a str, claims: &'a Claims) -> Self {
        let services = Services::new(claims);
        let id = crate::annotations::LOAD_BALANCER_ID.row.key;
        let addresses = claims.nodes.iter().flat_map(|node| &node.addresses).map(|address| address.address.to_string());
        let server = |node: &ccm_provider::NodeRef| {
            let id = openstack.identity.parse(node.provider_id_or_empty()).ok()?;
            Some(id.as_str().to_owned())
        };
        Self {
            cluster,
            names: services.claiming().map(|service| names::balancer(cluster, service)).collect(),
            // Regardless of the type: a Service that names a balancer may get it again.
            ids: claims
                .services
                .iter()
                .filter_map(|service| service.metadata.annotations.get(id))
                .map(|id| &**id)
                .collect(),
            groups: services.claiming().map(names::security_group).collect(),
            addresses: addresses.collect(),
            servers: claims.nodes.iter().filter_map(server).collect(),
            services,
        }
    }

    /// The reason to keep an object of which only names and descriptions are known.
    fn unsure(&self) -> Option<String> {
        (self.cluster == DEFAULT_CLUSTER).then(|| {
            format!(
                "--cluster-name is {DEFAULT_CLUSTER}, which other clusters of the project may have, and nothing else shows whose \
                 it is; remove it by hand"
            )
        })
    }
}

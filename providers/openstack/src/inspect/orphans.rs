//! Objects of this cluster, by their names, that nothing in the cluster claims, and their deletion.
//!
//! An object counts only if *two* of name, tag and description match, and it is kept unless something shows that it
//! belongs to this cluster: a node behind a balancer, a server with a security group, or a cluster name that is not the
//! default. Doubtful objects are listed and kept.

use std::collections::BTreeSet;

use ccm_kit::inspect::orphans::{self, Services, Unclaimed};
use ccm_kit::inspect::{LOAD_BALANCER, Object};
use ccm_provider::{Claims, NodeRef, Orphan, ProviderError, Risk};

use super::Inspector;
use super::inventory::{self, FLOATING_IP};
use crate::annotations::{KEEP_FLOATING_IP, LOAD_BALANCER_ID};
use crate::client::Query;
use crate::client::network::{FloatingIp, SecurityGroup};
use crate::client::octavia::LoadBalancer;
use crate::loadbalancer::claim::{Claim, Evidence};
use crate::loadbalancer::env::Features;
use crate::loadbalancer::names::{self, DEFAULT_CLUSTER};
use crate::loadbalancer::observed::service_tags;
use crate::loadbalancer::plan::not_ours;

/// Maximum number of concurrent reads.
const AT_ONCE: usize = 20;

/// The objects that the cluster claims.
struct Claimed<'a> {
    openstack: &'a Inspector,
    cluster: &'a str,
    services: Services<'a>,
    /// Names, and tags, of the balancers of Services that have or had one.
    names: BTreeSet<String>,
    /// The balancer IDs in Service annotations.
    ids: BTreeSet<&'a str>,
    groups: BTreeSet<String>,
    nodes: &'a [NodeRef],
    /// Servers of nodes.
    servers: BTreeSet<String>,
}

pub(super) async fn find(openstack: &Inspector, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    let provider = openstack.balancers()?.env().provider(None);
    let client = &openstack.client;
    let (version, balancers, floating_ips, groups) = futures::try_join!(
        client.octavia_version(),
        client.load_balancers(Query::default()),
        client.floating_ips(Query::default()),
        client.all_security_groups(),
    )?;
    let (has_tags, claimed) = (Features::of(version, provider).tags, Claimed::new(openstack, cluster, claims));
    let mut found = orphans::each(&balancers, AT_ONCE, |lb| claimed.balancer(lb, has_tags)).await?;
    found.extend(floating_ips.iter().filter_map(|ip| claimed.floating_ip(ip)));
    found.extend(orphans::each(&groups, AT_ONCE, |group| claimed.group(group)).await?);
    Ok(orphans::in_order(found))
}

impl<'a> Claimed<'a> {
    fn new(openstack: &'a Inspector, cluster: &'a str, claims: &'a Claims) -> Self {
        let services = Services::new(cluster, claims);
        let id = LOAD_BALANCER_ID.row.key;
        let server = |node: &NodeRef| {
            let id = openstack.identity.parse(node.provider_id_or_empty()).ok()?;
            Some(id.as_str().to_owned())
        };
        // Regardless of the type: a Service that names a balancer may get it again.
        let ids = claims.services.iter().filter_map(|service| service.metadata.annotations.get(id));
        Self {
            openstack,
            cluster,
            names: services.claiming().map(|service| names::balancer(cluster, service)).collect(),
            ids: ids.map(|id| &**id).collect(),
            groups: services.claiming().map(names::security_group).collect(),
            nodes: &claims.nodes,
            servers: claims.nodes.iter().filter_map(server).collect(),
            services,
        }
    }

    async fn balancer(&self, lb: &LoadBalancer, has_tags: bool) -> Result<Option<Unclaimed>, ProviderError> {
        let is_going = matches!(&*lb.provisioning_status, "PENDING_DELETE" | "DELETED");
        let mut tags = service_tags(&lb.tags);
        let is_claimed = self.names.contains(&lb.name)
            || self.ids.contains(&*lb.id)
            || tags.clone().any(|tag| self.names.contains(tag));
        let found = self.services.former(inventory::balancer(lb), "its name, description and tag");
        let Some((found, service)) = found.filter(|_| !is_going && !is_claimed) else { return Ok(None) };
        let kept = if names::is_cut(&lb.name) {
            Some("its name was cut, so that its Service is not certain; remove it by hand".to_owned())
        } else if lb.description != names::Descriptions::of(self.cluster, &service).balancer {
            Some("its description is not that of this cluster's load balancer; remove it by hand".to_owned())
        } else if has_tags && !lb.tags.contains(&lb.name) {
            Some(format!("it lacks the tag {}; remove it by hand", lb.name))
        } else if let Some(tag) = tags.find(|tag| **tag != lb.name) {
            Some(format!("another cluster uses it: it has the tag {tag}"))
        } else {
            self.doubt(lb, &service).await?
        };
        Ok(Some(Unclaimed { kept, risk: Risk::Disruptive, ..found }))
    }

    /// The reason why a balancer may belong to another cluster with the same name.
    async fn doubt(&self, lb: &LoadBalancer, service: &str) -> Result<Option<String>, ProviderError> {
        let (balancers, former) = (self.openstack.balancers()?, orphans::former(service, "")?);
        Ok(match balancers.claim_of(self.cluster, &former, lb, self.nodes).await? {
            (_, Evidence::Empty) => self.unsure(),
            (_, Evidence::Nothing) if self.nodes.is_empty() => self.unsure(),
            (Claim::Own, _) => None,
            _ => Some(not_ours(&lb.id, &format!("name {}", lb.name))),
        })
    }

    fn floating_ip(&self, ip: &FloatingIp) -> Option<Unclaimed> {
        let marks = "its description. The annotation keep-floatingip may have kept it on purpose: a deleted address does not \
                     come back";
        let (found, service) = self.services.former(inventory::floating_ip(ip), marks)?;
        let kept = match () {
            () if self.services.claims(&service) => return None,
            () if names::is_cut(&ip.description) => Some("its description was cut; remove it by hand".to_owned()),
            () if found.object.users.is_empty() => self.unsure(),
            () => None,
        };
        Some(Unclaimed { kept, risk: Risk::Disruptive, ..found })
    }

    async fn group(&self, group: &SecurityGroup) -> Result<Option<Unclaimed>, ProviderError> {
        let found = self.services.former(inventory::security_group(group), "its name and description");
        let Some((found, service)) = found.filter(|_| !self.groups.contains(&group.name)) else { return Ok(None) };
        let ports = self.openstack.client.ports(Query::default().with("security_groups", &group.id)).await?;
        let foreign = ports.iter().find(|port| !self.servers.contains(&port.device_id));
        let doubt = match foreign {
            // Another cluster may have the same name.
            Some(port) if !self.servers.is_empty() => {
                Some(format!("port {} has it, which is not that of a node of this cluster; remove it by hand", port.id))
            }
            None if !ports.is_empty() => None,
            _ => self.unsure(),
        };
        Ok(Some(Unclaimed { kept: self.services.namesake(&service).or(doubt), ..found }))
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

/// Deletes one orphan after reading it again, with the writes of the controllers.
pub(super) async fn delete(openstack: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    let (balancers, client) = (openstack.balancers()?, &openstack.client);
    if orphan.kind == FLOATING_IP {
        let found = client.floating_ips(Query::default().with("id", &orphan.id)).await?;
        let now: Vec<Object> = found.iter().map(inventory::floating_ip).collect();
        if orphans::is_there(orphan, &now)? {
            client.delete_floating_ip(&orphan.id).await?;
        }
        return Ok(());
    }
    let claim = orphans::claim(orphan)?;
    let mut former = orphans::former(&claim.service, &claim.uid)?;
    let kinds = match &*orphan.kind {
        LOAD_BALANCER => {
            let annotations = &mut former.metadata.annotations;
            annotations.insert(LOAD_BALANCER_ID.row.key.to_owned(), orphan.id.clone());
            // A floating IP is a separate orphan.
            annotations.insert(KEEP_FLOATING_IP.row.key.to_owned(), "true".to_owned());
            &["LoadBalancer", "Listener", "Pool", "HealthMonitor"][..]
        }
        _ => &["Port", "SecurityGroup"],
    };
    let is_there = |now: &[Object]| orphans::is_there(orphan, now);
    orphans::delete(balancers, cluster, &former, is_there, |step| kinds.contains(&&*step.summary.kind)).await
}

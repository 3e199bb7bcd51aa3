//! Load balancers that nothing in the cluster claims.
//!
//! Names contain the UID of a Service and descriptions its name, but nothing names the cluster, of which a project may
//! have several. So an object counts only with both, and it is kept unless something shows that it belongs to this
//! cluster: a node behind it, or a health check with the ID of the cluster. Doubtful ones are listed and kept.

use std::collections::BTreeSet;

use ccm_kit::inspect::orphans::{self, Services, Unclaimed};
use ccm_provider::{Claims, NodeRef, Orphan, ProviderError, Risk};
use serde::{Deserialize, Serialize};

use super::Inspector;
use crate::annotations::Scheme;
use crate::client::balancing::BackendService;
use crate::client::balancing::{ForwardingRule, TargetPool};
use crate::client::filter::Filter;
use crate::client::operation::{BACKEND_SERVICE_LIST, FORWARDING_RULE_LIST, TARGET_POOL_LIST};
use crate::client::resource::last_part;
use crate::loadbalancer::hosts::{Host, Hosts};
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::owner::finalizer;
use crate::loadbalancer::plan::{backend_name, real_scheme};
use crate::ownership::{ClusterNames, described_service};

/// The identity of an orphan for its deletion.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct OrphanRef {
    name: String,
    service: String,
    is_internal: bool,
    description: String,
}

/// The objects of load balancers in this region that have such a name and description.
#[derive(Debug, Default)]
struct Inventory {
    rules: Vec<ForwardingRule>,
    pools: Vec<TargetPool>,
    backends: Vec<BackendService>,
}

/// The objects that the cluster claims.
struct Claimed<'a> {
    services: Services<'a>,
    /// The names of the balancers of its Services.
    names: BTreeSet<String>,
    hosts: BTreeSet<Host>,
    cluster_id: String,
}

/// # Errors
///
/// A read failed.
pub(super) async fn find(gce: &Inspector, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    let inventory = read(gce).await?;
    let names = claims.services.iter().map(|service| service.default_load_balancer_name()).collect();
    let hosts = Hosts::of(claims.nodes.iter().map(|node: &NodeRef| &**node)).all();
    let (services, cluster_id) = (Services::new(claims), gce.shared.cluster_id.get().await?.id);
    Ok(all(&inventory, &Claimed { services, names, hosts, cluster_id }))
}

async fn read(gce: &Inspector) -> Result<Inventory, ProviderError> {
    let (client, region, all) = (&gce.shared.client, gce.balancers.cloud().env().region(), Filter::default());
    let (rules, pools, backends) = futures::try_join!(
        client.list(FORWARDING_RULE_LIST, &region, &all),
        client.list(TARGET_POOL_LIST, &region, &all),
        client.list(BACKEND_SERVICE_LIST, &region, &all),
    )?;
    Ok(Inventory { rules, pools, backends })
}

/// The identity of a balancer: its name, its description, and its kind.
struct Found<'a> {
    name: &'a str,
    description: &'a str,
    scheme: Scheme,
}

fn all(inventory: &Inventory, claimed: &Claimed<'_>) -> Vec<Orphan> {
    let rules = inventory.rules.iter().map(|rule| Found {
        name: &rule.name,
        description: &rule.description,
        scheme: real_scheme(rule),
    });
    // Leftovers of an interrupted deletion.
    let pools = inventory.pools.iter().map(|pool| Found {
        name: &pool.name,
        description: &pool.description,
        scheme: Scheme::External,
    });
    let backends = inventory.backends.iter().map(|backend| Found {
        name: &backend.name,
        description: &backend.description,
        scheme: Scheme::Internal,
    });
    let mut seen = BTreeSet::new();
    rules
        .chain(pools)
        .chain(backends)
        .filter(|found| seen.insert(found.name.to_owned()))
        .filter_map(|found| orphan(&found, inventory, claimed))
        .collect()
}

fn orphan(found: &Found<'_>, inventory: &Inventory, claimed: &Claimed<'_>) -> Option<Orphan> {
    let service = described_service(found.description).filter(|_| is_balancer(found.name))?;
    if claimed.names.contains(found.name) {
        return None;
    }
    let service = service.to_string();
    let unclaimed = Unclaimed {
        kind: "LoadBalancer",
        id: found.name.to_owned(),
        name: String::new(),
        owner: format!("service {service}"),
        why: claimed.services.why(&service),
        marks: "its name and description".to_owned(),
        kept: doubt(found, inventory, claimed),
        risk: Risk::Disruptive,
        handle: OrphanRef {
            name: found.name.to_owned(),
            service,
            is_internal: found.scheme == Scheme::Internal,
            description: found.description.to_owned(),
        },
    };
    Some(unclaimed.into())
}

/// `a` and the digits of a UID.
fn is_balancer(name: &str) -> bool {
    name.strip_prefix('a')
        .is_some_and(|digits| digits.len() == 31 && digits.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The reason why a balancer may belong to another cluster in the project.
fn doubt(found: &Found<'_>, inventory: &Inventory, claimed: &Claimed<'_>) -> Option<String> {
    let cluster = ClusterNames(&claimed.cluster_id);
    let names = |urls: &[String], name: &str| urls.iter().any(|url| last_part(url) == name);
    let (is_ours, has_members) = match found.scheme {
        Scheme::External => {
            let pool = inventory.pools.iter().find(|pool| pool.name == found.name);
            let hosts: Vec<Host> =
                pool.into_iter().flat_map(|pool| &pool.instances).filter_map(|url| Host::of_url(url)).collect();
            let checked = pool.is_some_and(|pool| names(&pool.health_checks, &cluster.health_check()));
            (checked || hosts.iter().any(|host| claimed.hosts.contains(host)), !hosts.is_empty())
        }
        Scheme::Internal => {
            let rule = inventory.rules.iter().find(|rule| rule.name == found.name);
            let name = rule.and_then(backend_name).unwrap_or_else(|| found.name.to_owned());
            let backend = inventory.backends.iter().find(|backend| backend.name == name);
            let group = cluster.instance_group();
            let is_ours = backend.is_some_and(|backend| {
                names(&backend.health_checks, &cluster.health_check())
                    || backend.groups().any(|url| last_part(url) == group)
            });
            (is_ours, backend.is_some_and(|backend| backend.groups().next().is_some()))
        }
    };
    (!is_ours).then(|| match has_members {
        true => "what is behind it is not of this cluster: another cluster of the project may use it; check that nothing does, and \
                 remove it by hand"
            .to_owned(),
        false => "nothing is behind it that shows whose it is; remove it by hand".to_owned(),
    })
}

/// Deletes one orphan after reading it again, with the writes of the controllers.
///
/// # Errors
///
/// The orphan must be kept, its name or description has changed, or the cloud refused.
pub(super) async fn delete(gce: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    let handle: OrphanRef = orphans::handle(orphan)?;
    // The name contains the part of the UID that names use.
    let mut service = orphans::former(&handle.service, handle.name.strip_prefix('a').unwrap_or_default())?;
    let scheme = if handle.is_internal { Scheme::Internal } else { Scheme::External };
    service.metadata.finalizers = vec![finalizer(scheme).to_owned()];
    let is_there = |observed: &Observed| match observed.rules.get(&handle.name) {
        Some(rule) if rule.description != handle.description || real_scheme(rule) != scheme => {
            Err(orphans::changed(orphan, "description or scheme"))
        }
        _ => Ok(true),
    };
    orphans::delete(gce.balancers.cloud(), cluster, &service, is_there, |_| true).await
}

//! Load balancers that nothing in the cluster claims.
//!
//! Names contain the UID of a Service and descriptions its name, but nothing names the cluster, of which a project may
//! have several. So an object counts only with both, and it is kept unless something shows that it belongs to this
//! cluster: a node behind it, or a health check with the ID of the cluster. Doubtful ones are listed and kept.

use std::collections::BTreeSet;

use ccm_kit::annotations::BalancerKind as _;
use ccm_kit::inspect::Object;
use ccm_kit::inspect::orphans::{self, Services, Unclaimed};
use ccm_provider::{Claims, NodeRef, Orphan, ProviderError, Risk};

use super::Inspector;
use super::inventory::balancer;
use crate::annotations::Scheme;
use crate::client::balancing::{Address, BackendService, ForwardingRule, TargetPool};
use crate::client::filter::Filter;
use crate::client::operation::{ADDRESS_LIST, BACKEND_SERVICE_LIST, FORWARDING_RULE_LIST, TARGET_POOL_LIST};
use crate::client::resource::{Scope, last_part};
use crate::client::{ApiError, Client, is_forbidden};
use crate::loadbalancer::claim::{finalizer, real_scheme};
use crate::loadbalancer::hosts::{Host, Hosts};
use crate::loadbalancer::plan::backend_name;
use crate::ownership::ClusterNames;

/// The objects of load balancers in this region, and those of the cluster.
struct Seen {
    rules: Vec<ForwardingRule>,
    pools: Vec<TargetPool>,
    backends: Vec<BackendService>,
    addresses: Vec<Address>,
    hosts: BTreeSet<Host>,
    cluster_id: String,
}

pub(super) async fn find(gce: &Inspector, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
    let (client, region, all) = (&gce.shared.client, gce.balancers.cloud().env().region(), Filter::default());
    let (rules, pools, backends, addresses) = futures::try_join!(
        client.list(FORWARDING_RULE_LIST, &region, &all),
        client.list(TARGET_POOL_LIST, &region, &all),
        client.list(BACKEND_SERVICE_LIST, &region, &all),
        reservations(client, &region),
    )?;
    let hosts = Hosts::of(claims.nodes.iter().map(|node: &NodeRef| &**node)).all();
    let seen = Seen { rules, pools, backends, addresses, hosts, cluster_id: gce.shared.cluster_id.get().await?.id };
    let mut names: BTreeSet<String> =
        claims.services.iter().map(|service| service.default_load_balancer_name()).collect();
    let services = Services::new("", claims);
    let unclaimed = |(object, scheme): (Object, Scheme)| {
        // All objects of a balancer have its name.
        let is_first = names.insert(object.id.clone());
        let (found, _) = services.former(object, "its name and description").filter(|_| is_first)?;
        Some(Unclaimed { kept: seen.doubt(&found.object.id, scheme), risk: Risk::Disruptive, ..found })
    };
    Ok(orphans::in_order(seen.balancers().filter_map(unclaimed).collect()))
}

/// The reservations of the region; none without the permission, which the work on Services may do without.
async fn reservations(client: &Client, region: &Scope) -> Result<Vec<Address>, ApiError> {
    match client.list(ADDRESS_LIST, region, &Filter::default()).await {
        Err(error) if is_forbidden(&error) => {
            tracing::warn!(%error, "reserved addresses are not listed");
            Ok(Vec::new())
        }
        listed => listed,
    }
}

impl Seen {
    /// By rules, and by what an interrupted change or deletion has left.
    fn balancers(&self) -> impl Iterator<Item = (Object, Scheme)> {
        let of = |name: &str, description: &str, scheme| (balancer(name, description, scheme), scheme);
        let rules = self.rules.iter().map(move |rule| of(&rule.name, &rule.description, real_scheme(rule)));
        let pools = self.pools.iter().map(move |pool| of(&pool.name, &pool.description, Scheme::External));
        let backends = self.backends.iter().map(move |one| of(&one.name, &one.description, Scheme::Internal));
        let kind = |address: &Address| if address.is_internal() { Scheme::Internal } else { Scheme::External };
        let addresses = self.addresses.iter().map(move |one| of(&one.name, &one.description, kind(one)));
        rules.chain(pools).chain(backends).chain(addresses)
    }

    /// The reason why a balancer may belong to another cluster in the project.
    fn doubt(&self, name: &str, scheme: Scheme) -> Option<String> {
        let cluster = ClusterNames(&self.cluster_id);
        let names = |urls: &[String], name: &str| urls.iter().any(|url| last_part(url) == name);
        let (is_ours, has_members) = match scheme {
            Scheme::External => {
                let pool = self.pools.iter().find(|pool| pool.name == name);
                let hosts: Vec<Host> =
                    pool.into_iter().flat_map(|pool| &pool.instances).filter_map(|url| Host::of_url(url)).collect();
                let checked = pool.is_some_and(|pool| names(&pool.health_checks, &cluster.health_check()));
                (checked || hosts.iter().any(|host| self.hosts.contains(host)), !hosts.is_empty())
            }
            Scheme::Internal => {
                let rule = self.rules.iter().find(|rule| rule.name == name);
                let name = rule.and_then(backend_name).unwrap_or_else(|| name.to_owned());
                let backend = self.backends.iter().find(|backend| backend.name == name);
                let group = cluster.instance_group();
                let is_ours = backend.is_some_and(|backend| {
                    names(&backend.health_checks, &cluster.health_check())
                        || backend.groups().any(|url| last_part(url) == group)
                });
                (is_ours, backend.is_some_and(|backend| backend.groups().next().is_some()))
            }
        };
        (!is_ours).then(|| match has_members {
            true => "what is behind it is not of this cluster: another cluster of the project may use it; check that nothing does, \
                     and remove it by hand"
                .to_owned(),
            false => "nothing is behind it that shows whose it is; remove it by hand".to_owned(),
        })
    }
}

/// Deletes one orphan after reading it again, with the writes of the controllers.
pub(super) async fn delete(gce: &Inspector, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
    let claim = orphans::claim(orphan)?;
    let mut service = orphans::former(&claim.service, &claim.uid)?;
    let scheme = Scheme::ALL.iter().find(|scheme| claim.marks.first().is_some_and(|mark| mark == scheme.as_str()));
    service.metadata.finalizers = scheme.map(|scheme| finalizer(*scheme).to_owned()).into_iter().collect();
    // Also without a rule something may be left.
    let is_there = |now: &[Object]| orphans::is_there(orphan, now).map(|_| true);
    orphans::delete(gce.balancers.cloud(), cluster, &service, is_there, |_| true).await
}

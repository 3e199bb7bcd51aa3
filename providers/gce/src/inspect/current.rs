//! The desired and observed state of one Service, and the remaining plan.

use std::collections::BTreeSet;

use ccm_provider::{
    Finding, NodeReader, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork, Step, Steps,
};

use super::Inspector;
use crate::loadbalancer::desired::{Desired, Item};
use crate::loadbalancer::dispatch::{self, Owner};
use crate::loadbalancer::hosts::Host;
use crate::loadbalancer::observed::Observed;

/// The place of the only Service in its work.
const PLACE: usize = 0;

#[derive(Debug)]
pub(super) struct Current {
    pub(super) item: Item,
    pub(super) observed: Observed,
    /// The remaining steps and the findings, or why there is no plan.
    pub(super) plan: Result<(Vec<Step>, Vec<Finding>), ProviderError>,
}

pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.is_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
}

/// Whether another controller makes the balancer of a Service, as far as the Service shows.
pub(super) fn is_of_others(gce: &Inspector, service: &Service) -> bool {
    dispatch::owner(&gce.balancers.0.env().options, service, action(service)) == Owner::Other
}

/// Observes and plans the balancer of a Service.
///
/// Only the core knows which nodes are eligible. So the registered ones count as wanted, or all if none is registered;
/// `ccm plan` shows missing ones.
///
/// # Errors
///
/// An invalid Service or a failed read.
pub(super) async fn load(
    gce: &Inspector,
    cluster: &str,
    service: &Service,
    action: ServiceAction,
) -> Result<Current, ProviderError> {
    let nodes: Vec<NodeRef> = gce.site.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    let work = [ServiceWork::new(service, &nodes, action)];
    let balancers = &gce.balancers.0;
    let (mut desired, verdicts) = balancers.desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    let missing = || ProviderError::bug("there is no desired state of the Service");
    let item = desired.items.get_mut(&PLACE).ok_or_else(missing)?;
    keep_registered(item, &observed);
    let item = item.clone();
    let plan = planned(gce, &observed, &desired);
    Ok(Current { item, observed, plan })
}

fn planned(
    gce: &Inspector,
    observed: &Observed,
    desired: &Desired,
) -> Result<(Vec<Step>, Vec<Finding>), ProviderError> {
    let balancers = &gce.balancers.0;
    let Steps { steps, findings, failed } = balancers.plan(observed, desired)?;
    failed.into_values().next().map_or(Ok(()), Err)?;
    balancers.guard(observed, desired, &steps)?;
    Ok((steps.iter().map(|step| balancers.describe(step)).collect(), findings))
}

/// The instances behind the balancer.
pub(super) fn members(item: &Item, observed: &Observed) -> BTreeSet<Host> {
    let pool = observed.pools.get(&item.names.balancer).into_iter();
    let of_pool = pool.flat_map(|pool| pool.instances.iter().filter_map(|url| Host::of_url(url)));
    let of_groups = observed.groups.values().flat_map(|zone| zone.values()).flatten().cloned();
    of_pool.chain(of_groups).collect()
}

fn keep_registered(item: &mut Item, observed: &Observed) {
    let registered = members(item, observed);
    if let Some(settings) = item.settings.as_mut().filter(|_| !registered.is_empty()) {
        settings.hosts.known.retain(|host, _| registered.contains(host));
    }
}

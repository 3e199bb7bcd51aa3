//! The desired and observed state of one Service, and the remaining plan.

use std::collections::BTreeSet;

use ccm_provider::{Finding, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork, Step, Steps};

use super::Inspector;
use crate::loadbalancer::desired::Item;
use crate::loadbalancer::observed::{Balancer, Observed};

/// The place of the only Service in its work.
pub(super) const PLACE: usize = 0;

#[derive(Debug)]
pub(super) struct Current {
    pub(super) item: Item,
    pub(super) observed: Observed,
    /// The remaining steps and the findings, or why there is no plan.
    pub(super) plan: Result<(Vec<Step>, Vec<Finding>), ProviderError>,
}

impl Current {
    pub(super) fn balancer(&self) -> Option<&Balancer> {
        self.observed.balancer(PLACE)
    }
}

pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
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
    openstack: &Inspector,
    cluster: &str,
    service: &Service,
    nodes: &[NodeRef],
    action: ServiceAction,
) -> Result<Current, ProviderError> {
    let work = [ServiceWork::new(service, nodes, action)];
    let balancers = openstack.balancers()?;
    let (mut desired, verdicts) = balancers.desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    let missing = || ProviderError::bug("there is no desired state of the Service");
    // What is below the balancer is read, whatever was noted.
    desired.items.get_mut(&PLACE).ok_or_else(missing)?.applied = None;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    let item = desired.items.get_mut(&PLACE).ok_or_else(missing)?;
    keep_registered(item, &observed);
    let item = item.clone();
    let plan = balancers.plan(&observed, &desired).and_then(|Steps { steps, findings, failed }| {
        failed.into_values().next().map_or(Ok(()), Err)?;
        balancers.guard(&observed, &desired, &steps)?;
        Ok((steps.iter().map(|step| balancers.describe(step)).collect(), findings))
    });
    Ok(Current { item, observed, plan })
}

fn keep_registered(item: &mut Item, observed: &Observed) {
    let members = observed.balancer(PLACE).into_iter().flat_map(|balancer| balancer.members.values().flatten());
    let registered: BTreeSet<&str> = members.map(|member| &*member.address).collect();
    if let Some(settings) = item.settings.as_mut().filter(|_| !registered.is_empty()) {
        settings.members.retain(|target| registered.contains(&*target.address));
    }
}

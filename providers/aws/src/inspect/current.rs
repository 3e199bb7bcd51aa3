//! The desired and observed state of one Service, and the remaining plan.

use std::collections::BTreeSet;

use ccm_provider::{Finding, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork, Step, Steps};

use super::Inspector;
use crate::loadbalancer::desired::Desired;
use crate::loadbalancer::observed::Observed;

#[derive(Debug)]
pub(super) struct Current {
    pub(super) desired: Desired,
    pub(super) observed: Observed,
    /// The remaining steps and the findings, or why there is no plan.
    pub(super) plan: Result<(Vec<Step>, Vec<Finding>), ProviderError>,
}

impl Current {
    pub(super) fn is_there(&self) -> bool {
        self.observed.classic.is_some() || self.observed.network.is_some()
    }
}

pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
}

/// Observes and plans the balancer of a Service. `None`: another controller manages it, and this program has none left
/// for it.
///
/// Only the core knows which nodes are eligible. So the registered ones count as wanted, or all if none is registered;
/// `ccm plan` shows missing ones.
///
/// # Errors
///
/// An invalid Service, [`ProviderError::ImplementedElsewhere`], or a failed read.
pub(super) async fn load(
    aws: &Inspector,
    cluster: &str,
    service: &Service,
    nodes: &[NodeRef],
    action: ServiceAction,
) -> Result<Option<Current>, ProviderError> {
    let work = [ServiceWork::new(service, nodes, action)];
    let (mut wanted, verdicts) = aws.balancers().desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    if wanted.is_empty() {
        return Ok(None);
    }
    let seen = aws.balancers().observe(cluster, &work, &wanted).await?;
    if let (Some(desired), Some(seen)) = (wanted.first_mut(), seen.first()) {
        keep_registered(desired, &seen.observed);
    }
    let plan = aws.balancers().plan(&seen, &wanted);
    let described = |steps: Steps<_>| {
        let all = steps.steps.iter().map(|step| aws.balancers().describe(step)).collect();
        (all, steps.findings)
    };
    let plan = plan.map(described);
    let (desired, seen) = (wanted.into_iter().next(), seen.into_iter().next());
    Ok(desired.zip(seen).map(|(desired, seen)| Current { desired, observed: seen.observed, plan }))
}

fn keep_registered(desired: &mut Desired, observed: &Observed) {
    let registered = registered(observed);
    if let Some(common) = desired.goal.common_mut().filter(|_| !registered.is_empty()) {
        common.targets.retain(|id, _| registered.contains(id));
    }
}

/// The instances behind the balancer now.
fn registered(observed: &Observed) -> BTreeSet<String> {
    let classic = observed.classic.iter().flat_map(|classic| classic.balancer.instances.iter().cloned());
    let groups = observed.network.iter().flat_map(|network| &network.target_groups);
    let targets = groups.flat_map(|group| &group.targets).filter(|target| target.state != "draining");
    classic.chain(targets.map(|health| health.target.id.clone())).collect()
}

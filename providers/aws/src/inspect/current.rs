//! What a Service wants of the cloud, what of that is there, and what is left to do.

use std::collections::BTreeSet;

use ccm_provider::{Finding, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork, Step, Steps};

use super::Inspector;
use crate::loadbalancer::desired::{Common, Desired, Goal};
use crate::loadbalancer::observe::Observed;

/// How a Service's balancer stands.
#[derive(Debug)]
pub(super) struct Current {
    pub(super) desired: Desired,
    pub(super) observed: Observed,
    /// What is left to do and what was noticed; or why nothing can be done.
    pub(super) plan: Result<(Vec<Step>, Vec<Finding>), ProviderError>,
}

impl Current {
    /// Whether there is a balancer of either kind.
    pub(super) fn is_there(&self) -> bool {
        self.observed.classic.is_some() || self.observed.network.is_some()
    }
}

/// What the controllers would do with a Service.
pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
}

/// Looks at the balancer of a Service. `None`: it is somebody else's, and none of ours is left.
///
/// Which nodes may be behind a balancer is the core's to say. So those that are registered count as wanted, and all of them
/// only where none is registered yet: whether others should be there too is told by `ccm plan`.
///
/// # Errors
///
/// What the Service asks wrongly, [`ProviderError::ImplementedElsewhere`], or a failed read.
pub(super) async fn look(
    of: &Inspector,
    cluster: &str,
    service: &Service,
    nodes: &[NodeRef],
    action: ServiceAction,
) -> Result<Option<Current>, ProviderError> {
    let work = [ServiceWork::new(service, nodes, action)];
    let (mut wanted, verdicts) = of.balancers().desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    if wanted.is_empty() {
        return Ok(None);
    }
    let seen = of.balancers().observe(cluster, &work, &wanted).await?;
    if let (Some(desired), Some(seen)) = (wanted.first_mut(), seen.first()) {
        keep_registered(desired, &seen.observed);
    }
    let plan = of.balancers().plan(&seen, &wanted);
    let described = |steps: Steps<_>| {
        let all = steps.steps.iter().map(|step| of.balancers().describe(step)).collect();
        (all, steps.findings)
    };
    let plan = plan.map(described);
    let (desired, seen) = (wanted.into_iter().next(), seen.into_iter().next());
    Ok(desired.zip(seen).map(|(desired, seen)| Current { desired, observed: seen.observed, plan }))
}

fn keep_registered(desired: &mut Desired, observed: &Observed) {
    let registered = registered(observed);
    if let Some(common) = common(desired).filter(|_| !registered.is_empty()) {
        common.targets.retain(|id, _| registered.contains(id));
    }
}

fn common(desired: &mut Desired) -> Option<&mut Common> {
    match &mut desired.goal {
        Goal::Absent => None,
        Goal::Classic(classic) => Some(&mut classic.common),
        Goal::Network(network) => Some(&mut network.common),
    }
}

/// The instances behind the balancer now.
fn registered(observed: &Observed) -> BTreeSet<String> {
    let classic = observed.classic.iter().flat_map(|classic| classic.balancer.instances.iter().cloned());
    let groups = observed.network.iter().flat_map(|network| &network.target_groups);
    let targets = groups.flat_map(|group| &group.targets).filter(|target| target.state != "draining");
    classic.chain(targets.map(|health| health.target.id.clone())).collect()
}

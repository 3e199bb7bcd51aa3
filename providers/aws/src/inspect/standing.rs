//! What a Service wants of the cloud, what of that is there, and what is left to do.

use std::collections::BTreeSet;

use ccm_provider::{Finding, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork, Step, Steps};

use super::Inspector;
use crate::loadbalancer::desired::{Common, Goal, Wish};
use crate::loadbalancer::observe::Observed;

/// How a Service's balancer stands.
#[derive(Debug)]
pub(super) struct Standing {
    pub(super) wish: Wish,
    pub(super) observed: Observed,
    /// What is left to do and what was noticed; or why nothing can be done.
    pub(super) plan: Result<(Vec<Step>, Vec<Finding>), ProviderError>,
}

impl Standing {
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
) -> Result<Option<Standing>, ProviderError> {
    let work = [ServiceWork::new(service, nodes, action)];
    let (mut wishes, verdicts) = of.balancers().desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    if wishes.is_empty() {
        return Ok(None);
    }
    let seen = of.balancers().observe(cluster, &work, &wishes).await?;
    if let (Some(wish), Some(seen)) = (wishes.first_mut(), seen.first()) {
        keep_registered(wish, &seen.observed);
    }
    let plan = of.balancers().plan(&seen, &wishes);
    let described = |steps: Steps<_>| {
        let all = steps.steps.iter().map(|step| of.balancers().describe(step)).collect();
        (all, steps.findings)
    };
    let plan = plan.map(described);
    let (wish, seen) = (wishes.into_iter().next(), seen.into_iter().next());
    Ok(wish.zip(seen).map(|(wish, seen)| Standing { wish, observed: seen.observed, plan }))
}

fn keep_registered(wish: &mut Wish, observed: &Observed) {
    let registered = registered(observed);
    if let Some(common) = common(wish).filter(|_| !registered.is_empty()) {
        common.targets.retain(|id, _| registered.contains(id));
    }
}

fn common(wish: &mut Wish) -> Option<&mut Common> {
    match &mut wish.goal {
        Goal::Gone => None,
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

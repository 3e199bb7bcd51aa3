//! The writes for a Service: of its balancer, classic or network, and of the security groups.

pub(crate) mod classic;
pub(crate) mod network;
pub(crate) mod security_groups;

use ccm_kit::balancer::Kind;
use ccm_provider::ProviderError;

use super::env::Env;
use super::observed::Observed;
use super::step::Planned;
use super::wanted::{Goal, Wanted};

/// The writes that bring the cloud from the observed to the desired state.
pub(crate) fn plan_one(desired: &Wanted, observed: &Observed, env: &Env) -> Result<Planned, ProviderError> {
    let no_client = desired.goal.common().and_then(|common| common.no_client.clone());
    let exists = match &desired.goal {
        Goal::Absent => true,
        Goal::Classic(_) => observed.classic.is_some(),
        Goal::Network(_) => observed.network.is_some(),
    };
    if let Some(error) = no_client.clone().filter(|_| !exists) {
        return Err(error);
    }
    let mut planned = match &desired.goal {
        Goal::Absent => {
            let reason = "the Service wants no load balancer any more";
            let mut planned = classic::delete(desired, observed, env, reason)?;
            let network = network::delete(desired, observed, env, reason)?;
            planned.extend(network);
            planned
        }
        Goal::Classic(classic) => classic::plan(desired, classic, observed, env)?,
        Goal::Network(network) => network::plan(desired, network, observed, env)?,
    };
    // What could not be planned may still use it.
    planned.steps.retain(|step| planned.errors.is_empty() || step.part.kind != Kind::Release);
    planned.errors.extend(no_client);
    // Settings need no rule.
    planned.errors.extend(observed.unread_settings.clone());
    Ok(planned)
}

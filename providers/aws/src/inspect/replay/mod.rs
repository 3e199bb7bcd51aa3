//! Plans for Services without AWS: from recorded observations and settings.

use ccm_provider::{ErrorClass, PlannedLoadBalancer, ProviderError};
use serde::Deserialize as _;
use serde_json::Value;

use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;

#[cfg(test)]
mod tests;

/// The facts for a snapshot: IDs and settings, no credentials, roles or endpoints.
pub(crate) fn facts(env: &Env) -> Value {
    // Infallible: strings, numbers and booleans.
    serde_json::to_value(env).unwrap_or_default()
}

/// Balancers that plan from facts and observations; reads and writes are errors.
pub(crate) fn balancers(facts: &Value) -> Result<PlannedLoadBalancer<Balancers>, ProviderError> {
    let env = Env::deserialize(facts).map_err(|error| {
        let text = format!("the facts about AWS in the snapshot cannot be read: {error}; take the snapshot again");
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
    })?;
    Ok(PlannedLoadBalancer(Balancers::without_cloud(env)))
}

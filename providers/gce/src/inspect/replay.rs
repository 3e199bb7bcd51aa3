//! Plans for Services without Compute Engine: from recorded observations and settings.

use ccm_provider::{ErrorClass, PlannedLoadBalancer, ProviderError};
use serde::Deserialize as _;
use serde_json::Value;

use crate::loadbalancer::{Balancers, Env};

/// The facts for a snapshot: names and settings, no credentials.
pub(crate) fn facts(env: &Env) -> Value {
    // Infallible: texts, numbers and booleans.
    serde_json::to_value(env).unwrap_or_default()
}

/// Balancers that plan from facts and observations; reads and writes are errors.
///
/// # Errors
///
/// The facts are those of another program.
pub(crate) fn balancers(facts: &Value) -> Result<PlannedLoadBalancer<Balancers>, ProviderError> {
    let env = Env::deserialize(facts).map_err(|error| {
        let text = format!("the facts about GCE in the snapshot cannot be read: {error}; take the snapshot again");
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
    })?;
    Ok(PlannedLoadBalancer(Balancers::without_cloud(env)))
}

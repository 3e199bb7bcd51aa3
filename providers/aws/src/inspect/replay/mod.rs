//! Plans for Services without AWS: from recorded observations and settings.

use ccm_kit::balancer::Engine;
#[cfg(any(feature = "sdk", test))]
pub(crate) use ccm_kit::inspect::replay::facts;
use ccm_kit::inspect::replay::read;
use ccm_provider::ProviderError;
use serde_json::Value;

use crate::loadbalancer::Balancers;

#[cfg(test)]
mod tests;

/// Balancers that plan from facts and observations; reads and writes are errors.
pub(crate) fn balancers(facts: &Value) -> Result<Engine<Balancers>, ProviderError> {
    Ok(Engine::new(Balancers::without_cloud(read(facts, "AWS")?)))
}

//! Plans for Services without AWS: from recorded observations and settings.

use ccm_provider::{ErrorClass, PlannedLoadBalancer, ProviderError};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;
use crate::start::config::HealthProbe;

#[cfg(test)]
mod tests;

/// The inputs of plans besides Service and observation, as a snapshot stores them. A field that is added later has a
/// default, so that older snapshots can be read.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Facts {
    #[serde(flatten)]
    env: Env,
    /// `ClusterServiceLoadBalancerHealthProbeMode = Shared`; `None` is `ServiceNodePort`.
    #[serde(default)]
    shared_probe: Option<Probe>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Probe {
    port: u16,
    path: String,
}

/// The facts for a snapshot: IDs and settings, no credentials, roles or endpoints.
pub(crate) fn facts(env: &Env, probe: &HealthProbe) -> Value {
    let shared_probe = match probe {
        HealthProbe::NodePort => None,
        HealthProbe::Shared { port, path } => Some(Probe { port: *port, path: path.clone() }),
    };
    // Infallible: strings, numbers and booleans.
    serde_json::to_value(Facts { env: env.clone(), shared_probe }).unwrap_or_default()
}

/// Balancers that plan from facts and observations; reads and writes are errors.
pub(crate) fn balancers(facts: &Value) -> Result<PlannedLoadBalancer<Balancers>, ProviderError> {
    let (env, probe) = read(facts).map_err(|error| {
        let text = format!("the facts about AWS in the snapshot cannot be read: {error}; take the snapshot again");
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
    })?;
    Ok(PlannedLoadBalancer(Balancers::without_cloud(env, probe)))
}

fn read(facts: &Value) -> Result<(Env, HealthProbe), serde_json::Error> {
    let Facts { env, shared_probe } = Facts::deserialize(facts)?;
    let shared = |Probe { port, path }| HealthProbe::Shared { port, path };
    Ok((env, shared_probe.map_or(HealthProbe::NodePort, shared)))
}

//! Plans for Services without a cloud: from recorded observations and the other facts that plans depend on.

use ccm_provider::{ErrorClass, ProviderError};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The facts for a snapshot: IDs and settings, no secrets.
pub fn facts(facts: &impl Serialize) -> Value {
    // Infallible: strings, numbers and booleans.
    serde_json::to_value(facts).unwrap_or_default()
}

/// The facts of a snapshot.
///
/// # Errors
///
/// The facts were recorded by another program.
pub fn read<F: DeserializeOwned>(facts: &Value, cloud: &str) -> Result<F, ProviderError> {
    F::deserialize(facts).map_err(|error| {
        let text = format!("the facts about {cloud} in the snapshot cannot be read: {error}; take the snapshot again");
        ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
    })
}

/// The error of a call to the cloud during a replay.
pub fn no_cloud(cloud: &str) -> ProviderError {
    ProviderError::unknown(format!(
        "a snapshot has no connection to {cloud}: plans are only possible from the observed state"
    ))
}

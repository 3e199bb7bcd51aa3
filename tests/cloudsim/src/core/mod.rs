//! The common parts of all simulated clouds.

mod admin;
pub mod client;
pub mod clock;
#[cfg(feature = "contract")]
mod contract;
pub mod endpoint;
pub mod faults;
pub mod lag;
pub mod latency;
pub mod ledger;
pub mod rest;
pub mod routes;
pub mod rows;
pub mod running;
pub mod schema;
pub mod server;
pub mod shape;
pub mod silence;
pub mod throttle;

/// Serde format of a [`std::time::Duration`] as whole milliseconds, so that options can be written by hand.
pub mod millis {
    use serde::{Deserialize, Deserializer, Serializer};
    use std::time::Duration;

    /// Serializes whole milliseconds.
    pub fn serialize<S: Serializer>(value: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_u64(u64::try_from(value.as_millis()).unwrap_or(u64::MAX))
    }

    /// Deserializes whole milliseconds.
    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
        u64::deserialize(deserializer).map(Duration::from_millis)
    }
}

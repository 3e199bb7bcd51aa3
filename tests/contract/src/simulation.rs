//! The interface of a simulated cloud to the suite.

use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;

use crate::Outage;
use crate::watch::{Call, Strike};

/// A simulated cloud that is called over a network. It has a virtual clock, records calls, and injects faults.
#[async_trait]
pub trait Simulation: Send + Sync {
    /// Moves the virtual clock.
    fn step(&self, time: Duration);

    /// The virtual time.
    fn now(&self) -> jiff::Timestamp;

    /// The current position in the list of calls.
    fn mark(&self) -> u64;

    /// The names of the writes that arrived after this position; 0 is the start.
    fn writes(&self, mark: u64) -> Vec<String>;

    /// Injects this fault and no other.
    fn disrupt(&self, outage: Outage);

    /// Injects a few random faults that any cloud can have into the next calls, and no others; returns a description.
    fn random_faults(&self, rng: &mut StdRng) -> String;

    /// The requests and answers so far that violate the vendor's API, a line each.
    fn violations(&self) -> Vec<String>;

    /// Waits until all received requests are answered: see [`crate::Harness::settle`].
    async fn settled(&self);

    /// Begins to record all calls, for [`crate::matrix`].
    fn watch(&self);

    /// Replaces the fault that the watch gives to calls.
    fn strike(&self, strike: Option<Strike>);

    /// The calls since the beginning of the watch.
    fn watched(&self) -> Vec<Call>;
}

//! What the suite needs of a simulated cloud.

use std::time::Duration;

use async_trait::async_trait;
use rand::rngs::StdRng;

use crate::Trouble;

/// A simulated cloud that is called over a network: it has a virtual clock and a list of calls, and makes trouble.
#[async_trait]
pub trait Simulation: Send + Sync {
    /// Moves the virtual clock.
    fn step(&self, time: Duration);

    /// The virtual time.
    fn now(&self) -> jiff::Timestamp;

    /// A mark in the list of calls.
    fn mark(&self) -> u64;

    /// The names of the writes that arrived after a mark; 0 is the start.
    fn writes(&self, mark: u64) -> Vec<String>;

    /// Makes this trouble and no other.
    fn trouble(&self, trouble: Trouble);

    /// Makes a few of the next calls fail in a way in which those of any cloud may, and no others; says which.
    fn random_trouble(&self, rng: &mut StdRng) -> String;

    /// What was sent or answered so far that does not follow the vendor's API, a line each.
    fn violations(&self) -> Vec<String>;

    /// Waits until it has answered everything that was sent to it: see [`crate::Harness::settle`].
    async fn settled(&self);
}

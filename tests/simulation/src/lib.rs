//! Simulation: real managers over an in-memory API and a model cloud, under seeded schedules of faults.
//!
//! A seed determines a cluster, a cloud, and a sequence of events: machines start and stop, users change Services,
//! processes die before and after single writes, watches break, reads are stale, the cloud throttles. Then the faults
//! end, and the cluster must converge. Invariants are checked during the run and at its end: see [`Invariant`]. Time is
//! simulated, randomness comes from the seed, no socket is used: a run is exactly reproducible.
//!
//! ```
//! let summary = ccm_test_simulation::run(1).unwrap_or_else(|failure| panic!("{failure}"));
//! assert_eq!(summary.digest, ccm_test_simulation::run(1).unwrap().digest);
//! ```
//!
//! Panics like a test: for tests only.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod check;
pub mod cloud;
pub mod life;
mod luck;
pub mod managers;
mod panics;
pub mod profile;
pub mod simulation;
pub mod steps;
pub mod trace;
mod transport;
pub mod world;

pub use cloud::Power;
pub use life::{CrashPoint, Target};
pub use profile::{Luck, Profile};
pub use simulation::{BOUND, Failure, Simulation, Summary, play, run};
pub use steps::Action;
pub use trace::{Invariant, Trace, Violation};

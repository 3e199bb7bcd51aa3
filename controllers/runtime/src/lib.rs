//! The base of every controller: watched stores, the work queue, the instance view, the write gate, events, election.
//!
//! A controller consists of a trigger (object change → keys), a pure decision, and an apply step. This crate contains
//! everything else. Data flows one way:
//!
//! ```text
//! watch ─> Store ─> trigger ─> Queue ─> runner takes all ready keys ─> observe ─> decide ─> Gate ─> API server, cloud
//! ```
//!
//! * [`store`]: slim copies of Kubernetes objects, kept by a list and a watch.
//! * [`queue`], [`runner`]: keys, back-off, batches, groups, panics, deadlines.
//! * [`view`]: the only caller of the provider's instances.
//! * [`gate`]: the only way to write; [`writer`]: the writes of nodes and Services.
//! * [`permission`]: the required RBAC permissions.
//! * [`events`], [`election`], [`mod@metrics`], [`clock`], [`client`], [`leader`], [`panics`].

pub mod client;
pub mod clock;
pub mod config_maps;
pub mod election;
pub mod events;
mod failing;
pub mod gate;
pub mod leader;
mod limit;
pub mod metrics;
pub mod panics;
pub mod permission;
mod priority;
mod provider_calls;
pub mod queue;
pub mod recent;
pub mod runner;
pub mod store;
pub mod view;
pub mod writer;

use metrics::Def;

pub use ccm_provider::metrics;
pub use client::{ApiError, Client};
pub use clock::{SimulatedClock, SystemClock};
pub use gate::{Gate, GateError};
pub use leader::{Leadership, State};
pub use metrics::Metrics;
pub use permission::Permission;
pub use queue::{Queue, RateLimit};
pub use runner::{Outcome, SyncError};
pub use store::{Cached, Store};
pub use view::InstanceView;

/// Every metric of the runtime, for the reference page.
pub fn metrics_reference() -> Vec<&'static Def> {
    let queues = [queue::Families::DEFS, client::ClientMetrics::DEFS, election::ElectionMetrics::DEFS];
    let calls = [gate::GateMetrics::DEFS, provider_calls::ProviderMetrics::DEFS, leader::LeaseMetrics::DEFS];
    let rest = [runner::RunnerMetrics::DEFS, events::EventMetrics::DEFS, panics::PanicMetrics::DEFS];
    [queues, calls, rest]
        .as_flattened()
        .iter()
        .chain(&[failing::FailingMetrics::DEFS, store::StoreMetrics::DEFS, metrics::PROCESS, metrics::SLIS])
        .copied()
        .flatten()
        .copied()
        .collect()
}

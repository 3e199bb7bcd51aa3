//! Helpers that provider crates share.
//!
//! * [`document`]: YAML or JSON settings, read so that every mistake is reported with the path of its key.
//! * [`gcfg`]: the INI dialect of Go programs, read by tables of keys.
//! * [`annotations`]: the annotations of Services, read by a table.
//! * [`batch`]: many questions joined into one call; [`snapshot`]: one read that many share; [`known`]: answers by key,
//!   remembered.
//! * [`call`]: the calls of a cloud's API: pace, retries, lease, pages, errors, metrics.
//! * [`directory`]: instances of nodes, listed or looked up, with evidence.
//! * [`routes`]: routes to pods, planned for a table that the cloud supplies.
//! * [`cluster`]: what the core passes to the provider.
//! * [`inspect`]: what `explain`, `orphans`, `migrate-check` and `snapshot` do alike.
//! * [`lock`]: a mutex without poison.
//! * `http`: requests of JSON over HTTP, behind the feature of that name.
//! * [`background`]: load balancers whose changes take minutes.
//! * [`glob`]: `*` and `?` patterns over whole texts.
//!
//! What only one provider needs does not belong here, and neither does anything that knows a particular cloud.
#![deny(missing_docs)]

pub mod annotations;
pub mod background;
pub mod batch;
pub mod call;
pub mod cluster;
pub mod directory;
pub mod document;
pub mod gcfg;
pub mod glob;
#[cfg(feature = "http")]
pub mod http;
pub mod inspect;
pub mod known;
mod lock;
pub mod routes;
pub mod snapshot;

pub use background::Background;
pub use batch::{Batcher, Bulk, Interrupted, Limits};
pub use cluster::Cluster;
pub use directory::Directory;
pub use document::{Fields, Problems, Value};
pub use glob::Glob;
pub use known::Known;
pub use lock::lock;
pub use routes::PlannedRoutes;
pub use snapshot::{Cached, Misses, Stamped};

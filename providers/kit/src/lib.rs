//! Helpers that provider crates share.
//!
//! * [`document`]: YAML or JSON settings; every mistake is reported with the path of its key.
//! * [`gcfg`]: the INI dialect of Go programs, read by tables of keys.
//! * [`annotations`]: the annotations of Services, read by a table.
//! * [`batch`]: joins many requests into one call; [`snapshot`]: one read that many callers share; [`known`]: cached
//!   answers by key.
//! * [`call`]: calls of a cloud's API: pace, retries, lease, pages, errors, metrics.
//! * [`directory`]: instances of nodes, listed or looked up, with evidence; [`near_miss`]: nodes whose name no machine
//!   has.
//! * [`routes`]: routes to pods, planned for a cloud's route table.
//! * [`cluster`]: the context that the core passes to the provider.
//! * [`inspect`]: the common parts of `explain`, `orphans`, `migrate-check` and `snapshot`.
//! * [`renewed`]: tokens that are renewed before they end.
//! * [`refused`]: calls that are refused because of some of their objects.
//! * `http`: JSON requests over HTTP, behind the feature of that name.
//! * `tls`: verification of servers, behind the feature of that name. The core uses it too.
//! * [`balancer`]: the engine of load balancers.
//! * [`fit()`]: members of a set that the cloud limits.
//! * [`Glob`]: `*` and `?` patterns over whole strings.
//!
//! Code that only one provider needs, or that depends on a particular cloud, does not belong here.
#![deny(missing_docs)]

pub mod annotations;
pub mod balancer;
pub mod batch;
pub mod call;
pub mod cluster;
pub mod directory;
pub mod document;
pub mod fit;
pub mod gcfg;
#[cfg(feature = "http")]
pub mod http;
pub mod inspect;
pub mod known;
pub mod near_miss;
pub mod refused;
pub mod renewed;
pub mod routes;
pub mod snapshot;
#[cfg(feature = "tls")]
pub mod tls;

pub use batch::{Batcher, Bulk, Interrupted, Limits};
pub use cluster::Cluster;
pub use directory::Directory;
pub use document::{Fields, Problems, Value};
pub use fit::{Fit, fit};
pub use known::Known;
pub use refused::split_refused;
pub use renewed::{Life, Renewed};
pub use routes::PlannedRoutes;
pub use snapshot::{Cached, Misses, Stamped};
/// Patterns that match whole strings: `*` matches any characters (including none, and `/`), `?` exactly one character,
/// and everything else itself. Every string is a valid pattern.
pub use wildmatch::WildMatch as Glob;

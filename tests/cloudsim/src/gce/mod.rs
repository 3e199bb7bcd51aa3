//! A simulated Google Compute Engine: the Compute API, and what a client needs besides it: tokens, the test of permissions, and
//! metadata servers on ports of their own.
//!
//! What goes in and out is held against Google's own description of the API, where `hack/gce.sh` has put it. What stands in no
//! description, such as which object may be deleted while another uses it, is written down resource by resource; texts of errors
//! were taken from reports of users where there were any. What is a guess is marked `unverified`.

mod addresses;
mod admin;
mod backend_services;
mod errors;
mod filter;
mod firewalls;
mod forwarding_rules;
mod health_checks;
mod instance_groups;
mod instances;
mod ip;
mod kinds;
mod lists;
mod metadata;
mod model;
mod networks;
mod operations;
pub mod options;
mod permissions;
mod places;
mod routes;
mod running;
pub mod seed;
mod static_routes;
mod store;
mod target_pools;
mod tokens;
mod verbs;
mod world;

pub use kinds::BALANCING;
pub use metadata::Metadata;
pub use model::cache_folder;
pub use options::Options;
pub use running::Gce;
pub use world::World;

#[cfg(test)]
mod tests;

//! A simulated Google Compute Engine: the Compute API, token endpoints, `testIamPermissions`, and metadata servers on
//! separate ports.
//!
//! Requests and answers are checked against Google's own description of the API, if `hack/gce.sh` has fetched it. Rules
//! that the description does not contain, such as which objects cannot be deleted while in use, are in the module of
//! each resource; the texts of errors come from users' reports where possible. Guesses are marked `unverified`.

mod addresses;
mod backend_services;
mod errors;
mod fields;
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
pub(crate) mod tokens;
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

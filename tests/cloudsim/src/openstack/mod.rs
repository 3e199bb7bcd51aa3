//! A simulated OpenStack: Keystone, Nova, Neutron, Octavia, Barbican and Cinder on one endpoint with separate paths;
//! instance metadata on separate ports.
//!
//! The answers were recorded from real services (Keystone 30, Nova 34, Neutron 29, Octavia 19), and
//! `tests/it/openstack` compares both. Behavior that was not checked there is marked `unverified`.

mod catalog;
mod dump;
pub mod keystone;
mod lists;
mod metadata;
mod neutron;
mod nova;
mod octavia;
pub mod options;
mod routes;
mod running;
pub mod seed;
mod stores;
mod world;

pub use metadata::Metadata;
pub use options::{CatalogEntry, Options};
pub use running::OpenStack;
pub use world::{Who, World};

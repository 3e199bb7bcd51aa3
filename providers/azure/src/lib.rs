//! Azure behind the provider contract: `--cloud-provider=azure`.
//!
//! All calls go through `client`: a small client of Azure Resource Manager, whose objects stay JSON, so that no field is
//! lost between a read and a write. Above it, each module reads first, decides in pure functions, and writes last:
//! `node`, `loadbalancer`, `routes`, `extras`. `start` has the configuration and everything before the first controller
//! runs. The pages in `docs/` are the reference of keys, flags and annotations.
#![deny(missing_docs)]

mod annotations;
mod client;
mod extras;
mod flags;
mod inspect;
mod loadbalancer;
mod node;
mod permissions;
mod provider;
mod routes;
mod shared;
mod start;

pub use client::metrics::metrics_reference;
pub use extras::volumes::VOLUME_SOURCES;
pub use permissions::custom_roles;
pub use provider::{Factory, NODE_TASKS};

/// The generated parts of the pages in `docs/`, by name.
pub fn reference(part: &str) -> Option<String> {
    match part {
        "config" => Some(start::config::reference()),
        "annotations" => Some(annotations::TABLE.reference()),
        "flags" => Some(flags::reference()),
        "permissions" => Some(permissions::reference()),
        _ => None,
    }
}

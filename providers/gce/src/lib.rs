//! Google Compute Engine behind the provider contract: `--cloud-provider=gce`.
//!
//! All calls use `client`: tokens, requests, operations, and lenient models of responses. Above it, each module reads
//! first, decides in pure functions, and writes last: `node`, `loadbalancer`, `routes`, `extras`. `start` contains the
//! configuration and everything before the first controller runs. The pages in `docs/` are the reference for keys, flags
//! and annotations; `quirks.md` there lists the quirks of the Go program that are kept.
#![deny(missing_docs)]

mod annotations;
mod client;
mod extras;
mod flags;
mod inspect;
mod loadbalancer;
mod node;
mod ownership;
mod permissions;
mod provider;
mod routes;
mod shared;
mod start;

pub use extras::volumes::VOLUME_SOURCES;
pub use flags::SERVICE_CONTROLLERS;
pub use permissions::custom_roles;
pub use provider::{CONFIG_MAPS, Factory};

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    client::metrics::page(extras::balancer_metrics::BalancerMetrics::DEFS)
}

/// What the Go program writes otherwise, and does not write back: kind and field of an object, and their place in words.
pub fn left_behind() -> Vec<(&'static str, String)> {
    let rule = "the firewall rule of the health checks of nodes without a destination".to_owned();
    vec![("firewalls destinationRanges", rule)]
}

/// The generated parts of the pages in `docs/`, by name.
pub fn reference(part: &str) -> Option<String> {
    match part {
        "config" => Some(start::config::GLOBAL.reference()),
        "annotations" => Some(annotations::TABLE.reference()),
        "flags" => Some(flags::reference()),
        "permissions" => Some(permissions::reference()),
        _ => None,
    }
}

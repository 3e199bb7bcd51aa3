//! Amazon Web Services.
#![allow(dead_code)] // until all layers stand

mod annotations;
mod client;
mod cluster;
mod config;
#[cfg(test)]
mod ec2_world;
mod fargate;
mod flags;
mod fleet;
mod identity;
mod instances;
mod loadbalancer;
mod metrics;
mod ownership;
mod permissions;
mod prefix_ipam;
#[cfg(feature = "sdk")]
mod provider;
mod routes;
mod start;
mod tagging;
mod topology;
mod volumes;
mod zones;

pub use metrics::metrics_reference;
pub use permissions::iam_policies;
#[cfg(feature = "sdk")]
pub use provider::Factory;

/// The generated parts of this crate's README, by name.
pub fn reference(part: &str) -> Option<String> {
    match part {
        "config" => Some(config::reference()),
        "annotations" => Some(annotations::reference()),
        "flags" => Some(flags::reference()),
        _ => None,
    }
}

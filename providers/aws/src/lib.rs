//! Amazon Web Services.
#![allow(dead_code)] // until all layers stand

mod annotations;
mod client;
mod cluster;
mod config;
#[cfg(test)]
mod ec2_world;
mod fargate;
mod fleet;
mod identity;
mod instances;
mod loadbalancer;
mod metrics;
mod ownership;
mod permissions;
mod prefix_ipam;
mod routes;
mod start;
mod tagging;
mod topology;
mod volumes;
mod zones;

pub use metrics::metrics_reference;
pub use permissions::iam_policies;

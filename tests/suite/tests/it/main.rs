//! Scenarios: each test is named after the fact that it proves.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bad_input;
mod beside;
mod election;
mod guide;
mod informers;
mod ipam;
mod lifecycle;
mod long_lane;
mod metrics;
mod migration;
mod node_taints;
mod nodes;
mod optional_parts;
mod real_apiserver;
mod reload;
mod routes;
mod services;
mod stores;
mod upstream;
mod volumes;

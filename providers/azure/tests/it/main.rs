//! The provider as a process creates it, from a configuration, over HTTP, on a simulated Azure.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod balancers;
mod bed;
mod client;
mod contract;
mod login;
mod matrix;
mod migrate;
mod nodes;
mod nodes_again;
mod nodes_alone;
mod permissions;
mod routes;
mod volumes;

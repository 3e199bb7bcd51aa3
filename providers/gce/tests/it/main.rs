//! The provider as a process creates it: from a gce.conf and a metadata server, over HTTP, on a simulated cloud.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod balancers;
mod bed;
mod contract;
mod inspect;
mod matrix;
mod nodes;
mod routes;
mod start;
mod volumes;

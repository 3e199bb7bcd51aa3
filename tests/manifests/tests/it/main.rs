//! The shipped manifests: their content, the rendered objects, and tests on the real API server.
// Helpers of tests fail by panicking, like the tests.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod alerts;
mod aws;
mod azure;
mod chart;
mod converted;
mod fake;
mod flags;
mod gce;
mod generated;
mod goldens;
mod image;
mod openstack;
mod real_apiserver;
mod release;
mod rendered;
mod shape;
mod tools;
mod versions;

//! One binary for the integration tests: the conformance suite, run on the in-memory server and a real one, and tests
//! of features that only the in-memory one has.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod api;
mod cases;
mod conformance;
mod faults;
mod handle;

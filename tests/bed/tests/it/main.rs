//! The bed itself, on a real API server.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod long_lane;
mod real_apiserver;

//! The provider against a simulated OpenStack, over HTTP.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod bed;
mod contract;
mod inspect;

//! The simulated AWS held against others: cases written once run against it and against moto, and boto3 drives it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod api;
mod boto3;
mod case;
mod cases;
mod deviations;
mod long_lane;
mod scene;
mod suite;

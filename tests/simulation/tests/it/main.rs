//! Schedules by seed, and crashes at each write of a script.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod regressions;
mod seeds;
mod sweep;

//! Schedules by seed.

mod regressions;
mod seeds;
mod sweep;

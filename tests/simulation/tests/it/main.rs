//! Schedules by seed.

mod seeds;
mod sweep;

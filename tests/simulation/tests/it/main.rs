//! Schedules by seed.

mod seeds;

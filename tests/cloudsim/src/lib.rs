//! Simulated clouds.

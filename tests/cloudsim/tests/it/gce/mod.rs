//! The simulated Compute Engine: cases that must pass with each client.

mod cases;
mod client;
mod long_lane;
mod run;
mod scene;
mod simulated;
mod suite;

//! The simulated Compute Engine: cases that it has to pass, whoever sends their calls.

mod cases;
mod client;
mod long_lane;
mod run;
mod scene;
mod simulated;
mod suite;

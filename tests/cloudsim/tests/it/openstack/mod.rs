//! The simulated OpenStack: cases that it must pass. If the environment names real services, they run there too.

mod cases;
mod client;
mod long_lane;
mod run;
mod scene;
mod simulated;
mod suite;

//! The simulated OpenStack: cases that it must pass. They also run on real services if the environment specifies them.

mod cases;
mod client;
mod long_lane;
mod run;
mod scene;
mod simulated;
mod suite;

//! The simulated OpenStack: cases that it has to pass, and that real services pass too where one is named.

mod cases;
mod client;
mod long_lane;
mod run;
mod scene;
mod simulated;
mod suite;

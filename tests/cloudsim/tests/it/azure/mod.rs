//! The simulated Azure: cases that must pass with our own client and with Microsoft's.

mod cases;
mod long_lane;
mod run;
mod suite;

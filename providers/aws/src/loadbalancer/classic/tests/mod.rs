//! Plans as text for every annotation and change, and a balancer in memory on which plans are tried.

mod desired;
mod golden;
mod model;
mod pitfalls;
mod properties;
mod replay;

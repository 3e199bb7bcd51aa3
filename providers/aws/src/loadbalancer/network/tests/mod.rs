//! Plans as text, carried out in the simulated AWS.

mod desired;
mod golden;
mod refusals;

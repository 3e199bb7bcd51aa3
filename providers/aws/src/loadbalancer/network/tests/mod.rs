//! Plans as text, carried out in the simulated AWS.

mod golden;
mod refusals;

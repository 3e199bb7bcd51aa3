//! Plans as text, applied in the simulated AWS.

mod golden;
mod refusals;

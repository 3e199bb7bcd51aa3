//! Load balancers of Octavia.

pub(crate) mod pattern;
pub(crate) mod selector;

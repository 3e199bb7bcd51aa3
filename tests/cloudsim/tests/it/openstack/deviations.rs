//! Where the real services are known to differ from the simulation, and why that stays: pattern (`*` for anything) and reason.

pub(crate) const KNOWN: &[(&str, &str)] = &[];

//! Fuzz targets: parsers of input from users, from the API server and from the network.
//!
//! A target takes bytes and panics on a defect: if the code panics, and also if an accepted text does not round-trip.
//! `hack/fuzz.sh` runs them under libFuzzer; the tests of this crate run each over its corpus (`corpus/<target>`),
//! which keeps every input that ever failed.
#![allow(clippy::panic, clippy::unwrap_used, clippy::expect_used)]

#[cfg(feature = "program")]
mod cluster;
mod configuration;
#[cfg(feature = "program")]
mod edge;
#[cfg(feature = "program")]
mod program;
mod texts;

/// A target: its name and its function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    #[cfg(feature = "program")]
    ("flags", program::flags),
    #[cfg(feature = "program")]
    ("migration", program::migration),
    ("cloud_config", configuration::cloud_config),
    ("document", configuration::document),
    ("gcfg", configuration::gcfg),
    ("duration", texts::duration),
    ("ranges", texts::ranges),
    ("addresses", texts::addresses),
    #[cfg(feature = "program")]
    ("node", cluster::node),
    #[cfg(feature = "program")]
    ("service", cluster::service),
    #[cfg(feature = "program")]
    ("http", edge::http),
];

/// The target with this name.
pub fn target(name: &str) -> Option<fn(&[u8])> {
    TARGETS.iter().find(|(known, _)| *known == name).map(|(_, target)| *target)
}

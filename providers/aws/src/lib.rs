//! Amazon Web Services behind the provider contract: `--cloud-provider=aws`.
//!
//! [`Factory`] reads the cloud config and builds the provider. All calls to AWS go through the narrow trait in
//! `client`, where writes are data; the SDK's types stay in `sdk`. Above it, each module reads first, decides in pure
//! functions, and writes last: `node`, `loadbalancer`, `routes`, `extras`. `start` has the configuration and everything
//! before the first controller runs, `inspect` the reports of the commands. The pages in `docs/` are the reference
//! of keys, flags and annotations; `quirks.md` there lists the kept quirks of the Go program.
//!
//! Without the feature `sdk` the crate is the logic alone and cannot reach AWS: for unit tests and generated pages.
#![deny(missing_docs)]
#![cfg_attr(not(feature = "sdk"), allow(dead_code))]

mod annotations;
mod client;
mod extras;
mod flags;
mod inspect;
mod loadbalancer;
mod node;
mod ownership;
mod permissions;
#[cfg(feature = "sdk")]
mod provider;
mod routes;
#[cfg(feature = "sdk")]
mod sdk;
mod start;
#[cfg(test)]
mod tests;

pub use client::metrics::metrics_reference;
pub use extras::volumes::VOLUME_SOURCES;
pub use permissions::iam_policies;
#[cfg(feature = "sdk")]
pub use provider::Factory;

/// The generated parts of the pages in `docs/`, by name.
pub fn reference(part: &str) -> Option<String> {
    match part {
        "config" => Some(start::config::reference()),
        "annotations" => Some(annotations::TABLE.reference()),
        "flags" => Some(flags::reference()),
        _ => None,
    }
}

//! The provider contract on OpenStack: `--cloud-provider=openstack`.
//!
//! All calls go through `client`: a Keystone session, and one module for each service with lenient models of its
//! responses. Above it, each module reads first, decides in pure functions, and writes last: `node`, `loadbalancer`,
//! `routes`, `extras`. `start` has the configuration and everything before the first controller runs, `inspect` the
//! reports of the commands. The pages in `docs/` are the reference of keys, flags and annotations; `quirks.md` there lists
//! the preserved quirks of the Go program.
#![deny(missing_docs)]

mod annotations;
mod client;
mod extras;
mod flags;
mod inspect;
mod loadbalancer;
mod node;
mod pattern;
mod permissions;
mod provider;
mod routes;
mod start;
#[cfg(test)]
mod world;

pub use client::metrics::metrics_reference;
pub use extras::volumes::VOLUME_SOURCES;
pub use permissions::access_rules;
pub use provider::Factory;

/// What the Go program does not write, and does not remove: an annotation of Services, and its place in words.
pub fn left_behind() -> Vec<(&'static str, String)> {
    let key = annotations::APPLIED;
    let remove = format!("`kubectl annotate services -A --all {key}-` removes it");
    vec![(key, format!("the annotation `{key}` of Services ({remove})"))]
}

/// The generated parts of the pages in `docs/`, by name.
pub fn reference(part: &str) -> Option<String> {
    match part {
        "config" => Some(start::config::reference()),
        "annotations" => Some(annotations::TABLE.reference()),
        "flags" => Some(flags::reference()),
        "permissions" => Some(permissions::reference()),
        _ => None,
    }
}

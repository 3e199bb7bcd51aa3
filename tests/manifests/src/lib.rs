//! The generated parts of `manifests/`: RBAC from the permissions declared in the code, and copies for the chart.
//!
//! `cargo xtask manifests` writes them, `cargo xtask manifests --check` fails if one is stale. The tests of this crate
//! apply the manifests to a real API server, and compare its audit log with the permissions.

pub mod field;
pub mod generate;
pub mod left;
pub mod rbac;

use std::path::PathBuf;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

//! The generated parts of `manifests/`: RBAC from the permissions that the code declares, and copies that the chart needs.
//!
//! `cargo xtask manifests` writes them, `cargo xtask manifests --check` fails when one is stale. The tests of this
//! crate apply the manifests to a real API server, and compare its audit log with the permissions.

pub mod generate;
pub mod rbac;

use std::path::PathBuf;

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

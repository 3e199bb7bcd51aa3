//! The generated parts of `manifests/`: RBAC from the permissions declared in the code, and copies for the chart.
//!
//! `cargo xtask manifests` writes them, `cargo xtask manifests --check` fails if one is stale. The tests of this crate
//! apply the manifests to a real API server, and compare its audit log with the permissions.

pub mod field;
pub mod generate;
pub mod left;
pub mod rbac;

use std::path::PathBuf;

/// The width of the lines of generated lists.
const COLUMNS: usize = 140;

/// An item of a list, broken between words.
fn item(bullet: &str, content: &str) -> String {
    let (mut text, mut line) = (String::new(), bullet.to_owned());
    for word in content.split_whitespace() {
        if line.len() > bullet.len() && line.chars().count() + 1 + word.chars().count() > COLUMNS {
            text += &format!("{line}\n");
            line = " ".repeat(bullet.len());
        } else if line.len() > bullet.len() {
            line.push(' ');
        }
        line += word;
    }
    format!("{text}{line}\n")
}

/// The root of the workspace.
pub fn workspace() -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

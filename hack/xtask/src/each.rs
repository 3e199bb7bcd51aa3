//! `cargo xtask check-each`: crates that are used separately compile without the other members of the workspace.
//!
//! In a build of the whole workspace, cargo unites the features of all members, so that a crate without a required
//! feature compiles until it is used separately. Crates that only this workspace uses are not checked; the tests cover
//! the build with all features.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::metadata::{Metadata, Package, cargo};

pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    crate::no_arguments(arguments)?;
    let metadata = Metadata::read()?;
    let mut failed = Vec::new();
    for arguments in metadata.packages.iter().flat_map(|package| checks(package, metadata.folder(package))) {
        let line = arguments.join(" ");
        println!("cargo {line}");
        // A library leaves this choice to its program.
        let version = ("K8S_OPENAPI_ENABLED_VERSION", "1.33");
        let status = cargo()
            .args(&arguments)
            .args(["--quiet", "--locked"])
            .env(version.0, version.1)
            .status()
            .context("running cargo")?;
        if !status.success() {
            failed.push(format!("cargo {line}"));
        }
    }
    if !failed.is_empty() {
        bail!("these fail:\n  {}", failed.join("\n  "));
    }
    Ok(())
}

/// Folders of crates for other projects: for authors of controllers, of providers and of programs.
const LIBRARIES: [&str; 3] = ["controllers", "providers", "tests/contract"];

/// Libraries with the fewest features; the program also with each single feature, which is how a provider is used.
fn checks(package: &Package, folder: &Path) -> Vec<Vec<String>> {
    let check = |more: &[&str]| -> Vec<String> {
        let least = ["check", "--package", &package.name, "--no-default-features"];
        least.iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    if folder == Path::new("ccm") {
        let features = package.features.keys().map(String::as_str).filter(|name| *name != "default");
        return [check(&[])].into_iter().chain(features.map(|feature| check(&["--features", feature]))).collect();
    }
    if LIBRARIES.iter().any(|library| folder.starts_with(library)) { vec![check(&[])] } else { Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(folder: &str) -> Vec<String> {
        let package = Package {
            name: "p".into(),
            manifest_path: Path::new("/w").join(folder).join("Cargo.toml"),
            dependencies: Vec::new(),
            features: ["default", "gce", "aws"].iter().map(|name| ((*name).to_owned(), Vec::new())).collect(),
        };
        checks(&package, Path::new(folder)).iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn libraries_are_checked_with_the_fewest_features_and_test_crates_are_not() {
        for folder in ["providers/gce", "controllers/runtime", "tests/contract"] {
            assert_eq!(lines(folder), ["check --package p --no-default-features"], "{folder}");
        }
        assert_eq!(lines("tests/suite"), [""; 0]);
    }

    #[test]
    fn the_program_is_checked_with_each_feature_alone_and_with_none() {
        let expected = [
            "check --package p --no-default-features",
            "check --package p --no-default-features --features aws",
            "check --package p --no-default-features --features gce",
        ];
        assert_eq!(lines("ccm"), expected);
    }
}

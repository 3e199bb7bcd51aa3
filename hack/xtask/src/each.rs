//! `cargo xtask check-each`: every crate compiles alone, and every feature alone, none and all together.
//!
//! In a build of the whole workspace, cargo unites the features that all members ask for, so that a crate which forgot
//! one compiles anyway, until somebody uses it alone.

use anyhow::{Context as _, bail};

use crate::metadata::{Metadata, Package, cargo};

pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    crate::no_arguments(arguments)?;
    let metadata = Metadata::read()?;
    let mut failed = Vec::new();
    for arguments in metadata.packages.iter().flat_map(checks) {
        let line = arguments.join(" ");
        println!("cargo {line}");
        let status = cargo().args(&arguments).args(["--quiet", "--locked"]).status().context("running cargo")?;
        if !status.success() {
            failed.push(format!("cargo {line}"));
        }
    }
    if !failed.is_empty() {
        bail!("these fail:\n  {}", failed.join("\n  "));
    }
    Ok(())
}

fn checks(package: &Package) -> Vec<Vec<String>> {
    let check = |more: &[&str]| -> Vec<String> {
        ["check", "--package", &package.name].iter().chain(more).map(|word| (*word).to_owned()).collect()
    };
    let mut checks = vec![check(&[])];
    let features: Vec<&str> = package.features.keys().map(String::as_str).filter(|name| *name != "default").collect();
    if !features.is_empty() {
        checks.push(check(&["--no-default-features"]));
        checks.extend(features.iter().map(|feature| check(&["--no-default-features", "--features", feature])));
        checks.push(check(&["--all-features"]));
    }
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(features: &[&str]) -> Vec<String> {
        let package = Package {
            name: "p".into(),
            manifest_path: "/w/p/Cargo.toml".into(),
            dependencies: Vec::new(),
            features: features.iter().map(|name| ((*name).to_owned(), Vec::new())).collect(),
        };
        checks(&package).iter().map(|words| words.join(" ")).collect()
    }

    #[test]
    fn a_crate_without_features_is_checked_once() {
        assert_eq!(lines(&[]), ["check --package p"]);
    }

    #[test]
    fn features_are_checked_alone_none_and_all() {
        let expected = [
            "check --package p",
            "check --package p --no-default-features",
            "check --package p --no-default-features --features aws",
            "check --package p --no-default-features --features gce",
            "check --package p --all-features",
        ];
        assert_eq!(lines(&["default", "gce", "aws"]), expected);
    }
}

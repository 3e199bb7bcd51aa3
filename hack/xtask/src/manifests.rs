//! `cargo xtask manifests`: the generated parts of `manifests/`, by `tests/manifests`.

use std::process::Command;

use anyhow::{Context, ensure};

/// Writes them; with `--check` fails when one is stale.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--quiet", "--package", "ccm-test-manifests", "--"])
        .args(arguments)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the generator of the manifests ended with {status}");
    Ok(())
}

//! `cargo xtask bench`: the benchmarks of `tests/benches`, optimized.

use std::process::Command;

use anyhow::{Context, ensure};

/// Builds and runs them with the given arguments.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let status = Command::new(cargo)
        .args(["run", "--release", "--package", "ccm-benches", "--"])
        .args(arguments)
        .status()
        .context("cannot run cargo")?;
    ensure!(status.success(), "the benchmarks ended with {status}");
    Ok(())
}

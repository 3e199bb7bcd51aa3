//! `cargo xtask bench`: the benchmarks of `tests/benches`, optimized.

use anyhow::{Context, ensure};

use crate::metadata::cargo;

/// Builds and runs them with the given arguments.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let run = ["run", "--release", "--package", "ccm-benches", "--"];
    let status = cargo().args(run).args(arguments).status().context("cannot run cargo")?;
    ensure!(status.success(), "the benchmarks ended with {status}");
    Ok(())
}

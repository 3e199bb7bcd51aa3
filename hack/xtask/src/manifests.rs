//! `cargo xtask manifests`: the generated parts of `manifests/`, by `tests/manifests`.

use anyhow::{Context, ensure};

use crate::metadata::program;

/// Writes them; with `--check` fails if one is stale.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let run = ["run", "--quiet", "--package", "ccm-test-manifests", "--bin", "ccm-manifests", "--"];
    let status = program("ccm-manifests", &run).args(arguments).status().context("cannot run it")?;
    ensure!(status.success(), "the generator of the manifests ended with {status}");
    Ok(())
}

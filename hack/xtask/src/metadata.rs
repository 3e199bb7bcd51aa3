//! The metadata of the workspace from cargo: only the fields that the checks read.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, bail};
use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    pub(crate) workspace_root: PathBuf,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) manifest_path: PathBuf,
    #[serde(default)]
    pub(crate) dependencies: Vec<Dependency>,
    #[serde(default)]
    pub(crate) features: BTreeMap<String, Vec<String>>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Dependency {
    pub(crate) name: String,
    /// `None` for a normal dependency, else `dev` or `build`.
    pub(crate) kind: Option<String>,
    #[serde(default)]
    pub(crate) optional: bool,
    #[serde(default)]
    pub(crate) features: Vec<String>,
}

impl Dependency {
    /// Whether it is part of the shipped program, not only of the crate's own tests.
    pub(crate) fn ships(&self) -> bool {
        self.kind.as_deref() != Some("dev")
    }
}

impl Metadata {
    pub(crate) fn read() -> anyhow::Result<Self> {
        let text = output(&["metadata", "--format-version=1", "--no-deps"])?;
        serde_json::from_str(&text).context("reading what cargo metadata says")
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.packages.iter().any(|package| package.name == name)
    }

    /// The folder of the crate, relative to the workspace.
    pub(crate) fn folder<'a>(&self, package: &'a Package) -> &'a Path {
        let folder = package.manifest_path.parent().unwrap_or(&package.manifest_path);
        folder.strip_prefix(&self.workspace_root).unwrap_or(folder)
    }
}

/// The cargo that runs this program, so that a toolchain selected on the command line stays selected.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")))
}

/// A program of the workspace: the one in the folder `CCM_BUILT`, written by a build of the whole workspace, else the
/// one that this cargo command builds and runs.
pub(crate) fn program(path: &str, run: &[&str]) -> Command {
    let built = std::env::var_os("CCM_BUILT").map(|folder| Command::new(Path::new(&folder).join(path)));
    built.unwrap_or_else(|| {
        let mut command = cargo();
        command.args(run);
        command
    })
}

/// The output of a cargo command; its stderr is shown to the user.
pub(crate) fn output(arguments: &[&str]) -> anyhow::Result<String> {
    output_of(cargo().args(arguments))
}

/// The same for any command.
pub(crate) fn output_of(command: &mut Command) -> anyhow::Result<String> {
    let output = command.stderr(std::process::Stdio::inherit()).output();
    let output = output.with_context(|| format!("running {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?} failed: {}", output.status);
    }
    String::from_utf8(output.stdout).with_context(|| format!("the output of {command:?} is not UTF-8"))
}

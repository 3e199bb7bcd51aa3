//! `hack/release.sh` on a copy of the tree, with a program that is a text: what it refuses, and the files that it makes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ccm_test_manifests::workspace;
use tempfile::TempDir;

use crate::tools::{kubectl, not_run};

const ADDRESSES: &str =
    "REPOSITORY=https://git.example.com/ccm\nSECURITY_CONTACT=security@example.com\nIMAGES=registry.example.com/ccm\n";
/// In place of `hack/image.sh`.
const IMAGE: &str = "#!/bin/sh\nmkdir -p \"$3\" && echo program >\"$3/ccm\"\n";
/// In place of cargo, which the script asks for the packages.
const CARGO: &str = "#!/bin/sh\necho 'ccm v0.1.0|Apache-2.0'\n";

struct Tree {
    folder: TempDir,
}

impl Tree {
    /// Committed, with all that the script reads. `None` if a program is missing.
    fn new() -> Option<Self> {
        for (program, flag) in [("git", "--version"), ("jq", "--version"), ("openssl", "version"), ("tar", "--version")]
        {
            if Command::new(program).arg(flag).output().is_err() {
                not_run(&format!("no {program} on the PATH, which hack/release.sh needs"));
                return None;
            }
        }
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.path("bin")).unwrap();
        symlink(kubectl()?, tree.path("bin/kubectl")).unwrap();
        fs::create_dir_all(tree.path("tree/hack")).unwrap();
        for name in
            ["Cargo.toml", "Cargo.lock", "CHANGELOG.md", "LICENSE", "manifests", "hack/release.sh", "hack/addresses"]
        {
            let copied =
                Command::new("cp").arg("-r").args([workspace().join(name), tree.path("tree").join(name)]).status();
            assert!(copied.unwrap().success(), "{name}");
        }
        for (path, script) in [("tree/hack/image.sh", IMAGE), ("bin/cargo", CARGO)] {
            fs::write(tree.path(path), script).unwrap();
            fs::set_permissions(tree.path(path), fs::Permissions::from_mode(0o755)).unwrap();
        }
        tree.git(&["init", "--quiet"]);
        tree.git(&["add", "."]);
        tree.git(&["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--message=all"]);
        Some(tree)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, arguments: &[&str]) {
        let status = Command::new("git").args(arguments).current_dir(self.path("tree")).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    }

    /// Makes a release in the folder `out`; the error is what the script says.
    fn release(&self, arguments: &[&str]) -> Result<PathBuf, String> {
        let path = format!("{}:{}", self.path("bin").display(), std::env::var("PATH").unwrap());
        let out = self.path("out");
        let mut command = Command::new(self.path("tree/hack/release.sh"));
        command.args(["--dry-run", env!("CARGO_PKG_VERSION"), "--features", "fake,aws"]);
        command.arg("--out").arg(&out).args(arguments).env("PATH", path);
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        if output.status.success() { Ok(out) } else { Err(said) }
    }
}

/// The output of a program in a folder.
fn output(folder: &Path, program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "{program} {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_release_without_addresses_is_refused_before_anything_is_made() {
    let Some(tree) = Tree::new() else { return };
    let said = tree.release(&["--without-pictures"]).unwrap_err();
    assert!(said.contains("hack/addresses does not set REPOSITORY SECURITY_CONTACT IMAGES"), "{said}");
    let two = tree.path("two");
    fs::write(&two, ADDRESSES.replace("registry.example.com/ccm", "")).unwrap();
    let said = tree.release(&["--addresses", two.to_str().unwrap()]).unwrap_err();
    assert!(said.contains("/two does not set IMAGES;"), "{said}");
    assert!(!tree.path("out").exists());
}

#[test]
fn changes_that_the_changelog_gives_to_no_version_stop_a_release() {
    let Some(tree) = Tree::new() else { return };
    let changelog = tree.path("tree/CHANGELOG.md");
    let text = fs::read_to_string(&changelog).unwrap();
    fs::write(&changelog, text.replacen("## 0.1.0", "## Unreleased\n\n- A change.\n\n## 0.1.0", 1)).unwrap();
    tree.git(&["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--all", "--message=one"]);
    let said = tree.release(&[]).unwrap_err();
    assert!(said.contains("CHANGELOG.md has lines under '## Unreleased': move them to '## 0.1.0'"), "{said}");
}

#[test]
fn the_files_of_a_release_name_its_image_and_its_repository() {
    let Some(tree) = Tree::new() else { return };
    let all = tree.path("all");
    fs::write(&all, ADDRESSES).unwrap();
    let out =
        tree.release(&["--without-pictures", "--addresses", all.to_str().unwrap()]).unwrap_or_else(|e| panic!("{e}"));
    let version = env!("CARGO_PKG_VERSION");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();

    output(&out, "sha256sum", &["--check", "--strict", "SHA256SUMS"]);
    let (sums, provenance) = (read("SHA256SUMS"), read("provenance.json"));
    for (sum, name) in sums.lines().map(|line| line.split_once("  ").unwrap()) {
        assert!(name == "provenance.json" || provenance.contains(sum), "{name} is not in {provenance}");
    }
    let krew = read("plugin.yaml");
    let line =
        |key: &str| krew.lines().find_map(|line| line.trim().strip_prefix(key)).unwrap_or_else(|| panic!("{krew}"));
    let archive = line("uri: ").rsplit('/').next().unwrap();
    assert!(line("uri: ").starts_with(&format!("https://git.example.com/ccm/releases/download/v{version}/")), "{krew}");
    assert!(read("SHA256SUMS").contains(&format!("{}  {archive}", line("sha256: "))), "{krew}");
    assert_eq!(output(&out, "tar", &["--list", "--file", archive]), "kubectl-ccm\nLICENSE\n");

    let aws = read(&format!("ccm-{version}-aws.yaml"));
    let image = aws.lines().find_map(|line| line.trim().strip_prefix("image: ")).unwrap();
    let (name, digest) = image.split_once('@').unwrap();
    assert_eq!(name, "registry.example.com/ccm");
    let chart = format!("ccm-{version}.tgz");
    let of_chart = |file: &str| output(&out, "tar", &["--extract", "--to-stdout", "--file", &chart, file]);
    let values = of_chart("ccm/values.yaml");
    assert!(
        values.contains("  repository: registry.example.com/ccm\n")
            && values.contains(&format!("  digest: {digest}\n"))
    );
    let runbooks = format!("runbook_url: https://git.example.com/ccm/blob/v{version}/ccm/docs/alerts.md#");
    let alerts = of_chart("ccm/files/alerts.yaml");
    assert!(alerts.matches(&runbooks).count() > 10 && !alerts.contains(".invalid"), "{alerts}");
}

//! `hack/release.sh` on a copy of the tree, with a program that is a text: what it refuses, and the files that it makes.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

use ccm_test_manifests::workspace;
use serde_json::Value;
use tempfile::TempDir;

use crate::tools::{kubectl, not_run};

const ADDRESSES: &str =
    "REPOSITORY=https://git.example.com/ccm\nSECURITY_CONTACT=security@example.com\nIMAGES=registry.example.com/ccm\n";
/// What the script reads.
const COPIED: [&str; 9] = [
    "README.md",
    "Cargo.toml",
    "Cargo.lock",
    "CHANGELOG.md",
    "LICENSE",
    "manifests",
    "hack/release.sh",
    "hack/image.sh",
    "hack/addresses",
];
/// In place of cargo: a program is the arguments that build it.
const CARGO: &str = r#"#!/bin/sh
case $1 in
tree) echo 'ccm v0.1.0|Apache-2.0' ;;
build)
	out=$CARGO_TARGET_DIR/${11}/$3
	mkdir -p "$out" && echo "$*" >"$out/ccm"
	;;
esac
"#;
/// In place of rustc: that of linux/amd64, whose folder has the libraries of its targets.
const RUSTC: &str = r#"#!/bin/sh
case "$*" in
-vV) echo 'host: x86_64-unknown-linux-gnu' ;;
*target-libdir*) echo "${0%/*}/$4" ;;
*) echo 'rustc 1.0.0' ;;
esac
"#;
/// In place of C compilers.
const CC: &str = "#!/bin/sh\ncase \"$*\" in *-E*) echo 2 . 36 ;; *) echo gcc 12.2.0 ;; esac\n";
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
/// The targets of rustc, by architecture.
const TARGETS: [(&str, &str); 2] = [("amd64", "x86_64-unknown-linux-gnu"), ("arm64", "aarch64-unknown-linux-gnu")];

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
        if !Path::new(CERTIFICATES).exists() {
            not_run(&format!("no {CERTIFICATES}, which hack/image.sh needs"));
            return None;
        }
        let tree = Self { folder: tempfile::tempdir().unwrap() };
        fs::create_dir(tree.path("bin")).unwrap();
        symlink(kubectl()?, tree.path("bin/kubectl")).unwrap();
        fs::create_dir_all(tree.path("tree/hack")).unwrap();
        for name in COPIED {
            let copied =
                Command::new("cp").arg("-r").args([workspace().join(name), tree.path("tree").join(name)]).status();
            assert!(copied.unwrap().success(), "{name}");
        }
        for (name, script) in [("cargo", CARGO), ("rustc", RUSTC), ("cc", CC), ("aarch64-linux-gnu-gcc", CC)] {
            tree.program(name, script);
        }
        for (_, target) in TARGETS {
            fs::create_dir(tree.path("bin").join(target)).unwrap();
        }
        tree.git(&["init", "--quiet"]);
        tree.git(&["add", "."]);
        tree.commit();
        Some(tree)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn git(&self, arguments: &[&str]) {
        let status = Command::new("git").args(arguments).current_dir(self.path("tree")).status().unwrap();
        assert!(status.success(), "git {arguments:?}");
    }

    fn commit(&self) {
        self.git(&["-c", "user.name=a", "-c", "user.email=a@example.com", "commit", "--quiet", "--all", "--message=a"]);
    }

    /// Puts a program on the PATH of the script.
    fn program(&self, name: &str, script: &str) {
        let path = self.path("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    /// Makes a release with all addresses and a new key, and without pictures.
    fn complete(&self) -> Result<PathBuf, String> {
        fs::write(self.path("addresses"), ADDRESSES).unwrap();
        let folder = self.folder.path();
        output(folder, "openssl", &["genpkey", "-algorithm", "ed25519", "-out", "key"]);
        output(folder, "openssl", &["pkey", "-in", "key", "-pubout", "-out", "key.pub"]);
        let [addresses, key] = ["addresses", "key"].map(|name| self.path(name).to_str().unwrap().to_owned());
        self.release(&["--without-pictures", "--addresses", &addresses, "--key", &key])
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
    tree.commit();
    let said = tree.release(&[]).unwrap_err();
    assert!(said.contains("CHANGELOG.md has lines under '## Unreleased': move them to '## 0.1.0'"), "{said}");
}

#[test]
fn changes_that_are_not_committed_and_versions_that_differ_stop_a_release() {
    let Some(tree) = Tree::new() else { return };
    for (name, from, to) in [
        ("README.md", "Version 0.1.0", "Version 0.2.0"),
        ("manifests/charts/ccm/Chart.yaml", "\nversion: 0.1.0", "\nversion: 0.2.0"),
    ] {
        let path = tree.path("tree").join(name);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen(from, to, 1)).unwrap();
        let said = tree.release(&[]).unwrap_err();
        assert!(said.contains("the tree has changes that are not committed") && said.contains(name), "{said}");
        tree.commit();
        let said = tree.release(&[]).unwrap_err();
        assert!(said.contains(&format!("{name} has the version '0.2.0', not 0.1.0")), "{said}");
        fs::write(&path, text).unwrap();
        tree.commit();
    }
}

#[test]
fn a_missing_toolchain_is_named_before_anything_is_made() {
    let Some(tree) = Tree::new() else { return };
    fs::remove_dir(tree.path("bin/aarch64-unknown-linux-gnu")).unwrap();
    let said = tree.complete().unwrap_err();
    let wanted = "to build for linux/arm64, this machine needs: rustup target add aarch64-unknown-linux-gnu";
    assert!(said.contains(wanted), "{said}");
    assert!(!tree.path("out").exists());

    // Without the compilers of this machine.
    let few = tree.path("few");
    fs::create_dir(&few).unwrap();
    for name in ["bash", "dirname", "sed"] {
        symlink(output(&few, "sh", &["-c", &format!("command -v {name}")]).trim(), few.join(name)).unwrap();
    }
    fs::copy(tree.path("bin/rustc"), few.join("rustc")).unwrap();
    let script = tree.path("tree/hack/image.sh");
    let ran = Command::new("bash").arg(script).args(["toolchain", "arm64"]).env("PATH", few).output().unwrap();
    let said = String::from_utf8(ran.stderr).unwrap();
    let wanted = format!("{wanted} && apt-get install gcc-aarch64-linux-gnu libc6-dev-arm64-cross\n");
    assert!(!ran.status.success() && said.ends_with(&wanted), "{said}");
}

#[test]
fn two_builds_that_differ_are_no_release() {
    let Some(tree) = Tree::new() else { return };
    tree.program("cargo", &CARGO.replace("$*", "$* $$"));
    let said = tree.complete().unwrap_err();
    assert!(said.contains("-fake-linux-arm64 differ"), "{said}");
    assert!(!tree.path("out/SHA256SUMS").exists());
}

/// A blob of a layout, after a look at its digest.
fn blob(layout: &Path, descriptor: &Value) -> PathBuf {
    let digest = descriptor["digest"].as_str().unwrap().strip_prefix("sha256:").unwrap();
    let path = Path::new("blobs/sha256").join(digest);
    assert!(output(layout, "sha256sum", &[path.to_str().unwrap()]).starts_with(digest));
    layout.join(path)
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// The digest of an image, after a look at what it has for each architecture.
fn image(out: &Path, program: &str, features: &str) -> String {
    let layout = tempfile::tempdir().unwrap();
    let layout = layout.path();
    output(layout, "tar", &["--extract", "--file", out.join(format!("{program}.oci.tar")).to_str().unwrap()]);
    let [index] = json(&layout.join("index.json"))["manifests"].as_array().unwrap().clone().try_into().unwrap();
    let tag = program.replacen("ccm-", "v", 1);
    assert_eq!(index["annotations"]["org.opencontainers.image.ref.name"], tag);
    let manifests = json(&blob(layout, &index))["manifests"].as_array().unwrap().clone();
    assert_eq!(manifests.len(), TARGETS.len());
    for (descriptor, (arch, target)) in manifests.iter().zip(TARGETS) {
        let manifest = json(&blob(layout, descriptor));
        let config = json(&blob(layout, &manifest["config"]));
        for platform in [&descriptor["platform"], &config] {
            assert_eq!((&platform["os"], &platform["architecture"]), (&"linux".into(), &arch.into()));
        }
        let layer = blob(layout, &manifest["layers"][0]);
        let built = output(layout, "tar", &["--extract", "--to-stdout", "--file", layer.to_str().unwrap(), "./ccm"]);
        assert!(built.ends_with(&format!("--features kubernetes,{features} --target {target}\n")), "{built}");
        assert_eq!(fs::read_to_string(out.join(format!("{program}-linux-{arch}"))).unwrap(), built);
    }
    index["digest"].as_str().unwrap().to_owned()
}

#[test]
fn the_files_of_a_release_name_its_images_and_its_repository() {
    let Some(tree) = Tree::new() else { return };
    let out = tree.complete().unwrap_or_else(|e| panic!("{e}"));
    let version = env!("CARGO_PKG_VERSION");
    let all = format!("ccm-{version}");
    let read = |name: &str| fs::read_to_string(out.join(name)).unwrap();

    output(&out, "sha256sum", &["--check", "--strict", "SHA256SUMS"]);
    let signed = "pkeyutl -verify -rawin -pubin -inkey ../key.pub -in SHA256SUMS -sigfile SHA256SUMS.sig";
    output(&out, "openssl", &signed.split(' ').collect::<Vec<_>>());
    let (sums, provenance) = (read("SHA256SUMS"), read("provenance.json"));
    for (sum, name) in sums.lines().map(|line| line.split_once("  ").unwrap()) {
        assert!(name == "provenance.json" || provenance.contains(sum), "{name} is not in {provenance}");
    }
    for (arch, target) in TARGETS {
        assert!(provenance.contains(&format!("{target} 2.36 gcc 12.2.0")), "{provenance}");
        let archive = format!("kubectl-{all}-linux-{arch}.tar.gz");
        assert_eq!(output(&out, "tar", &["--list", "--file", &archive]), "kubectl-ccm\nLICENSE\n");
        let sum = sums.lines().find_map(|line| line.strip_suffix(&archive)).unwrap().trim();
        let krew = read("plugin.yaml");
        let wanted = format!(
            "  - selector: {{matchLabels: {{os: linux, arch: {arch}}}}}\n    uri: \
             https://git.example.com/ccm/releases/download/v{version}/{archive}\n    sha256: {sum}\n"
        );
        assert!(krew.contains(&wanted), "{krew}");
    }

    for provider in ["fake", "aws"] {
        let program = format!("{all}-{provider}");
        let digest = image(&out, &program, provider);
        let overlay = read(&format!("{program}.yaml"));
        let named: Vec<&str> = overlay.lines().filter_map(|line| line.trim().strip_prefix("image: ")).collect();
        assert_eq!(named, [format!("registry.example.com/ccm@{digest}")]);
        assert!(provenance.contains(&digest["sha256:".len()..]), "{provenance}");
    }
    let spdx = read(&format!("{all}-aws.spdx.json"));
    assert!(spdx.contains("pkg:generic/glibc@2.36") && spdx.contains("pkg:cargo/ccm@0.1.0"), "{spdx}");

    let digest = image(&out, &all, "fake,aws");
    let chart = format!("{all}.tgz");
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

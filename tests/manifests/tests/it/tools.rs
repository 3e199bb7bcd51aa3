//! The files of the manifests, and the tools that render them.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use ccm_test_manifests::workspace;

/// `manifests/`
pub(crate) fn manifests() -> PathBuf {
    workspace().join("manifests")
}

pub(crate) fn read(name: &str) -> String {
    let path = manifests().join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The version of a module in a committed go.mod, without its `v`.
pub(crate) fn version(go_mod: &str, module: &str) -> String {
    let text = fs::read_to_string(workspace().join(go_mod)).unwrap();
    let version = ccm_test_bed::version_in(&text, module);
    version.strip_prefix('v').unwrap_or_else(|| panic!("{go_mod} does not require {module}")).to_owned()
}

/// A file that a script of `hack/` stored in the cache.
fn cached(folder: &str, name: &str, script: &str) -> Option<PathBuf> {
    let path = ccm_test_bed::cache_folder().map(|cache| cache.join(folder).join(name));
    let found = path.clone().filter(|path| path.exists());
    if found.is_none() {
        not_run(&format!("{name} is not at {path:?}; {script} puts it there"));
    }
    found
}

/// Reports that this machine cannot run a test; in CI that is a failure.
pub(crate) fn not_run(reason: &str) {
    ccm_test_bed::not_run(reason).unwrap();
}

/// kubectl, whose kustomize renders the overlays. The output depends on the version, so no other kubectl is used.
pub(crate) fn kubectl() -> Option<PathBuf> {
    let version = ccm_test_bed::kubernetes_version().trim_start_matches('v');
    let assets = env::var_os("KUBEBUILDER_ASSETS").map(|folder| Path::new(&folder).join("kubectl"));
    let states = |path: &PathBuf| {
        run(path, &["version", "--client"])
            .is_ok_and(|said| said.lines().any(|line| line.ends_with(&format!(" v{version}"))))
    };
    if let Some(path) = assets.filter(|path| path.is_file()).filter(states) {
        return Some(path);
    }
    cached(&format!("k8s-{version}"), "kubectl", "hack/k8s/build.sh kubectl")
}

pub(crate) fn helm() -> Option<PathBuf> {
    cached(&format!("helm-{}", version("hack/tools/helm/go.mod", "helm.sh/helm/v4")), "helm", "hack/tools/build.sh")
}

/// The folder with the CRDs of the Prometheus operator.
pub(crate) fn crds() -> Option<PathBuf> {
    let version = version("hack/tools/crds/go.mod", "github.com/prometheus-operator/prometheus-operator");
    cached(&format!("prometheus-operator-crds-{version}"), "", "hack/tools/build.sh")
}

/// Runs a program and returns its output, or its error.
pub(crate) fn run(program: &Path, args: &[&str]) -> Result<String, String> {
    let output = Command::new(program).args(args).env("HELM_NO_PLUGINS", "1").output().unwrap();
    if output.status.success() {
        Ok(String::from_utf8(output.stdout).unwrap())
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

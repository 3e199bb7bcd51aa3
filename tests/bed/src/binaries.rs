//! Where the components are. Looks where `hack/k8s/build.sh` looks and puts things, never builds.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Once;

use anyhow::bail;

/// The Kubernetes version that `hack/k8s` builds, such as `v1.36.3`.
#[must_use]
pub fn kubernetes_version() -> &'static str {
    version_in(include_str!("../../../hack/k8s/go.mod"), "k8s.io/kubernetes")
}

fn etcd_version() -> &'static str {
    version_in(include_str!("../../../hack/k8s/etcd/go.mod"), "go.etcd.io/etcd/server/v3")
}

/// The required version of a module, so that the number stands in the go.mod and nowhere else.
fn version_in(go_mod: &'static str, module: &str) -> &'static str {
    go_mod
        .lines()
        .filter_map(|line| line.trim().trim_start_matches("require ").strip_prefix(module)?.strip_prefix(' '))
        .filter_map(|rest| rest.split_whitespace().next())
        .find(|word| word.starts_with('v'))
        .unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Binaries {
    pub(crate) etcd: PathBuf,
    pub(crate) apiserver: PathBuf,
    pub(crate) kubectl: Option<PathBuf>,
}

/// `None`, with a loud line on stderr, when this machine has no API server; an error in CI.
pub(crate) fn find() -> anyhow::Result<Option<Binaries>> {
    let missing = match (locate("etcd", etcd_version()), locate("kube-apiserver", kubernetes_version())) {
        (Some(etcd), Some(apiserver)) => {
            let kubectl = locate("kubectl", kubernetes_version());
            return Ok(Some(Binaries { etcd, apiserver, kubectl }));
        }
        (None, Some(_)) => "etcd",
        (Some(_), None) => "kube-apiserver",
        (None, None) => "etcd and kube-apiserver",
    };
    static TOLD: Once = Once::new();
    not_here(missing, &TOLD)
}

/// The same for the kube-controller-manager.
pub(crate) fn controller_manager() -> anyhow::Result<Option<PathBuf>> {
    const NAME: &str = "kube-controller-manager";
    static TOLD: Once = Once::new();
    locate(NAME, kubernetes_version()).map_or_else(|| not_here(NAME, &TOLD), |path| Ok(Some(path)))
}

fn locate(name: &str, version: &str) -> Option<PathBuf> {
    // The version of somebody's own assets is their choice; what is in our cache must be what go.mod says.
    let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|v| !v.is_empty()).map(PathBuf::from);
    let own = assets.map(|folder| folder.join(name)).filter(|path| path.is_file());
    own.or_else(|| {
        cache_folder().map(|folder| folder.join(name)).filter(|path| path.is_file() && states(path, name, version))
    })
}

fn not_here<T>(missing: &str, told: &'static Once) -> anyhow::Result<Option<T>> {
    let folder =
        cache_folder().map_or_else(|| "the user's cache folder".to_owned(), |folder| folder.display().to_string());
    let reason = format!(
        "no {missing}, neither in KUBEBUILDER_ASSETS nor in {folder}; hack/k8s/build.sh builds what is missing"
    );
    if env::var("CI").is_ok_and(|value| value == "true") {
        bail!(reason);
    }
    // Not eprintln!: the test harness would swallow it, and a test that didn't run must be seen. One write, because the
    // harness prints at the same time.
    told.call_once(|| {
        let _ = std::io::stderr().write_all(format!("\nNOT RUN: {reason}\n").as_bytes());
    });
    Ok(None)
}

fn cache_folder() -> Option<PathBuf> {
    let root = env::var_os("XDG_CACHE_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(root.join("ccm").join(format!("k8s-{}", kubernetes_version().trim_start_matches('v'))))
}

fn states(path: &Path, name: &str, version: &str) -> bool {
    let arguments: &[&str] = if name == "kubectl" { &["version", "--client"] } else { &["--version"] };
    let Ok(output) = Command::new(path).args(arguments).output() else { return false };
    let bare = version.trim_start_matches('v');
    String::from_utf8_lossy(&output.stdout).split_whitespace().any(|word| word.trim_start_matches('v') == bare)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_come_from_the_go_modules() {
        assert!(kubernetes_version().starts_with("v1."), "{}", kubernetes_version());
        assert!(etcd_version().starts_with("v3."), "{}", etcd_version());
        assert_eq!(
            version_in("tool a.b/c/cmd/d\nrequire (\n\ta.b/c/d v9.9.9\n\ta.b/c v1.2.3 // indirect\n)", "a.b/c"),
            "v1.2.3"
        );
        assert_eq!(version_in("require a.b/c v1.2.3", "a.b/c"), "v1.2.3");
        assert_eq!(version_in("replace a.b/c => ../c", "a.b/c"), "");
    }
}

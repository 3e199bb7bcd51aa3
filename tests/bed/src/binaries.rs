//! Locations of the components. Looks in the folders that `hack/k8s/build.sh` uses, never builds.

use std::collections::BTreeSet;
use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;
use parking_lot::Mutex;

/// The modules of `hack/k8s` with a component: the value that selects one in the environment, and its go.mod. The
/// first is the default.
type Modules = &'static [(&'static str, &'static str)];

const KUBERNETES: Modules = &[
    ("", include_str!("../../../hack/k8s/go.mod")),
    ("1.33", include_str!("../../../hack/k8s/1.33/go.mod")),
    ("1.37", include_str!("../../../hack/k8s/1.37/go.mod")),
];
const ETCD: Modules =
    &[("", include_str!("../../../hack/k8s/etcd/go.mod")), ("3.5", include_str!("../../../hack/k8s/etcd-3.5/go.mod"))];

/// The Kubernetes version that `hack/k8s` builds by default, such as `v1.36.3`.
pub fn kubernetes_version() -> &'static str {
    Component::kubernetes("kubectl").version
}

#[derive(Debug)]
struct Component {
    name: &'static str,
    version: &'static str,
    /// The prefix of its folder in the cache.
    kind: &'static str,
    /// Whether the environment selects this version.
    selected: bool,
}

impl Component {
    /// A Kubernetes program in the default version.
    fn kubernetes(name: &'static str) -> Self {
        let go_mod = KUBERNETES.first().map_or("", |(_, go_mod)| go_mod);
        Self { name, version: version_in(go_mod, "k8s.io/kubernetes"), kind: "k8s", selected: false }
    }

    fn apiserver(selector: &str) -> anyhow::Result<Self> {
        let version = version_in(selected(KUBERNETES, selector)?, "k8s.io/kubernetes");
        Ok(Self { name: "kube-apiserver", version, kind: "k8s", selected: !selector.is_empty() })
    }

    fn etcd(selector: &str) -> anyhow::Result<Self> {
        let version = version_in(selected(ETCD, selector)?, "go.etcd.io/etcd/server/v3");
        Ok(Self { name: "etcd", version, kind: "etcd", selected: !selector.is_empty() })
    }

    /// `KUBEBUILDER_ASSETS` may have any version; our cache must have the version of go.mod. A folder without the program is
    /// reported: its other version would be tested without a word.
    fn locate(&self) -> Option<PathBuf> {
        let assets = env::var_os("KUBEBUILDER_ASSETS").filter(|value| !value.is_empty() && !self.selected);
        if let Some(folder) = assets {
            let own = Path::new(&folder).join(self.name);
            if own.is_file() {
                return Some(own);
            }
            report_once(
                self.name,
                &format!("KUBEBUILDER_ASSETS has no {}; looking in the user's cache", own.display()),
            );
        }
        self.cached().filter(|path| path.is_file() && states(path, self.name, self.version))
    }

    fn cached(&self) -> Option<PathBuf> {
        let folder = format!("{}-{}", self.kind, self.version.trim_start_matches('v'));
        Some(cache_folder()?.join(folder).join(self.name))
    }
}

fn selected(modules: Modules, selector: &str) -> anyhow::Result<&'static str> {
    let found = modules.iter().find(|(name, _)| *name == selector);
    Ok(found.with_context(|| format!("hack/k8s has no module {selector:?}"))?.1)
}

/// The required version of a module, so that only the go.mod has the number.
pub fn version_in<'m>(go_mod: &'m str, module: &str) -> &'m str {
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
}

/// `None`, with a message on stderr, if this machine has no API server; an error in CI.
pub(crate) fn find() -> anyhow::Result<Option<Binaries>> {
    let selector = |name: &str| env::var(name).unwrap_or_default();
    let etcd = Component::etcd(&selector("CCM_TEST_ETCD"))?;
    let apiserver = Component::apiserver(&selector("CCM_TEST_KUBERNETES"))?;
    let (Some(etcd), Some(apiserver)) = (here(&etcd)?, here(&apiserver)?) else { return Ok(None) };
    Ok(Some(Binaries { etcd, apiserver }))
}

/// The same for the kube-controller-manager.
pub(crate) fn controller_manager() -> anyhow::Result<Option<PathBuf>> {
    here(&Component::kubernetes("kube-controller-manager"))
}

/// The same for kubectl.
pub(crate) fn kubectl() -> anyhow::Result<Option<PathBuf>> {
    here(&Component::kubernetes("kubectl"))
}

/// Its path; or `None`, with a message on stderr the first time; an error in CI.
fn here(component: &Component) -> anyhow::Result<Option<PathBuf>> {
    static REPORTED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    let found = component.locate();
    if found.is_none() {
        let Component { name, version, .. } = component;
        let at = component.cached().map_or_else(|| "the user's cache".to_owned(), |path| path.display().to_string());
        let reason = format!("no {name} {version} at {at}; `hack/k8s/build.sh {name}` builds it");
        if REPORTED.lock().insert(name) || is_ci() {
            not_run(&reason)?;
        }
    }
    Ok(found)
}

fn is_ci() -> bool {
    env::var("CI").is_ok_and(|value| value == "true")
}

/// Reports something of a component on stderr, the first time.
fn report_once(name: &'static str, text: &str) {
    static REPORTED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if REPORTED.lock().insert(name) {
        let _ = std::io::stderr().write_all(format!("{text}\n").as_bytes());
    }
}

/// Reports on stderr that this machine cannot run a test; in CI that is an error.
pub fn not_run(reason: &str) -> anyhow::Result<()> {
    anyhow::ensure!(!is_ci(), "{reason}");
    // Not eprintln!: the test harness would capture it, and a test that did not run must be visible. One write, because
    // the harness prints at the same time.
    let _ = std::io::stderr().write_all(format!("\nNOT RUN: {reason}\n").as_bytes());
    Ok(())
}

/// The folder for the programs that the scripts of `hack/` build.
pub fn cache_folder() -> Option<PathBuf> {
    let root = env::var_os("XDG_CACHE_HOME")
        .filter(|v| !v.is_empty())
        .map(PathBuf::from)
        .or_else(|| env::var_os("HOME").map(|home| Path::new(&home).join(".cache")))?;
    Some(root.join("ccm"))
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
        for (name, _) in KUBERNETES {
            let version = Component::apiserver(name).unwrap().version;
            assert!(version.starts_with("v1.") && version.contains(name), "{name}: {version}");
        }
        for (name, _) in ETCD {
            let version = Component::etcd(name).unwrap().version;
            assert!(version.starts_with("v3.") && version.contains(name), "{name}: {version}");
        }
        assert!(Component::etcd("2").is_err());
        assert_eq!(
            version_in("tool a.b/c/cmd/d\nrequire (\n\ta.b/c/d v9.9.9\n\ta.b/c v1.2.3 // indirect\n)", "a.b/c"),
            "v1.2.3"
        );
        assert_eq!(version_in("require a.b/c v1.2.3", "a.b/c"), "v1.2.3");
        assert_eq!(version_in("replace a.b/c => ../c", "a.b/c"), "");
    }
}

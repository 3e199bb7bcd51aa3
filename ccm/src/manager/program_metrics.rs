//! Metrics of the program itself: its build, its feature gates and its controllers.

use ccm_runtime::metrics::{Def, IntGaugeVec};
use ccm_runtime::{Metrics, metrics};

use crate::options::Options;
use crate::serve::AccessMetrics;
use crate::version;

metrics! {
    pub(crate) struct ProgramMetrics {
        build: IntGaugeVec = Def::gauge(
            "kubernetes_build_info",
            &["major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"],
            "[BETA] A metric with a constant '1' value labeled by major, minor, git version, git commit, git tree state, build date, Go version, and compiler from which Kubernetes was built, and platform on which it is running.",
        );
        features: IntGaugeVec = Def::gauge(
            "kubernetes_feature_enabled", &["name", "stage"],
            "[BETA] This metric records the data about the stage and enablement of a k8s feature.",
        );
        running: IntGaugeVec = Def::gauge(
            "running_managed_controllers", &["name", "manager"],
            "[BETA] Indicates where instances of a controller are currently running",
        );
    }
}

pub(super) fn set(registry: &Metrics, options: &Options) {
    let (metrics, info) = (registry.part::<ProgramMetrics>(), version::info(Some(&options.version)));
    let version::Info { major, minor, git_version, git_commit, git_tree_state, build_date, compiler, platform, .. } =
        &info;
    // In label order; the Go version is empty.
    let values = [major, minor, git_version.as_str(), git_commit, git_tree_state, build_date, "", compiler, platform];
    metrics.build.with_label_values(&values).set(1);
    for (name, stage, enabled) in options.gates.iter() {
        metrics.features.with_label_values(&[name, &*stage.to_string()]).set(i64::from(enabled));
    }
    // Registers the metrics without labels, so that they exist before the first request.
    AccessMetrics::of(registry);
}

/// 1 while a controller runs; `name` as in upstream's label.
pub(super) fn running(registry: &Metrics, name: &str, running: bool) {
    let gauge = &registry.part::<ProgramMetrics>().running;
    gauge.with_label_values(&[name, "cloud-controller-manager"]).set(i64::from(running));
}

/// The controller was stopped intentionally, so the alert must not fire.
pub(super) fn forget(registry: &Metrics, name: &str) {
    drop(registry.part::<ProgramMetrics>().running.remove_label_values(&[name, "cloud-controller-manager"]));
}

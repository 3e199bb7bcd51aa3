//! What the metrics say of the program itself: its build and its feature gates.

use ccm_runtime::Metrics;
use ccm_runtime::metrics::BuildInfo;

use crate::options::Options;
use crate::version;

pub(super) fn tell(metrics: &Metrics, options: &Options) {
    let info = version::info(Some(&options.version));
    metrics.build_info(&BuildInfo {
        major: info.major,
        minor: info.minor,
        git_version: &info.git_version,
        git_commit: info.git_commit,
        git_tree_state: info.git_tree_state,
        build_date: info.build_date,
        compiler: info.compiler,
        platform: &info.platform,
    });
    for (name, stage, enabled) in options.gates.iter() {
        metrics.feature(name, &stage.to_string(), enabled);
    }
}

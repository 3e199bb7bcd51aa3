//! The provider that a run or a command works with.

use std::sync::Arc;

use ccm_provider::{CloudProvider, Registry};

use crate::exit::Failure;
use crate::options::Options;

/// Providers of this project that a build may leave out.
pub(crate) const OPTIONAL: [&str; 4] = ["aws", "fake", "gce", "openstack"];

/// The provider that the flags name.
pub(crate) async fn chosen(registry: &Registry, options: &Options) -> Result<Arc<dyn CloudProvider>, Failure> {
    let made = registry.init(&options.cloud_provider, &options.cloud_config, &options.values, &OPTIONAL).await;
    let provider = made.map_err(|error| Failure::fatal(error.to_string()))?;
    if !provider.has_cluster_id() {
        if !options.allow_untagged_cloud {
            return Err(Failure::fatal(
                "no ClusterID found. A ClusterID is required for the cloud provider to function properly. This check can \
                 be bypassed by setting the --allow-untagged-cloud option",
            ));
        }
        tracing::warn!(
            "detected a cluster without a ClusterID. A ClusterID will be required in the future. Please tag your cluster to avoid any future issues"
        );
    }
    Ok(provider)
}

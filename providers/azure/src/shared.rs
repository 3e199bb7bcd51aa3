//! The state that the parts of the provider share: the API, the cluster, and the configuration.

use ccm_kit::Cluster;
use ccm_provider::metric::Registry;

use crate::client::Client;
use crate::node::zones::Zones;
use crate::start::cloud::Cloud;
use crate::start::config::Config;

/// One cluster in one resource group. Cheap to clone except for the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) registry: Registry,
    pub(crate) config: Config,
    pub(crate) cloud: Cloud,
    pub(crate) zones: Zones,
}

//! The state that the parts of the provider share: the API, the cluster, and their location.

use ccm_kit::Cluster;
use ccm_provider::metric::Registry;

use crate::client::Client;
use crate::flags::Options;
use crate::node::network::Network;
use crate::node::zones::Zones;
use crate::start::cluster_id::ClusterId;
use crate::start::config::Config;

/// One cluster in one region of one project. Cheap to clone except for the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Shared {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) registry: Registry,
    pub(crate) config: Config,
    pub(crate) options: Options,
    /// The region of all balancers.
    pub(crate) region: String,
    pub(crate) network: Network,
    pub(crate) zones: Zones,
    pub(crate) cluster_id: ClusterId,
}

//! The dependencies of load balancers on other parts of the provider.

use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use ccm_provider::{ErrorClass, ProviderError};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::node::network::{Network, Subnet};
use crate::start::cluster_id::ClusterId;

/// Facts about the cluster besides its Services.
#[async_trait]
pub(crate) trait Surroundings: Send + Sync + std::fmt::Debug {
    /// The ID of the cluster that is part of names.
    async fn cluster_id(&self) -> Result<String, ProviderError>;

    /// The network of the cluster. A right to read it that is not granted is a fact about it: only a new rule needs it.
    async fn network(&self) -> Result<NetworkFacts, ProviderError>;

    /// All zones of the region.
    async fn zones(&self) -> Result<Vec<String>, ProviderError>;
}

/// Facts about the network from the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkFacts {
    /// Whether the network has no subnetworks.
    pub(crate) is_legacy: bool,
    /// The URL of the cluster's subnetwork, if it is known.
    pub(crate) subnetwork: Option<String>,
    /// The reason why the subnetwork is unknown.
    pub(crate) problem: Option<String>,
}

/// The cluster as the provider sees it.
#[derive(Debug)]
pub(crate) struct Here {
    pub(crate) client: Client,
    pub(crate) region: String,
    pub(crate) network: Network,
    pub(crate) cluster_id: ClusterId,
    /// Whether the missing right was logged.
    pub(crate) is_denied: AtomicBool,
}

#[async_trait]
impl Surroundings for Here {
    async fn cluster_id(&self) -> Result<String, ProviderError> {
        Ok(self.cluster_id.get().await?.id)
    }

    async fn network(&self) -> Result<NetworkFacts, ProviderError> {
        let found = match self.network.subnetwork().await {
            Err(error) if matches!(error.class(), ErrorClass::Denied { .. }) => {
                if !self.is_denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the subnetwork of the cluster is not known: set subnetwork-name, or grant the right");
                }
                Subnet::Unknown(error.to_string())
            }
            found => found?,
        };
        Ok(match found {
            Subnet::Url(url) => NetworkFacts { subnetwork: Some(url), ..NetworkFacts::default() },
            Subnet::Legacy => NetworkFacts { is_legacy: true, ..NetworkFacts::default() },
            Subnet::Unknown(why) => NetworkFacts { problem: Some(why), ..NetworkFacts::default() },
        })
    }

    async fn zones(&self) -> Result<Vec<String>, ProviderError> {
        Ok(self.client.zones(&self.region).await?)
    }
}

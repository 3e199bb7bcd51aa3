//! Facts about the cluster besides its Services.

use std::sync::atomic::{AtomicBool, Ordering};

use ccm_provider::{ErrorClass, ProviderError};
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::node::network::{Network, Subnet};
use crate::start::cluster_id::ClusterId;

/// Facts about the network from the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct NetworkFacts {
    /// Whether the network has no subnetworks.
    pub(crate) is_legacy: bool,
    /// The URL of the cluster's subnetwork, if it is known.
    pub(crate) subnetwork: Option<String>,
    /// Whether it is only that of some nodes, which existing balancers do not follow.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub(crate) is_of_nodes: bool,
    /// The reason why the subnetwork is unknown.
    pub(crate) problem: Option<String>,
}

/// The cluster as the provider sees it.
#[derive(Debug)]
pub(crate) struct Facts {
    pub(crate) client: Client,
    pub(crate) region: String,
    pub(crate) network: Network,
    pub(crate) cluster_id: ClusterId,
    /// Whether the missing right was logged.
    pub(crate) is_denied: AtomicBool,
}

impl Facts {
    /// The ID of the cluster that is part of names.
    pub(super) async fn cluster_id(&self) -> Result<String, ProviderError> {
        Ok(self.cluster_id.get().await?.id)
    }

    /// The network of the cluster. A right to read it that is not granted is a fact about it: only a new rule needs it.
    pub(super) async fn network(&self) -> Result<NetworkFacts, ProviderError> {
        let found = match self.network.subnetwork().await {
            Err(error) if matches!(error.class(), ErrorClass::Denied { .. }) => {
                if !self.is_denied.swap(true, Ordering::Relaxed) {
                    tracing::warn!(%error, "the subnetwork of the cluster is not known: set subnetwork-name, or grant the permission");
                }
                Subnet::Unknown(error.to_string())
            }
            found => found?,
        };
        Ok(match found {
            Subnet::Url(url) => NetworkFacts { subnetwork: Some(url), ..NetworkFacts::default() },
            Subnet::OfNodes(url) => {
                NetworkFacts { subnetwork: Some(url), is_of_nodes: true, ..NetworkFacts::default() }
            }
            Subnet::Legacy => NetworkFacts { is_legacy: true, ..NetworkFacts::default() },
            Subnet::Unknown(why) => NetworkFacts { problem: Some(why), ..NetworkFacts::default() },
        })
    }

    /// All zones of the region.
    pub(super) async fn zones(&self) -> Result<Vec<String>, ProviderError> {
        Ok(self.client.zones(&self.region).await?)
    }
}

//! The older pair of interfaces, `Instances` and `Zones`, and their adapter.

use async_trait::async_trait;
use std::sync::Arc;

use crate::error::ProviderError;
use crate::instance::InstanceMetadata;
use crate::node::{Node, NodeAddress};
use crate::one_by_one::SingleInstances;

/// Instances of the cloud, the older interface. Consulted only where the provider has no [`crate::InstancesV2`]; the core
/// reaches it through [`LegacyInstances`].
#[async_trait]
pub trait Instances: Send + Sync {
    /// Addresses of the instance behind a node name.
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, ProviderError>;
    /// Addresses by provider ID; asked first, also with an empty ID.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, ProviderError>;
    /// The instance ID without scheme. [`ProviderError::InstanceNotFound`] for a missing instance, never for a stopped
    /// one; [`ProviderError::NotImplemented`] initializes the node without provider ID.
    async fn instance_id(&self, node_name: &str) -> Result<String, ProviderError>;
    /// Instance type by node name.
    async fn instance_type(&self, node_name: &str) -> Result<String, ProviderError>;
    /// Instance type by provider ID; asked first.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, ProviderError>;
    /// Whether the instance exists. `false` deletes a node that is not Ready; true for stopped instances.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError>;
    /// Whether the instance is stopped; [`ProviderError::NotImplemented`] means "no".
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError>;
    /// Never called by the core.
    async fn add_ssh_key_to_all_instances(&self, _user: &str, _key: &[u8]) -> Result<(), ProviderError> {
        Err(ProviderError::NotImplemented)
    }
    /// Never called by the core.
    async fn current_node_name(&self, hostname: &str) -> Result<String, ProviderError> {
        Ok(hostname.to_owned())
    }
}

/// Zones of the cloud, deprecated. Consulted only beside [`Instances`].
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone that this process runs in. Never called by the core.
    async fn zone(&self) -> Result<ZoneInfo, ProviderError>;
    /// Zone by provider ID; asked first.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<ZoneInfo, ProviderError>;
    /// Zone by node name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<ZoneInfo, ProviderError>;
}

/// A zone and its region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneInfo {
    /// The zone; empty when unknown.
    pub failure_domain: String,
    /// The region; empty when unknown.
    pub region: String,
}

/// `<provider>://<instance ID>` of a node, from the older interface. `NotImplemented` and `InstanceNotFound` pass
/// unchanged.
pub async fn instance_provider_id(
    provider_name: &str,
    instances: Option<&dyn Instances>,
    node_name: &str,
) -> Result<String, ProviderError> {
    let Some(instances) = instances else {
        return Err(ProviderError::unknown("failed to get instances from cloud provider"));
    };
    match instances.instance_id(node_name).await {
        Ok(id) => Ok(format!("{provider_name}://{id}")),
        Err(error) if error.is_not_implemented() || error.is_instance_not_found() => Err(error),
        Err(error) => Err(error.wrap("failed to get instance ID from cloud provider")),
    }
}

/// [`Instances`] and [`Zones`] in the shape of [`SingleInstances`]: by provider ID first, by name where that is an error.
/// Wrap it in [`crate::OneByOne`].
pub struct LegacyInstances {
    provider_name: String,
    instances: Arc<dyn Instances>,
    zones: Option<Arc<dyn Zones>>,
}

impl std::fmt::Debug for LegacyInstances {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LegacyInstances").field("provider_name", &self.provider_name).finish_non_exhaustive()
    }
}

impl LegacyInstances {
    /// The adapter for a provider of the given name.
    pub fn new(provider_name: impl Into<String>, instances: Arc<dyn Instances>, zones: Option<Arc<dyn Zones>>) -> Self {
        Self { provider_name: provider_name.into(), instances, zones }
    }

    async fn provider_id(&self, node: &Node) -> Result<String, ProviderError> {
        match &node.provider_id {
            Some(id) => Ok(id.to_string()),
            None => instance_provider_id(&self.provider_name, Some(&*self.instances), &node.name).await,
        }
    }

    async fn addresses_of(&self, provider_id: &str, name: &str) -> Result<Vec<NodeAddress>, ProviderError> {
        match self.instances.node_addresses_by_provider_id(provider_id).await {
            Ok(addresses) => Ok(addresses),
            Err(by_id) => self.instances.node_addresses(name).await.map_err(|by_name| {
                ProviderError::unknown(format!(
                    "error fetching node by provider ID: {by_id}, and error by node name: {by_name}"
                ))
            }),
        }
    }

    async fn type_of(&self, provider_id: &str, name: &str) -> Result<String, ProviderError> {
        match self.instances.instance_type_by_provider_id(provider_id).await {
            Ok(kind) => Ok(kind),
            Err(by_id) => self.instances.instance_type(name).await.map_err(|by_name| {
                ProviderError::unknown(format!(
                    "InstanceType: Error fetching by providerID: {by_id} Error fetching by NodeName: {by_name}"
                ))
            }),
        }
    }

    async fn zone_of(&self, provider_id: &str, name: &str) -> Result<ZoneInfo, ProviderError> {
        let Some(zones) = &self.zones else { return Ok(ZoneInfo::default()) };
        match zones.zone_by_provider_id(provider_id).await {
            Ok(zone) => Ok(zone),
            Err(by_id) => zones.zone_by_node_name(name).await.map_err(|by_name| {
                ProviderError::unknown(format!(
                    "failed to get zone from cloud provider: Zone: Error fetching by providerID: {by_id} \
                     Error fetching by NodeName: {by_name}"
                ))
            }),
        }
    }
}

#[async_trait]
impl SingleInstances for LegacyInstances {
    async fn exists(&self, node: &Node) -> Result<bool, ProviderError> {
        match self.provider_id(node).await {
            Ok(id) => self.instances.instance_exists_by_provider_id(&id).await,
            Err(error) if error.is_instance_not_found() => Ok(false),
            Err(error) => Err(error),
        }
    }

    async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError> {
        let answer = match self.provider_id(node).await {
            Ok(id) => self.instances.instance_shutdown_by_provider_id(&id).await,
            Err(error) if error.is_instance_not_found() => Ok(false),
            Err(error) => Err(error),
        };
        match answer {
            Err(error) if error.is_not_implemented() => Ok(false),
            answer => answer,
        }
    }

    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let provider_id = match self.provider_id(node).await {
            Ok(id) => id,
            Err(error) if error.is_not_implemented() => {
                tracing::warn!(node = %node.name, "the provider gives no instance IDs: the node gets no provider ID");
                String::new()
            }
            Err(error) => return Err(error),
        };
        let node_addresses = self.addresses_of(&provider_id, &node.name).await?;
        let instance_type = self.type_of(&provider_id, &node.name).await?;
        let zone = self.zone_of(&provider_id, &node.name).await?;
        Ok(Some(InstanceMetadata {
            provider_id,
            instance_type,
            node_addresses,
            zone: zone.failure_domain,
            region: zone.region,
            ..InstanceMetadata::default()
        }))
    }

    async fn addresses(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let provider_id = match self.provider_id(node).await {
            Ok(id) => id,
            Err(error) if error.is_not_implemented() => String::new(),
            Err(error) => return Err(error),
        };
        let node_addresses = self.addresses_of(&provider_id, &node.name).await?;
        Ok(Some(InstanceMetadata { node_addresses, ..InstanceMetadata::default() }))
    }

    fn provider_id_required(&self) -> bool {
        false
    }
}

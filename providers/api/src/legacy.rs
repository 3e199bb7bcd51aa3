//! The older pair of interfaces, `Instances` and `Zones`, and their adapter.

use async_trait::async_trait;
use std::sync::Arc;

use crate::address::NodeAddress;
use crate::error::ProviderError;
use crate::instance::InstanceMetadata;
use crate::node::Node;
use crate::one_by_one::SingleInstances;

/// The older interface for instances. Used only if the provider has no [`crate::InstancesV2`], through
/// [`LegacyInstances`].
#[async_trait]
pub trait Instances: Send + Sync {
    /// Addresses of the instance with this node name.
    async fn node_addresses(&self, node_name: &str) -> Result<Vec<NodeAddress>, ProviderError>;
    /// Addresses by provider ID; called first, also with an empty ID.
    async fn node_addresses_by_provider_id(&self, provider_id: &str) -> Result<Vec<NodeAddress>, ProviderError>;
    /// The instance ID without scheme. [`ProviderError::InstanceNotFound`] for a missing instance, never for a stopped
    /// one; [`ProviderError::NotImplemented`] initializes the node without provider ID.
    async fn instance_id(&self, node_name: &str) -> Result<String, ProviderError>;
    /// Instance type by node name.
    async fn instance_type(&self, node_name: &str) -> Result<String, ProviderError>;
    /// Instance type by provider ID; called first.
    async fn instance_type_by_provider_id(&self, provider_id: &str) -> Result<String, ProviderError>;
    /// Whether the instance exists. `false` deletes a node that is not Ready; must be true for stopped instances.
    async fn instance_exists_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError>;
    /// Whether the instance is stopped; [`ProviderError::NotImplemented`] means "no".
    async fn instance_shutdown_by_provider_id(&self, provider_id: &str) -> Result<bool, ProviderError>;
}

/// The deprecated interface for zones. Used only together with [`Instances`].
#[async_trait]
pub trait Zones: Send + Sync {
    /// The zone of this process. Never called by the core.
    async fn zone(&self) -> Result<ZoneInfo, ProviderError>;
    /// Zone by provider ID; called first.
    async fn zone_by_provider_id(&self, provider_id: &str) -> Result<ZoneInfo, ProviderError>;
    /// Zone by node name.
    async fn zone_by_node_name(&self, node_name: &str) -> Result<ZoneInfo, ProviderError>;
}

/// A zone and its region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ZoneInfo {
    /// The zone; empty if unknown.
    pub failure_domain: String,
    /// The region; empty if unknown.
    pub region: String,
}

/// The provider ID `<provider>://<instance ID>` of a node, from the older interface. `NotImplemented` and
/// `InstanceNotFound` are returned unchanged.
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

/// Adapts [`Instances`] and [`Zones`] to [`SingleInstances`]: by provider ID first, then by name after an error. Wrap
/// it in [`crate::OneByOne`].
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

    /// The addresses only. Like upstream (`controllers/node/node_controller.go`, `getInstanceNodeAddresses`), it does
    /// not look up an instance ID: a node without provider ID costs one or two calls per period instead of three, and
    /// is found by name even while `InstanceID` fails.
    async fn addresses(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let node_addresses = self.addresses_of(node.provider_id_or_empty(), &node.name).await?;
        Ok(Some(InstanceMetadata { node_addresses, ..InstanceMetadata::default() }))
    }

    fn provider_id_required(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use crate::address::AddressType;

    type Script<T> = Result<T, ProviderError>;

    /// Returns fixed answers and records the calls.
    struct Cloud {
        calls: Mutex<Vec<String>>,
        id: Script<String>,
        addresses_by_id: Script<Vec<NodeAddress>>,
        addresses_by_name: Script<Vec<NodeAddress>>,
        type_by_id: Script<String>,
        type_by_name: Script<String>,
        exists: Script<bool>,
        shutdown: Script<bool>,
        zone_by_id: Script<ZoneInfo>,
        zone_by_name: Script<ZoneInfo>,
    }

    impl Default for Cloud {
        fn default() -> Self {
            let zone = |name: &str| ZoneInfo { failure_domain: name.into(), region: "r".into() };
            Self {
                calls: Mutex::default(),
                id: Ok("i-1".into()),
                addresses_by_id: Ok(vec![NodeAddress::new(AddressType::InternalIp, "10.0.0.1")]),
                addresses_by_name: Ok(vec![NodeAddress::new(AddressType::InternalIp, "10.0.0.2")]),
                type_by_id: Ok("type-by-id".into()),
                type_by_name: Ok("type-by-name".into()),
                exists: Ok(true),
                shutdown: Ok(false),
                zone_by_id: Ok(zone("zone-by-id")),
                zone_by_name: Ok(zone("zone-by-name")),
            }
        }
    }

    impl Cloud {
        fn say<T: Clone>(&self, call: &str, argument: &str, answer: &Script<T>) -> Script<T> {
            self.calls.lock().unwrap().push(format!("{call}({argument})"));
            answer.clone()
        }

        fn calls(&self) -> Vec<String> {
            std::mem::take(&mut *self.calls.lock().unwrap())
        }
    }

    #[async_trait]
    impl Instances for Cloud {
        async fn node_addresses(&self, name: &str) -> Script<Vec<NodeAddress>> {
            self.say("addresses by name", name, &self.addresses_by_name)
        }
        async fn node_addresses_by_provider_id(&self, id: &str) -> Script<Vec<NodeAddress>> {
            self.say("addresses", id, &self.addresses_by_id)
        }
        async fn instance_id(&self, name: &str) -> Script<String> {
            self.say("id", name, &self.id)
        }
        async fn instance_type(&self, name: &str) -> Script<String> {
            self.say("type by name", name, &self.type_by_name)
        }
        async fn instance_type_by_provider_id(&self, id: &str) -> Script<String> {
            self.say("type", id, &self.type_by_id)
        }
        async fn instance_exists_by_provider_id(&self, id: &str) -> Script<bool> {
            self.say("exists", id, &self.exists)
        }
        async fn instance_shutdown_by_provider_id(&self, id: &str) -> Script<bool> {
            self.say("shutdown", id, &self.shutdown)
        }
    }

    #[async_trait]
    impl Zones for Cloud {
        async fn zone(&self) -> Script<ZoneInfo> {
            Err(ProviderError::NotImplemented)
        }
        async fn zone_by_provider_id(&self, id: &str) -> Script<ZoneInfo> {
            self.say("zone", id, &self.zone_by_id)
        }
        async fn zone_by_node_name(&self, name: &str) -> Script<ZoneInfo> {
            self.say("zone by name", name, &self.zone_by_name)
        }
    }

    fn adapter(cloud: Cloud) -> (Arc<Cloud>, LegacyInstances) {
        let cloud = Arc::new(cloud);
        (cloud.clone(), LegacyInstances::new("fake", cloud.clone(), Some(cloud)))
    }

    fn node(provider_id: Option<&str>) -> Node {
        Node { name: "n".into(), provider_id: provider_id.map(Into::into), ..Node::default() }
    }

    fn fails<T>(text: &str) -> Script<T> {
        Err(ProviderError::unknown(text))
    }

    #[tokio::test]
    async fn a_node_gets_provider_id_addresses_type_and_zone() {
        let (cloud, legacy) = adapter(Cloud::default());
        let metadata = legacy.metadata(&node(None)).await.unwrap().unwrap();
        assert_eq!(metadata.provider_id, "fake://i-1");
        assert_eq!(metadata.instance_type, "type-by-id");
        assert_eq!((&*metadata.zone, &*metadata.region), ("zone-by-id", "r"));
        assert_eq!(cloud.calls(), ["id(n)", "addresses(fake://i-1)", "type(fake://i-1)", "zone(fake://i-1)"]);
        assert!(!legacy.provider_id_required());
    }

    #[tokio::test]
    async fn a_provider_id_of_the_node_is_taken_over_unasked() {
        let (cloud, legacy) = adapter(Cloud::default());
        let metadata = legacy.metadata(&node(Some("fake:///z/i-7"))).await.unwrap().unwrap();
        assert_eq!(metadata.provider_id, "fake:///z/i-7");
        assert_eq!(cloud.calls()[0], "addresses(fake:///z/i-7)");
    }

    #[tokio::test]
    async fn an_instance_id_with_a_leading_slash_gives_three() {
        let cloud = Cloud { id: Ok("/zone/i-1".into()), ..Cloud::default() };
        assert_eq!(instance_provider_id("fake", Some(&cloud), "n").await.unwrap(), "fake:///zone/i-1");
    }

    #[tokio::test]
    async fn any_other_error_of_the_instance_id_keeps_the_taint() {
        for (error, text) in [
            (ProviderError::unknown("quota"), "failed to get instance ID from cloud provider: quota"),
            (ProviderError::InstanceNotFound, "instance not found"),
        ] {
            let (cloud, legacy) = adapter(Cloud { id: Err(error), ..Cloud::default() });
            assert_eq!(legacy.metadata(&node(None)).await.unwrap_err().to_string(), text);
            assert_eq!(cloud.calls(), ["id(n)"]);
        }
        let none = instance_provider_id("fake", None, "n").await.unwrap_err();
        assert_eq!(none.to_string(), "failed to get instances from cloud provider");
    }

    #[tokio::test]
    async fn two_failed_look_ups_name_both_errors() {
        let error = |cloud: Cloud| async {
            let (_, legacy) = adapter(cloud);
            legacy.metadata(&node(Some("fake://i-1"))).await.unwrap_err().to_string()
        };
        assert_eq!(
            error(Cloud { addresses_by_id: fails("a"), addresses_by_name: fails("b"), ..Cloud::default() }).await,
            "error fetching node by provider ID: a, and error by node name: b"
        );
        assert_eq!(
            error(Cloud { type_by_id: fails("a"), type_by_name: fails("b"), ..Cloud::default() }).await,
            "InstanceType: Error fetching by providerID: a Error fetching by NodeName: b"
        );
        assert_eq!(
            error(Cloud { zone_by_id: fails("a"), zone_by_name: fails("b"), ..Cloud::default() }).await,
            "failed to get zone from cloud provider: Zone: Error fetching by providerID: a Error fetching by NodeName: b"
        );
    }

    #[tokio::test]
    async fn without_zones_no_zone_is_set() {
        let cloud = Arc::new(Cloud::default());
        let legacy = LegacyInstances::new("fake", cloud, None);
        let metadata = legacy.metadata(&node(None)).await.unwrap().unwrap();
        assert_eq!((&*metadata.zone, &*metadata.region), ("", ""));
    }

    #[tokio::test]
    async fn the_periodic_refresh_asks_for_addresses_and_nothing_else() {
        let (cloud, legacy) = adapter(Cloud { id: fails("down"), addresses_by_id: fails("no"), ..Cloud::default() });
        let answer = legacy.addresses(&node(None)).await.unwrap().unwrap();
        assert_eq!(&*answer.node_addresses[0].address, "10.0.0.2");
        assert_eq!(cloud.calls(), ["addresses()", "addresses by name(n)"]);
        let (cloud, legacy) = adapter(Cloud::default());
        legacy.addresses(&node(Some("fake://i-1"))).await.unwrap();
        assert_eq!(cloud.calls(), ["addresses(fake://i-1)"]);
    }

    #[tokio::test]
    async fn an_existence_error_is_not_a_no() {
        let (_, legacy) = adapter(Cloud { id: fails("down"), ..Cloud::default() });
        assert!(legacy.exists(&node(None)).await.is_err());
        // Only the lookup of the ID may return "not found".
        let (_, legacy) = adapter(Cloud { exists: Err(ProviderError::InstanceNotFound), ..Cloud::default() });
        assert!(legacy.exists(&node(Some("fake://i-1"))).await.is_err());
        let (_, legacy) = adapter(Cloud { id: Err(ProviderError::NotImplemented), ..Cloud::default() });
        assert!(legacy.exists(&node(None)).await.is_err());
    }

    #[tokio::test]
    async fn unimplemented_shutdown_means_running() {
        let (_, legacy) = adapter(Cloud { shutdown: Err(ProviderError::NotImplemented.wrap("x")), ..Cloud::default() });
        assert!(!legacy.shutdown(&node(Some("fake://i-1"))).await.unwrap());
        let (_, legacy) = adapter(Cloud { shutdown: fails("down"), ..Cloud::default() });
        assert!(legacy.shutdown(&node(Some("fake://i-1"))).await.is_err());
        let (_, legacy) = adapter(Cloud { shutdown: Ok(true), ..Cloud::default() });
        assert!(legacy.shutdown(&node(Some("fake://i-1"))).await.unwrap());
    }
}

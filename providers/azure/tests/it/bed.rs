//! A simulated Azure with a resource group, a network and machines, and the provider as a process creates it.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use ccm_cloudsim::azure::{Azure, ClusterSeed, MachineSeed, Options, SetSeed};
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    AddressType, CloudConfig, CloudProvider, Node, NodeAddress, NodeRef, ProviderError, ProviderFactory as _,
};
use ccm_provider_azure::Factory;
use ccm_provider_contract::TestCluster;
use serde_json::Value;

/// The value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";
/// The value of `--cluster-cidr`.
pub(crate) const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";
pub(crate) const GROUP: &str = "/subscriptions/sub/resourceGroups/rg/providers";

pub(crate) struct Bed {
    pub(crate) cloud: Azure,
    pub(crate) cluster: Arc<TestCluster>,
    pub(crate) environment: BTreeMap<String, String>,
}

impl Bed {
    pub(crate) fn start(options: Options) -> Self {
        Self::with(options, &ClusterSeed::default())
    }

    /// With a network of two families.
    pub(crate) fn dual(options: Options) -> Self {
        Self::with(options, &ClusterSeed { range_v6: "fd00:240::/64", ..ClusterSeed::default() })
    }

    fn with(options: Options, seed: &ClusterSeed<'_>) -> Self {
        let cloud = Azure::start(options).unwrap();
        cloud.world(|world| world.cluster(seed));
        Self { cloud, cluster: Arc::default(), environment: BTreeMap::new() }
    }

    /// The configuration without a login.
    pub(crate) fn place(&self) -> String {
        format!(
            "cloud: AzureCloud\nresourceManagerEndpoint: {}\ntenantId: tenant\nsubscriptionId: sub\nresourceGroup: rg\n\
             location: eastus\nvnetName: vnet\nsubnetName: subnet\nsecurityGroupName: nsg\nrouteTableName: rt\n",
            self.cloud.root()
        )
    }

    /// The configuration, with more keys.
    pub(crate) fn config(&self, more: &str) -> String {
        format!("{}aadClientId: client\naadClientSecret: secret\n{more}", self.place())
    }

    pub(crate) fn factory(&self) -> Factory {
        Factory::with_environment(self.environment.clone())
    }

    pub(crate) async fn build(&self, config: String) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        self.build_with(config, &flags()).await
    }

    pub(crate) async fn build_with(
        &self,
        config: String,
        flags: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let config = CloudConfig { path: "azure.yaml".into(), text: config };
        self.factory().build(Some(config), flags).await
    }

    /// The provider of a process that leads.
    pub(crate) async fn process(&self, more: &str) -> Arc<dyn CloudProvider> {
        let provider = self.build(self.config(more)).await.unwrap();
        provider.initialize(self.cluster.context(CLUSTER)).await.unwrap();
        provider
    }

    /// A uniform scale set in zone 1.
    pub(crate) fn uniform(&self, name: &str, instances: usize) -> String {
        let seed = SetSeed { name, instances, zones: &["1"], ..SetSeed::default() };
        self.cloud.world(|world| world.scale_set(&seed))
    }

    /// A single machine in zone 2.
    pub(crate) fn machine(&self, name: &str) -> String {
        self.cloud.world(|world| world.machine(&MachineSeed { name, zone: "2", ..MachineSeed::default() }))
    }

    /// The private address of a machine.
    pub(crate) fn address(&self, name: &str) -> String {
        let interface = self.cloud.object(&format!("{GROUP}/Microsoft.Network/networkInterfaces/{name}-nic"));
        let address = interface.pointer("/properties/ipConfigurations/0/properties/privateIPAddress");
        address.and_then(Value::as_str).unwrap().to_owned()
    }

    /// The actions of the calls since a mark, without those of the login.
    pub(crate) fn calls(&self, mark: u64) -> Vec<String> {
        self.cloud.ledger(|ledger| {
            let all = ledger.since(mark).filter(|entry| ["network", "compute"].contains(&&*entry.service));
            all.map(|entry| entry.action.clone()).collect()
        })
    }

    /// Asserts that every request was one that the API knows.
    pub(crate) fn is_clean(&self) {
        assert_eq!(self.cloud.violations(), Vec::<String>::new());
    }
}

/// Fields that do not show what a caller has written.
const IGNORED: [&str; 6] =
    ["etag", "resourceGuid", "disableBgpRoutePropagation", "latestModelApplied", "modelDefinitionApplied", "alias"];

/// All objects of these types, a line each, without what depends on the order of events.
pub(crate) fn contents(cloud: &Azure, kinds: &[&str]) -> Vec<String> {
    let objects = kinds.iter().flat_map(|kind| cloud.objects(kind));
    objects.map(|object| stable(object).to_string()).collect()
}

/// The object without what each write changes, without what is empty, and without the values of public addresses: Azure
/// chooses them.
pub(crate) fn stable(mut object: Value) -> Value {
    match &mut object {
        Value::Object(fields) => {
            fields.retain(|key, _| !IGNORED.contains(&&**key));
            fields.values_mut().for_each(|value| *value = stable(value.take()));
            fields.retain(|_, value| !value.is_null() && value.as_array().is_none_or(|items| !items.is_empty()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = stable(value.take())),
        Value::String(text) if text.parse().is_ok_and(is_public) => "a public address".clone_into(text),
        _ => {}
    }
    object
}

fn is_public(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => !ip.is_private(),
        IpAddr::V6(ip) => !ip.is_unique_local(),
    }
}

/// Lets time pass.
pub(crate) async fn pass(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(std::time::Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// The provider's flags with their defaults, and the program's flags that the provider reads.
pub(crate) fn flags() -> FlagValues {
    ccm_provider_contract::flags(&Factory::default(), &[("cluster-cidr", CLUSTER_CIDR)])
}

pub(crate) fn node(name: &str, provider_id: &str) -> NodeRef {
    let provider_id = (!provider_id.is_empty()).then(|| provider_id.into());
    Node { name: name.into(), provider_id, ..Node::default() }.into()
}

/// A node with an internal address.
pub(crate) fn node_at(name: &str, address: &str) -> Node {
    let addresses = [NodeAddress::new(AddressType::InternalIp, address)].into();
    Node { name: name.into(), addresses, ..Node::default() }
}

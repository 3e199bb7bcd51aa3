//! A simulated Compute Engine with a project, a network and instances, and the provider as a process creates it: from a
//! gce.conf and a metadata server, over HTTP.

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_cloudsim::gce::seed::{Cluster, ClusterSeed, InstanceSeed};
use ccm_cloudsim::gce::{BALANCING, Gce, Metadata, Options};
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    AddressType, CloudConfig, CloudProvider, Node, NodeAddress, NodeRef, ProviderError, ProviderFactory as _,
};
use ccm_provider_contract::TestCluster;
use ccm_provider_gce::Factory;
use serde_json::{Value, json};

/// The value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";
/// The value of `--cluster-cidr`.
const CLUSTER_CIDR: &str = "10.244.0.0/16,fd00:10:244::/48";
pub(crate) const PROJECT: &str = "p";
pub(crate) const ZONE: &str = "us-central1-b";
/// The zones of the region.
pub(crate) const ZONES: [&str; 4] = ["us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f"];

pub(crate) struct Bed {
    pub(crate) cloud: Gce,
    pub(crate) subnetwork: String,
    pub(crate) metadata: Metadata,
    /// A line of the configuration, or empty.
    pub(crate) node_tags: &'static str,
}

impl Bed {
    /// A project with the network `default`, a subnetwork, and the instance on which the provider runs.
    pub(crate) fn start(options: Options) -> Self {
        Self::of(options, &ClusterSeed { zones: &[ZONE], nodes: 0, ..ClusterSeed::default() })
    }

    /// The same with another network.
    pub(crate) fn of(options: Options, seed: &ClusterSeed<'_>) -> Self {
        let cloud = Gce::start(options).unwrap();
        let (subnetwork, own) = cloud.world(|world| {
            let Cluster { subnetwork, .. } = world.cluster(seed);
            let own = InstanceSeed {
                project: PROJECT,
                zone: ZONE,
                name: "control",
                subnetwork: &subnetwork,
                ..InstanceSeed::default()
            };
            let own = world.instance(&own).unwrap();
            (subnetwork, own)
        });
        let metadata = cloud.metadata(&own, 0).unwrap();
        Self { cloud, subnetwork, metadata, node_tags: "node-tags = k8s-node" }
    }

    /// The configuration, with more keys of `[global]`.
    pub(crate) fn config(&self, more: &str) -> String {
        format!("[global]\napi-endpoint = {}\n{}\n{more}\n", self.cloud.url(), self.node_tags)
    }

    pub(crate) fn environment(&self) -> BTreeMap<String, String> {
        let resource_manager = "CLOUDSDK_API_ENDPOINT_OVERRIDES_CLOUDRESOURCEMANAGER".to_owned();
        BTreeMap::from([("GCE_METADATA_HOST".to_owned(), self.metadata.host()), (resource_manager, self.cloud.root())])
    }

    pub(crate) fn factory(&self) -> Factory {
        Factory::with_environment(self.environment())
    }

    /// Creates an instance in a zone, and returns its path.
    pub(crate) fn instance_in(&self, zone: &str, name: &str, fields: Value) -> String {
        let subnetwork = &self.subnetwork;
        let seed = InstanceSeed {
            project: PROJECT,
            zone,
            name,
            subnetwork,
            tags: &["k8s-node"],
            fields,
            ..InstanceSeed::default()
        };
        self.cloud.world(|world| world.instance(&seed)).unwrap()
    }

    /// Creates an instance, and the node that the core would have created for it.
    pub(crate) fn node(&self, name: &str) -> NodeRef {
        self.instance_in(ZONE, name, json!({}));
        let address = NodeAddress::new(AddressType::InternalIp, self.address(name));
        Node {
            name: name.into(),
            provider_id: Some(format!("gce://{PROJECT}/{ZONE}/{name}").into()),
            addresses: [address].into(),
            ..Node::default()
        }
        .into()
    }

    /// Replaces the network tags of an instance with one tag.
    pub(crate) fn retag(&self, name: &str, tag: &str) {
        let mut instance =
            self.cloud.objects("instances").into_iter().find(|instance| instance["name"] == name).unwrap();
        instance["tags"]["items"] = json!([tag]);
        self.cloud.world(|world| world.put(&format!("projects/{PROJECT}/zones/{ZONE}/instances/{name}"), instance));
    }

    /// The internal address of an instance.
    pub(crate) fn address(&self, name: &str) -> String {
        let instance = self.cloud.objects("instances").into_iter().find(|instance| instance["name"] == name).unwrap();
        instance["networkInterfaces"][0]["networkIP"].as_str().unwrap().to_owned()
    }

    /// The provider of a process.
    pub(crate) async fn build(&self, more: &str, flags: &FlagValues) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        let config = CloudConfig { path: "gce.conf".into(), text: self.config(more) };
        self.factory().build(Some(config), flags).await
    }

    /// The provider of a process that leads.
    pub(crate) async fn process(&self, more: &str, cluster: &Arc<TestCluster>) -> Arc<dyn CloudProvider> {
        let provider = self.build(more, &flags(&[])).await.unwrap();
        provider.initialize(cluster.context(CLUSTER)).await.unwrap();
        provider
    }

    /// The names of the methods that were called after a mark, except those for tokens and metadata.
    pub(crate) fn calls(&self, mark: u64) -> Vec<String> {
        self.cloud.ledger(|ledger| {
            let all = ledger.since(mark).filter(|entry| entry.service == "compute");
            all.map(|entry| entry.action.clone()).collect()
        })
    }
}

/// The provider's flags with their defaults, the given flags (`name`, `name=value`), and the program's flags that the
/// provider reads.
pub(crate) fn flags(given: &[&'static str]) -> FlagValues {
    let given =
        given.iter().map(|flag| flag.split_once('=').unwrap_or((flag, "true"))).chain([("cluster-cidr", CLUSTER_CIDR)]);
    ccm_provider_contract::flags(&Factory::default(), &given.collect::<Vec<_>>())
}

/// Without the addresses that the cloud assigns: which Service gets which one depends on time.
fn unnumbered(text: &str) -> String {
    let mut parts = text.split("34.64.");
    let first = parts.next().unwrap_or_default().to_owned();
    parts
        .fold(first, |text, part| text + "EXTERNAL" + part.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.'))
}

/// The load balancers and routes of the project: sorted, a line per object, without fields that each creation changes.
pub(crate) fn contents(cloud: &Gce) -> Vec<String> {
    const CHANGING: [&str; 4] = ["id", "creationTimestamp", "fingerprint", "labelFingerprint"];
    let mut lines = Vec::new();
    for kind in BALANCING.into_iter().chain(["routes"]) {
        for mut object in cloud.objects(kind) {
            object.as_object_mut().unwrap().retain(|key, _| !CHANGING.contains(&&**key));
            if let Some(instances) = object.get_mut("instances").and_then(Value::as_array_mut) {
                instances.sort_by_key(ToString::to_string);
            }
            lines.push(format!("{kind} {}", unnumbered(&object.to_string())));
        }
    }
    lines.sort();
    lines
}

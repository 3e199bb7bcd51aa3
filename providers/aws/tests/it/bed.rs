//! A simulated AWS with a network and nodes, and the provider as a process would make it: from a cloud config, over HTTP, with
//! the real SDK and credentials from the metadata service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, Network, NetworkSeed};
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options};
use ccm_cloudsim::core::clock::Mode;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    CloudConfig, CloudProvider, LoadBalancer, LoadBalancerExt as _, LoadBalancerStatus, Node, NodeRef, ProviderError,
    ProviderFactory, Service,
};
use serde_json::{Value, json};

use crate::lent::{leading, lend};

/// Value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";

pub(crate) struct Bed {
    pub(crate) aws: Aws,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<NodeRef>,
    config: String,
    // Where credentials come from.
    _metadata: Imds,
}

impl Bed {
    /// Cluster `c1` with three nodes in public subnets of two zones. The clock stands still unless a test steps it.
    pub(crate) fn start(more_config: &str) -> Self {
        // Credentials and signatures are of now.
        let clock = Mode::Stepped { start: jiff::Timestamp::now() };
        let aws = Aws::start(Options { clock, ..Options::default() }).unwrap();
        let zones = NetworkSeed { zones: vec!['a', 'b'], cluster: Some("c1".to_owned()), ..NetworkSeed::default() };
        let network = aws.world(|world| seed::network(world, &zones)).unwrap();
        let own = InstanceSeed { subnets: network.public.clone(), ..InstanceSeed::default() };
        let own = aws.world(|world| seed::instances(world, &own)).unwrap();
        let metadata = aws.imds(&own[0], ImdsOptions::default()).unwrap();
        let mut config = format!(
            "[Global]\nRegion = us-west-2\nVPC = {}\nSubnetID = {}\nKubernetesClusterID = c1\n{more_config}\n",
            network.vpc,
            network.private.first().unwrap()
        );
        let services = ["EC2", "Elastic Load Balancing", "Elastic Load Balancing v2"].map(|name| (name, aws.url()));
        for (service, url) in services.into_iter().chain([("ec2imds", metadata.url())]) {
            config.push_str(&format!(
                "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = us-west-2\nURL = {url}\nSigningRegion = us-west-2\n"
            ));
        }
        let mut bed = Self { aws, network, nodes: Vec::new(), config, _metadata: metadata };
        bed.add_nodes(3);
        bed
    }

    /// Instances of the cluster: their IDs.
    pub(crate) fn add_instances(&self, count: usize) -> Vec<String> {
        let instances = InstanceSeed {
            count,
            subnets: self.network.public.clone(),
            groups: vec![self.network.node_group.clone()],
            tags: BTreeMap::from([("kubernetes.io/cluster/c1".to_owned(), "owned".to_owned())]),
            ..InstanceSeed::default()
        };
        self.aws.world(|world| seed::instances(world, &instances)).unwrap()
    }

    /// Section `[Global]` of the cloud config, and the sections with the addresses of the services.
    pub(crate) fn config(&self) -> (&str, &str) {
        self.config.split_at(self.config.find("[ServiceOverride").unwrap())
    }

    /// Instances with a Node each.
    pub(crate) fn add_nodes(&mut self, count: usize) {
        for id in self.add_instances(count) {
            let number = self.nodes.len();
            let node = Node {
                name: format!("node-{number}").into(),
                provider_id: Some(format!("aws:///us-west-2a/{id}").into()),
                ..Node::default()
            };
            self.nodes.push(Arc::new(node));
        }
    }

    /// The balancers of a new process: it remembers nothing.
    pub(crate) async fn process(&self) -> Arc<dyn LoadBalancer> {
        leading(self).await
    }

    /// The balancers of another cluster in the same network.
    pub(crate) async fn process_of(&self, cluster: &str) -> Arc<dyn LoadBalancer> {
        let id = |cluster: &str| format!("KubernetesClusterID = {cluster}\n");
        let config = self.config.replace(&id("c1"), &id(cluster));
        let provider = self.provider_with(config, &FlagValues::default()).await;
        lend(&self.aws, &*provider).await;
        provider.load_balancer().unwrap()
    }

    /// A new process.
    pub(crate) async fn provider(&self) -> Arc<dyn CloudProvider> {
        self.provider_with(self.config.clone(), &FlagValues::default()).await
    }

    /// A new process with flags of the command line.
    pub(crate) async fn provider_with_flags(&self, given: &[(&'static str, &str)]) -> Arc<dyn CloudProvider> {
        let mut flags = FlagValues::default();
        for flag in ccm_provider_aws::Factory.flags() {
            let default = Some(flag.default.to_owned()).filter(|default| !default.is_empty());
            flags.insert(flag.name, default.into_iter().collect(), false);
        }
        for (name, value) in given {
            flags.insert(name, vec![(*value).to_owned()], true);
        }
        self.provider_with(self.config.clone(), &flags).await
    }

    async fn provider_with(&self, text: String, flags: &FlagValues) -> Arc<dyn CloudProvider> {
        let config = CloudConfig { path: "cloud.conf".into(), text };
        ccm_provider_aws::Factory.build(Some(config), flags).await.unwrap()
    }

    /// Ensures until it succeeds.
    pub(crate) async fn ensure(&self, process: &dyn LoadBalancer, service: &Service) -> LoadBalancerStatus {
        for _ in 0..5 {
            match process.ensure(CLUSTER, service, &self.nodes).await {
                Ok(status) => return status.expect("a status"),
                Err(error) => self.wait(&error),
            }
        }
        panic!("five attempts were not enough");
    }

    /// Deletes until it succeeds, as the service controller does: while the cloud lets go of interfaces, time passes.
    pub(crate) async fn delete(&self, process: &dyn LoadBalancer, service: &Service) {
        for _ in 0..20 {
            match process.ensure_deleted(CLUSTER, service).await {
                Ok(()) => return,
                Err(error) => self.wait(&error),
            }
        }
        panic!("twenty attempts were not enough");
    }

    fn wait(&self, error: &ProviderError) {
        let Some(after) = error.retry_after() else { panic!("{error}: {error:?}") };
        self.aws.clock().step(after.max(Duration::from_secs(5)));
    }

    /// Names of the writes since a mark, in order.
    pub(crate) fn writes(&self, mark: u64) -> Vec<String> {
        self.aws.ledger(|ledger| ledger.mutating(mark).map(|entry| entry.action.clone()).collect())
    }

    /// Nothing that was sent or answered was off the vendor's models.
    pub(crate) fn check(&self) {
        assert_eq!(self.aws.violations(), Vec::<String>::new());
    }
}

/// A Service of type LoadBalancer, with what the test adds to `metadata.annotations` and `spec`.
#[allow(clippy::needless_pass_by_value)] // literals at all callers
pub(crate) fn service(name: &str, annotations: Value, ports: &[(i32, i32)], spec: Value) -> Service {
    let port = |(port, node_port): &(i32, i32)| json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"});
    // One UID for each name.
    let uid = format!(
        "{:0>8}-aaaa-bbbb-cccc-0123456789ab",
        name.bytes().map(|byte| format!("{byte:02x}")).collect::<String>()
    );
    let mut json = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": uid, "annotations": annotations},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster",
            "ports": ports.iter().map(port).collect::<Vec<Value>>(),
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        json["spec"][key] = value.clone();
    }
    serde_json::from_value(json).unwrap()
}

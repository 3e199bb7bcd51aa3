//! A simulated AWS with a network and nodes, and the provider as in production: from a cloud config, over HTTP,
//! with the real SDK and credentials from the metadata service.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_cloudsim::aws::ec2::model::{Peer, Rule, SecurityGroup};
use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, Network, NetworkSeed};
use ccm_cloudsim::aws::elbv2::TargetGroup;
use ccm_cloudsim::aws::imds::{Imds, ImdsOptions};
use ccm_cloudsim::aws::{Aws, Options, World};
use ccm_cloudsim::core::clock::Mode;
use ccm_cloudsim::core::faults::Fault;
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    CloudConfig, CloudProvider, LoadBalancer, LoadBalancerExt as _, LoadBalancerStatus, Node, NodeRef, ProviderError,
    ProviderFactory, Service, ServiceAction,
};
use ccm_provider_contract::TestCluster;
use serde_json::{Value, json};

use crate::leader::{leading, lend};

/// Value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";
pub(crate) const PREFIX: &str = "service.beta.kubernetes.io/aws-load-balancer-";
/// A certificate that exists.
pub(crate) const CERTIFICATE: &str = "arn:aws:acm:us-west-2:123456789012:certificate/one";
/// A group of the user, if it exists.
pub(crate) const USER_GROUP: &str = "sg-00000000000000abc";

pub(crate) struct Bed {
    pub(crate) aws: Aws,
    pub(crate) network: Network,
    pub(crate) nodes: Vec<NodeRef>,
    config: String,
    // The source of the credentials.
    _metadata: Imds,
}

impl Bed {
    /// Cluster `c1` with three nodes in public subnets of two zones. The clock stands still unless a test steps it.
    pub(crate) fn start(more_config: &str) -> Self {
        // Credentials and signatures have the current time.
        let clock = Mode::Stepped { start: jiff::Timestamp::now() };
        let aws = Aws::start(Options { clock, ..Options::default() }).unwrap();
        let zones = NetworkSeed { zones: vec!['a', 'b'], cluster: Some("c1".to_owned()), ..NetworkSeed::default() };
        let network = aws.world(|world| seed::network(world, &zones)).unwrap();
        let own = InstanceSeed { subnets: network.public.clone(), ..InstanceSeed::default() };
        let own = aws.world(|world| seed::instances(world, &own)).unwrap();
        let metadata = aws.imds(&own[0], ImdsOptions::default()).unwrap();
        let config = config(&aws, &metadata, &network.vpc, network.private.first().unwrap(), more_config);
        let mut bed = Self { aws, network, nodes: Vec::new(), config, _metadata: metadata };
        bed.aws.world(|world| world.elb.add_certificate(CERTIFICATE));
        bed.add_nodes(3);
        bed
    }

    /// Adds instances of the cluster and returns their IDs.
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

    /// Section `[Global]` of the cloud config, and the sections with the endpoints of the services.
    pub(crate) fn config(&self) -> (&str, &str) {
        self.config.split_at(self.config.find("[ServiceOverride").unwrap())
    }

    /// Adds instances with one Node each.
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

    /// Terminates an instance, by the provider ID of its node or its own ID.
    pub(crate) fn terminate(&self, id: &str) {
        let form = format!("InstanceId.1={}", id.rsplit('/').next().unwrap());
        self.aws.by_hand(ccm_cloudsim::aws::Service::Ec2, "TerminateInstances", &form).unwrap();
    }

    /// The balancers of a new process without caches.
    pub(crate) async fn process(&self) -> Arc<dyn LoadBalancer> {
        leading(self).await
    }

    /// The balancers of another cluster in the same network.
    pub(crate) async fn process_of(&self, cluster: &str) -> Arc<dyn LoadBalancer> {
        let id = |cluster: &str| format!("KubernetesClusterID = {cluster}\n");
        let config = self.config.replace(&id("c1"), &id(cluster));
        let provider = provider(config, &FlagValues::default()).await;
        lend(&self.aws, &*provider).await;
        provider.load_balancer().unwrap()
    }

    /// The balancers of a new process that cannot connect to these services, and the cluster with its events.
    pub(crate) async fn without(&self, services: &[&str]) -> (Arc<dyn LoadBalancer>, Arc<TestCluster>) {
        let mut config = self.config.clone();
        for service in services {
            let at = |url: &str| format!("Service = {service}\nRegion = us-west-2\nURL = {url}\n");
            config = config.replace(&at(&self.aws.url()), &at("http://127.0.0.1:1"));
        }
        let provider = provider(config, &FlagValues::default()).await;
        let cluster = lend(&self.aws, &*provider).await;
        (provider.load_balancer().unwrap(), cluster)
    }

    /// A new process.
    pub(crate) async fn provider(&self) -> Arc<dyn CloudProvider> {
        provider(self.config.clone(), &FlagValues::default()).await
    }

    /// A new process with command-line flags.
    pub(crate) async fn provider_with_flags(&self, given: &[(&'static str, &str)]) -> Arc<dyn CloudProvider> {
        let flags = ccm_provider_contract::flags(&ccm_provider_aws::Factory, given);
        provider(self.config.clone(), &flags).await
    }

    /// Ensures until it succeeds.
    pub(crate) async fn ensure(&self, process: &dyn LoadBalancer, service: &Service) -> LoadBalancerStatus {
        self.work(process, service, ServiceAction::Ensure).await.unwrap().expect("a status")
    }

    /// Deletes until it succeeds.
    pub(crate) async fn delete(&self, process: &dyn LoadBalancer, service: &Service) {
        self.work(process, service, ServiceAction::Delete).await.unwrap();
    }

    /// Repeats the work until the answer is final, as the service controller does; steps the clock while it waits.
    pub(crate) async fn work(
        &self,
        process: &dyn LoadBalancer,
        service: &Service,
        action: ServiceAction,
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let nodes: &[NodeRef] = if action == ServiceAction::Delete { &[] } else { &self.nodes };
        for _ in 0..20 {
            match process.reconcile_one(CLUSTER, service, nodes, action).await.result {
                Err(error) if error.retry_after().is_some() => {
                    self.aws.clock().step(error.retry_after().unwrap_or_default().max(Duration::from_secs(5)));
                }
                answer => return answer,
            }
        }
        panic!("twenty attempts were not enough");
    }

    /// Lets time pass for the cloud and for the process.
    pub(crate) async fn later(&self, time: Duration) {
        self.aws.clock().step(time);
        tokio::time::pause();
        tokio::time::advance(time).await;
        tokio::time::resume();
    }

    /// Asserts that further syncs and a restart write nothing, and that a steady sync makes at most `most` reads.
    pub(crate) async fn stays(&self, process: &dyn LoadBalancer, service: &Service, most: usize) {
        let mark = self.aws.mark();
        self.ensure(process, service).await;
        process.update(CLUSTER, service, &self.nodes).await.unwrap();
        // In the second sync of a process, the caches are filled.
        self.ensure(process, service).await;
        let steady = self.aws.mark();
        self.ensure(process, service).await;
        let reads = self.aws.ledger(|ledger| ledger.since(steady).count());
        assert!(reads <= most, "{reads} reads: {:?}", self.aws.ledger(|ledger| ledger.counts(steady)));
        self.ensure(&*self.process().await, service).await;
        assert_eq!(self.writes(mark), Vec::<String>::new());
    }

    /// Targets of all target groups and instances of all classic balancers.
    pub(crate) fn hosts(&self) -> Vec<usize> {
        self.aws.world(|world| {
            let staying =
                |group: &TargetGroup| group.targets.values().filter(|one| one.draining_until.is_none()).count();
            let network = world.elbv2.groups.values().map(staying);
            network.chain(world.elb.balancers.values().map(|balancer| balancer.instances.len())).collect()
        })
    }

    /// Another group of the same network, tagged for the cluster or not.
    pub(crate) fn add_group(&self, id: &str, tag: Option<&str>, ingress: Vec<Rule>) {
        self.aws.world(|world| {
            let like = world.ec2.groups[&self.network.node_group].clone();
            let tags = tag.map(|value| ("kubernetes.io/cluster/c1".to_owned(), value.to_owned())).into_iter().collect();
            let group = SecurityGroup { name: id.to_owned(), description: id.to_owned(), tags, ingress, ..like };
            world.ec2.groups.insert(id.to_owned(), group);
        });
    }

    /// Gives the instance of a node these security groups.
    pub(crate) fn set_groups(&self, node: usize, groups: &[&str]) {
        let id = self.nodes[node].provider_id_or_empty().rsplit('/').next().unwrap().to_owned();
        self.aws.world(|world| {
            let interface = world.ec2.instances[&id].interfaces[0].clone();
            world.ec2.interfaces.get_mut(&interface).unwrap().groups = groups.iter().map(ToString::to_string).collect();
        });
    }

    /// Names of the writes since a position in the ledger, in order.
    pub(crate) fn writes(&self, mark: u64) -> Vec<String> {
        self.aws.writes(mark)
    }

    /// Checks that every request and answer conformed to the vendor's models.
    pub(crate) fn check(&self) {
        assert_eq!(self.aws.violations(), Vec::<String>::new());
    }
}

/// The answer to an operation that AWS, or what stands in for it, does not know.
pub(crate) fn unknown() -> Fault {
    let message = "Could not find operation for version".to_owned();
    Fault::Code { status: 400, code: "InvalidAction".to_owned(), message }
}

/// The configuration of a process of the cluster `c1`, with additional keys of `[Global]`.
pub(crate) fn config(aws: &Aws, metadata: &Imds, vpc: &str, subnet: &str, more: &str) -> String {
    let mut config =
        format!("[Global]\nRegion = us-west-2\nVPC = {vpc}\nSubnetID = {subnet}\nKubernetesClusterID = c1\n{more}\n",);
    let services = ["EC2", "Elastic Load Balancing", "Elastic Load Balancing v2"].map(|name| (name, aws.url()));
    for (service, url) in services.into_iter().chain([("ec2imds", metadata.url())]) {
        config.push_str(&format!(
            "[ServiceOverride \"{service}\"]\nService = {service}\nRegion = us-west-2\nURL = {url}\nSigningRegion = us-west-2\n"
        ));
    }
    config
}

/// The provider of a new process with this configuration.
pub(crate) async fn provider(text: String, flags: &FlagValues) -> Arc<dyn CloudProvider> {
    let config = CloudConfig { path: "cloud.conf".into(), text };
    ccm_provider_aws::Factory.build(Some(config), flags).await.unwrap()
}

/// A Service of type LoadBalancer with these annotations, without their prefix, and with additions to `spec`.
#[allow(clippy::needless_pass_by_value)] // literals at all callers
pub(crate) fn service(name: &str, annotations: &[(&str, &str)], ports: &[(i32, i32)], spec: Value) -> Service {
    let annotations: BTreeMap<String, &str> =
        annotations.iter().map(|(key, value)| (format!("{PREFIX}{key}"), *value)).collect();
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

pub(crate) fn shape_of(bed: &Bed) -> Vec<String> {
    bed.aws.world(|world| shape(world))
}

/// Everything that users see, without the IDs, which depend on the history. Policies that no listener and no backend
/// uses are not counted: AWS keeps them with the balancer.
pub(crate) fn shape(world: &World) -> Vec<String> {
    let name = |id: &str| world.ec2.groups.get(id).map_or_else(|| id.to_owned(), |group| group.name.clone());
    let mut shape = Vec::new();
    for one in world.elb.balancers.values() {
        let mut groups: Vec<String> = one.groups.iter().map(|id| name(id)).collect();
        groups.sort();
        let (mut instances, subnets) = (one.instances.clone(), one.subnets.keys());
        instances.sort();
        shape.push(format!(
            "balancer {} {} {subnets:?} {groups:?} {:?} {:?} {instances:?} {:?} {:?} {:?}",
            one.name, one.internal, one.listeners, one.backends, one.health_check, one.attributes, one.tags
        ));
    }
    let elb = &world.elbv2;
    for one in elb.balancers.values() {
        let groups = one.groups.len();
        // A feature that was switched off equals one that was never on.
        let attributes =
            format!("{:?}", one.attributes).replace("\"load_balancing.cross_zone.enabled\": \"false\"", "");
        shape.push(format!("balancer {} {} {attributes} {groups} {:?}", one.name, one.internal, one.tags));
    }
    for one in elb.listeners.values() {
        let group = &elb.groups[&one.group].name;
        let (certificate, policy) = (&one.certificate, &one.policy);
        shape.push(format!("listener {} {} {certificate:?} {policy:?} {group} {:?}", one.port, one.protocol, one.tags));
    }
    for one in elb.groups.values() {
        let staying = one.targets.values().filter(|target| target.draining_until.is_none());
        let targets: Vec<_> = staying.map(|target| &target.id).collect();
        let (settings, attributes) = (&one.settings, &one.attributes);
        shape.push(format!("target group {} {settings:?} {attributes:?} {targets:?} {:?}", one.name, one.tags));
    }
    for one in world.ec2.groups.values() {
        let rule = |rule: &Rule| {
            let from = if let Peer::Group(id) = &rule.peer { name(id) } else { format!("{:?}", rule.peer) };
            format!("{} {:?} {:?} {from} {:?}", rule.protocol, rule.from, rule.to, rule.description)
        };
        let mut rules: Vec<String> = one.ingress.iter().map(rule).collect();
        rules.sort();
        shape.push(format!("security group {} {:?} {:?} {rules:?}", one.name, one.description, one.tags));
    }
    shape.sort();
    shape
}

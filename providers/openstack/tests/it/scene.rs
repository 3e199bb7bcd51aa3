//! A cluster in a cloud: the provider as a process creates it, nodes, Services, and their cloud resources.

use std::collections::BTreeMap;
use std::ops::{Deref, Sub};
use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::openstack::{OpenStack, Options};
use ccm_provider::flag::FlagValues;
use ccm_provider::{
    AddressType, CloudConfig, CloudProvider, LeaderToken, LoadBalancer, LoadBalancerStatus, Node, NodeAddress, NodeRef,
    ProviderError, ProviderFactory as _, Service, ServiceAction, ServiceAnswer,
};
use ccm_provider_contract::{TestCluster, controller};
use serde_json::{Value, json};

use ccm_test_openstack::{Cloud, Real, Simulated};
pub(crate) use ccm_test_openstack::{FIPS, GROUPS, LBS, id, texts};

/// Value of `--cluster-name`.
pub(crate) const CLUSTER: &str = "kubernetes";
pub(crate) const PREFIX: &str = "loadbalancer.openstack.org/";
pub(crate) const INTERNAL: &str = "service.beta.kubernetes.io/openstack-internal-load-balancer";
/// The annotation that records a matching balancer.
pub(crate) const APPLIED: &str = "cloud-controller-manager/openstack-applied";

pub(crate) async fn simulated(case: impl AsyncFnOnce(&mut Scene)) {
    simulated_with(Options::default(), case).await;
}

pub(crate) async fn simulated_with(options: Options, case: impl AsyncFnOnce(&mut Scene)) {
    run(Box::new(Simulated::start(options)), case).await;
}

pub(crate) async fn real(case: impl AsyncFnOnce(&mut Scene)) {
    if let Some(cloud) = Real::start().await {
        run(Box::new(cloud), case).await;
    }
}

async fn run(cloud: Box<dyn Cloud>, case: impl AsyncFnOnce(&mut Scene)) {
    let mut scene = Scene::new(cloud).await;
    case(&mut scene).await;
    scene.cloud.end().await;
}

/// A running provider.
pub(crate) struct Process {
    provider: Arc<dyn CloudProvider>,
    pub(crate) balancers: Arc<dyn LoadBalancer>,
    pub(crate) cluster: Arc<TestCluster>,
    name: String,
}

impl Process {
    pub(crate) async fn start(conf: String, cluster_name: &str) -> Result<Self, ProviderError> {
        Self::limited(conf, cluster_name, i64::MAX).await
    }

    /// A process that leads until it has sent `writes` writes.
    async fn limited(conf: String, cluster_name: &str, writes: i64) -> Result<Self, ProviderError> {
        let config = CloudConfig { path: "/nonexistent/cloud.conf".into(), text: conf };
        let provider = ccm_provider_openstack::Factory.build(Some(config), &FlagValues::default()).await?;
        let cluster = Arc::new(TestCluster::default());
        let mut context = cluster.context(cluster_name);
        context.leader = Arc::new(Lease { provider: Arc::downgrade(&provider), writes });
        provider.initialize(context).await?;
        let balancers = provider.load_balancer().expect("load balancers");
        Ok(Self { provider, balancers, cluster, name: cluster_name.to_owned() })
    }

    /// The calls so far, by operation.
    pub(crate) fn calls(&self) -> Calls {
        Calls::by(&*self.provider)
    }

    /// One call for a Service.
    pub(crate) async fn ask(&self, service: &mut Service, nodes: &[NodeRef], action: ServiceAction) -> Answer {
        let hosts = self.hosts(service, nodes);
        let answer = controller::ask(&*self.balancers, &self.name, service, &hosts, action).await;
        published(service, answer)
    }

    /// Repeats the call until the answer is final.
    pub(crate) async fn work(&self, service: &mut Service, nodes: &[NodeRef], action: ServiceAction) -> Answer {
        let hosts = self.hosts(service, nodes);
        let answer = controller::work(&*self.balancers, &self.name, service, &hosts, action).await;
        published(service, answer)
    }

    /// The nodes of a cluster that a controller chooses for a Service.
    fn hosts(&self, service: &Service, nodes: &[NodeRef]) -> Vec<NodeRef> {
        self.cluster.set_nodes(nodes.to_vec());
        let is_host =
            |node: &&NodeRef| node.left_out_of_balancers().is_none() && self.balancers.backend(service, node).is_some();
        nodes.iter().filter(is_host).cloned().collect()
    }
}

/// The answer, whose status goes to the Service, also beside an error.
fn published(service: &mut Service, answer: ServiceAnswer) -> Answer {
    let ServiceAnswer { result, status, .. } = answer;
    if let Some(status) = result.as_ref().ok().and_then(Option::as_ref).or(status.as_ref()) {
        service.status.load_balancer = status.clone();
    }
    result
}

/// The lease of a process that ends after `writes` writes.
struct Lease {
    provider: Weak<dyn CloudProvider>,
    writes: i64,
}

#[async_trait]
impl LeaderToken for Lease {
    fn is_leading(&self) -> bool {
        self.writes == i64::MAX
            || self.provider.upgrade().is_some_and(|provider| Calls::by(&*provider).written() < self.writes)
    }
    async fn lost(&self) {
        std::future::pending::<()>().await;
    }
}

pub(crate) type Answer = Result<Option<LoadBalancerStatus>, ProviderError>;

/// The number of calls by operation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Calls {
    sent: BTreeMap<String, i64>,
    failed: BTreeMap<String, i64>,
}

impl Calls {
    fn by(provider: &dyn CloudProvider) -> Self {
        let families = provider.metrics().unwrap().gather();
        let counters = |name: &str| {
            let family = families.iter().find(|family| family.name() == name);
            let counters = family.into_iter().flat_map(ccm_provider::metric::MetricFamily::get_metric);
            #[allow(clippy::cast_possible_truncation)]
            counters
                .map(|metric| (metric.get_label()[0].value().to_owned(), metric.get_counter().get_value() as i64))
                .collect()
        };
        Self { sent: counters("openstack_api_requests_total"), failed: counters("openstack_api_request_errors_total") }
    }

    pub(crate) fn total(&self) -> i64 {
        self.sent.iter().filter(|(name, _)| *name != "token_create").map(|(_, count)| count).sum()
    }

    /// The calls that changed something: `loadbalancer_create 1, …`. Calls that Octavia rejected because an earlier
    /// change was in progress are left out: their number depends on timing.
    pub(crate) fn writes(&self) -> String {
        let is_write = |name: &str| ["_create", "_update", "_delete"].iter().any(|verb| name.ends_with(verb));
        let writes = self.sent.iter().filter(|(name, _)| is_write(name) && *name != "token_create");
        let done = writes.map(|(name, count)| (name, count - self.failed.get(name).unwrap_or(&0)));
        done.filter(|(_, count)| *count > 0)
            .map(|(name, count)| format!("{name} {count}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    pub(crate) fn written(&self) -> i64 {
        self.writes().split(' ').filter_map(|word| word.trim_end_matches(',').parse::<i64>().ok()).sum()
    }

    pub(crate) fn of(&self, name: &str) -> i64 {
        self.sent.get(name).copied().unwrap_or_default()
    }
}

impl Sub for Calls {
    type Output = Calls;

    fn sub(self, before: Calls) -> Calls {
        let since = |now: BTreeMap<String, i64>, before: &BTreeMap<String, i64>| {
            let left = now.into_iter().map(|(name, count)| (count - before.get(&name).unwrap_or(&0), name));
            left.filter(|(count, _)| *count != 0).map(|(count, name)| (name, count)).collect()
        };
        Calls { sent: since(self.sent, &before.sent), failed: since(self.failed, &before.failed) }
    }
}

/// The environment of a test.
pub(crate) struct Scene {
    pub(crate) cloud: Box<dyn Cloud>,
    pub(crate) process: Process,
    pub(crate) nodes: Vec<NodeRef>,
    conf: String,
}

impl Scene {
    async fn new(cloud: Box<dyn Cloud>) -> Self {
        let process = Process::start(cloud.login(), CLUSTER).await.unwrap();
        let mut scene = Self { cloud, process, nodes: Vec::new(), conf: String::new() };
        for name in ["node-1", "node-2", "node-3"] {
            let node = scene.node(name).await;
            scene.nodes.push(node);
        }
        scene
    }

    /// A scene on its own simulation.
    pub(crate) async fn simulated() -> Self {
        Self::new(Box::new(Simulated::start(Options::default()))).await
    }

    pub(crate) fn simulation(&self) -> &OpenStack {
        self.cloud.simulation().expect("a simulation")
    }

    /// A node on its own server.
    pub(crate) async fn node(&self, name: &str) -> NodeRef {
        let server = uid(name);
        let port = self.cloud.port(&server).await;
        let address = port["fixed_ips"][0]["ip_address"].as_str().unwrap();
        let addresses = [NodeAddress::new(AddressType::InternalIp, address)].into();
        let provider_id = Some(format!("openstack:///{server}").into());
        Arc::new(Node { name: name.into(), provider_id, addresses, ..Node::default() })
    }

    /// A new process with the same configuration.
    pub(crate) async fn restart(&mut self) {
        self.process = Process::start(self.cloud.login() + &self.conf, CLUSTER).await.unwrap();
    }

    /// A new process with `more` after `[Global]`.
    pub(crate) async fn configure(&mut self, more: &str) {
        more.clone_into(&mut self.conf);
        self.restart().await;
    }

    /// A process of another cluster in the same project.
    pub(crate) async fn process_of(&self, cluster: &str) -> Process {
        Process::start(self.cloud.login() + &self.conf, cluster).await.unwrap()
    }

    /// Lets a new process work on a Service until it has sent `writes` writes: then it ends at once, even in mid-call,
    /// and the Service stays unchanged. Returns whether the work was done before that.
    pub(crate) async fn work_until(&self, service: &mut Service, action: ServiceAction, writes: i64) -> bool {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
        let (conf, nodes, mut worked) = (self.cloud.login() + &self.conf, self.nodes.clone(), service.clone());
        let life = runtime.spawn(async move {
            let process = Process::limited(conf, CLUSTER, writes).await.unwrap();
            let over = async {
                while process.calls().written() < writes {
                    tokio::time::sleep(Duration::from_millis(2)).await;
                }
            };
            let answer = tokio::select! {
                biased;
                () = over => return None,
                answer = process.work(&mut worked, &nodes, action) => answer,
            };
            (process.calls().written() < writes).then(|| (answer.unwrap(), worked))
        });
        let done = life.await.unwrap();
        runtime.shutdown_background();
        done.map(|(_, worked)| *service = worked).is_some()
    }

    pub(crate) async fn try_ensure(&self, service: &mut Service) -> Answer {
        self.process.work(service, &self.nodes, ServiceAction::Ensure).await
    }

    /// Ensures the Service and returns the published address or host name.
    pub(crate) async fn ensure(&self, service: &mut Service) -> String {
        let status = self.try_ensure(service).await.unwrap().expect("a status");
        let ingress = &status.ingress[0];
        if ingress.hostname.is_empty() { ingress.ip.clone() } else { ingress.hostname.clone() }
    }

    pub(crate) async fn refused(&self, service: &mut Service) -> String {
        self.try_ensure(service).await.expect_err("an error").to_string()
    }

    pub(crate) async fn update_hosts(&self, service: &mut Service) {
        self.process.work(service, &self.nodes, ServiceAction::UpdateHosts).await.unwrap();
    }

    pub(crate) async fn delete(&self, service: &mut Service) {
        self.process.work(service, &self.nodes, ServiceAction::Delete).await.unwrap();
    }

    /// The calls that `work` makes.
    pub(crate) async fn counted<T>(&self, work: impl Future<Output = T>) -> (Calls, T) {
        let before = self.process.calls();
        let answer = work.await;
        (self.process.calls() - before, answer)
    }

    /// The writes of an ensure.
    pub(crate) async fn writes_to_ensure(&self, service: &mut Service) -> String {
        self.counted(self.ensure(service)).await.0.writes()
    }

    /// Asserts that another ensure writes nothing, with and without the recorded state.
    pub(crate) async fn is_steady(&self, service: &mut Service) {
        assert_eq!(self.writes_to_ensure(service).await, "");
        forget(service);
        assert_eq!(self.writes_to_ensure(service).await, "");
    }

    pub(crate) fn events(&self) -> Vec<String> {
        self.process.cluster.take_events()
    }
}

impl Deref for Scene {
    type Target = dyn Cloud;
    fn deref(&self) -> &Self::Target {
        &*self.cloud
    }
}

/// The UUID of a name.
pub(crate) fn uid(name: &str) -> String {
    let digits: String = name.bytes().rev().map(|byte| format!("{byte:02x}")).collect();
    format!("{:0<8.8}-aaaa-4bbb-8ccc-{:0<12.12}", digits, digits.get(8..).unwrap_or_default())
}

/// A Service `shop/<name>` of type LoadBalancer with these ports and node ports; `spec` replaces fields.
#[allow(clippy::needless_pass_by_value)] // literals at all callers
pub(crate) fn service(name: &str, ports: &[(i32, i32)], spec: Value) -> Service {
    let port = |(port, node_port): &(i32, i32)| json!({"name": format!("p{port}"), "port": port, "nodePort": node_port, "protocol": "TCP"});
    let mut json = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": uid(name), "annotations": {}},
        "spec": {
            "type": "LoadBalancer", "sessionAffinity": "None", "externalTrafficPolicy": "Cluster", "ipFamilies": ["IPv4"],
            "ports": ports.iter().map(port).collect::<Vec<Value>>(),
        },
    });
    for (key, value) in spec.as_object().into_iter().flatten() {
        json["spec"][key] = value.clone();
    }
    serde_json::from_value(json).unwrap()
}

/// `shop/web` with the port 80.
pub(crate) fn web() -> Service {
    service("web", &[(80, 30080)], json!({}))
}

/// Sets an annotation; `key` may omit the usual prefix.
pub(crate) fn set(service: &mut Service, key: &str, value: &str) {
    let key = if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") };
    service.metadata.annotations.insert(key, value.to_owned());
}

pub(crate) fn unset(service: &mut Service, key: &str) {
    let key = if key.contains('/') { key.to_owned() } else { format!("{PREFIX}{key}") };
    service.metadata.annotations.remove(&key);
}

pub(crate) fn annotation<'s>(service: &'s Service, key: &str) -> Option<&'s str> {
    service.metadata.annotations.get(&format!("{PREFIX}{key}")).map(String::as_str)
}

/// Removes the record that the balancer matched: something was changed by hand.
pub(crate) fn forget(service: &mut Service) {
    service.metadata.annotations.remove(APPLIED);
}

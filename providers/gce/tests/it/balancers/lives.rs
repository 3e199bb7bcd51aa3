//! Random lives of Services in the simulated Compute Engine: see [`ccm_provider_contract::lives`].

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::{LoadBalancer, LoadBalancerExt as _, NodeRef, ProviderError, ProviderFactory as _, Service};
use ccm_provider_contract::lives::LivingCloud;
use ccm_provider_contract::{Simulation, TestCluster};
use rand::Rng;
use rand::rngs::StdRng;
use regex::Regex;
use serde_json::{Map, Value, json};

use super::scene::{internal, service, set};
use crate::bed::{Bed, CLUSTER, PROJECT, ZONE, contents, flags};

/// The simulated Compute Engine, shared with another cluster.
struct Living {
    bed: Bed,
    config: String,
    flags: Vec<&'static str>,
    nodes: Vec<NodeRef>,
    cluster: Arc<TestCluster>,
}

/// A cluster with this ID.
fn cluster(bed: &Bed, id: &str) -> Arc<TestCluster> {
    let clock = bed.cloud.clock().clone();
    let cluster = Arc::new(TestCluster::following(move || clock.now().into()));
    cluster.set_config_map(&bed.factory().config_maps()[0], [("uid".to_owned(), id.to_owned())].into());
    cluster
}

impl Living {
    /// Creates balancers of another cluster in the same project.
    async fn neighbors(&self) {
        let theirs = cluster(&self.bed, "theirs");
        let provider = self.bed.build(&self.config, &flags(&[])).await.unwrap();
        provider.initialize(theirs.context(CLUSTER)).await.unwrap();
        let balancers = provider.load_balancer().unwrap();
        let node = self.bed.node("theirs");
        for service in [service("theirs", json!({})), internal(service("theirs-too", json!({})))] {
            while let Err(error) = balancers.ensure(CLUSTER, &service, std::slice::from_ref(&node)).await {
                assert!(self.wait(&error).await, "{error}");
            }
        }
    }
}

#[async_trait]
impl LivingCloud for Living {
    const CLUSTER: &'static str = CLUSTER;

    async fn start(seed: u64, rng: &mut StdRng) -> Self {
        let lines = ["regional = true", "node-instance-prefix = node"];
        let config: Vec<&str> = lines.into_iter().filter(|_| rng.random_bool(0.4)).collect();
        let denying = ["enable-l4-deny-firewall", "enable-l4-deny-firewall-rollback-cleanup"];
        let mut given: Vec<&'static str> = if rng.random_bool(0.3) { denying.to_vec() } else { Vec::new() };
        if rng.random_bool(0.3) {
            given.push("enable-l4-lb-annotations");
        }
        let operation = Duration::from_millis([0, 3, 20][rng.random_range(0..3)]);
        let bed = Bed::start(Options { seed, operation, ..Options::default() });
        let subnetwork = bed.subnetwork.rsplit('/').next().unwrap();
        let config = format!("subnetwork-name = {subnetwork}\n{}", config.join("\n"));
        let ours = cluster(&bed, "cid");
        let living = Self { bed, config, flags: given, nodes: Vec::new(), cluster: ours };
        living.neighbors().await;
        living
    }

    fn description(&self) -> String {
        format!("config {:?}, flags {:?}", self.config, self.flags)
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        // A new process that gets no answer tries again, as its Deployment does.
        loop {
            if let Ok(provider) = self.bed.build(&self.config, &flags(&self.flags)).await {
                provider.initialize(self.cluster.context(CLUSTER)).await.unwrap();
                return provider.load_balancer().unwrap();
            }
        }
    }

    fn simulation(&self) -> &dyn Simulation {
        &self.bed.cloud
    }

    fn nodes(&mut self) -> &mut Vec<NodeRef> {
        &mut self.nodes
    }

    fn add_node(&mut self, number: usize) {
        self.nodes.push(self.bed.node(&format!("node-{number}")));
    }

    fn remove_instance(&mut self, node: &NodeRef) {
        let path = format!("projects/{PROJECT}/zones/{ZONE}/instances/{}", node.name);
        self.bed.cloud.world(|world| world.delete_instance(&path));
    }

    /// Scheme and policy depend on the name only. After a change of them, leftovers are found by finalizers or by other
    /// users of shared objects, and no core writes finalizers here.
    fn service(&mut self, rng: &mut StdRng, name: &str, _: bool) -> Service {
        let letter = name.as_bytes()[0];
        let is_internal = matches!(letter, b'c' | b'd');
        let mut may = |chance: f64| rng.random_bool(chance);
        let mut spec = Map::new();
        if matches!(letter, b'b' | b'd') {
            spec.insert("externalTrafficPolicy".to_owned(), json!("Local"));
            spec.insert("healthCheckNodePort".to_owned(), json!(if may(0.5) { 32000 } else { 32001 }));
        }
        if may(0.3) {
            spec.insert("sessionAffinity".to_owned(), json!("ClientIP"));
        }
        if may(0.5) {
            let range = ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/0"][usize::from(may(0.5)) + usize::from(may(0.5))];
            spec.insert("loadBalancerSourceRanges".to_owned(), json!([range]));
        }
        let protocol = if may(0.3) { "UDP" } else { "TCP" };
        let all: [&[i32]; 4] = [&[80], &[80, 443], &[443, 8443, 8444], &[1, 2, 3, 4, 5, 6]];
        let ports = all[usize::from(may(0.5)) + 2 * usize::from(may(0.3))];
        let ports: Vec<Value> = ports.iter().map(|port| json!({"port": port, "protocol": protocol})).collect();
        spec.insert("ports".to_owned(), json!(ports));
        let mut made = service(name, Value::Object(spec));
        if is_internal {
            made = internal(made);
            if may(0.4) {
                set(&mut made, "networking.gke.io/internal-load-balancer-allow-global-access", "true");
            }
        } else {
            // Without the annotation a balancer keeps its current tier.
            set(&mut made, "cloud.google.com/network-tier", if may(0.2) { "Standard" } else { "Premium" });
        }
        made
    }

    fn disrupt(&mut self, rng: &mut StdRng) -> String {
        let nth = rng.random_range(0..8);
        let (status, message) = (500, "outage".to_owned());
        let fault = match rng.random_range(0..3) {
            0 => Fault::Code { status: 412, code: "conditionNotMet".to_owned(), message },
            1 => Fault::Operation { status, code: "INTERNAL_ERROR".to_owned(), message },
            _ => {
                self.bed.cloud.expire_tokens();
                return "all tokens expire".to_owned();
            }
        };
        let text = format!("write {nth}: {fault:?}");
        self.bed.cloud.fault(Rule::writes_from(1, fault).window(nth, 1));
        text
    }

    fn change_by_hand(&mut self, rng: &mut StdRng, balancers: &[String]) -> String {
        let Some(name) = balancers.get(rng.random_range(0..balancers.len().max(1))) else {
            return "nothing".to_owned();
        };
        let path = match rng.random_range(0..3) {
            0 => "global/firewalls/k8s-cid-node-hc".to_owned(),
            1 => "global/firewalls/k8s-cid-node-http-hc".to_owned(),
            _ => format!("regions/us-central1/forwardingRules/{name}"),
        };
        self.bed.cloud.world(|world| world.remove(&format!("projects/{PROJECT}/{path}")));
        format!("{path} is deleted")
    }

    async fn wait(&self, error: &ProviderError) -> bool {
        if error.is_in_progress() {
            let after = error.retry_after().unwrap_or_default();
            tokio::time::sleep(after.clamp(Duration::from_millis(1), Duration::from_millis(20))).await;
        }
        error.is_in_progress()
    }

    fn contents(&self) -> Vec<String> {
        contents(&self.bed.cloud)
    }

    /// By the ID of the other cluster and by its Services, which descriptions contain.
    fn is_theirs(line: &str) -> bool {
        line.contains("theirs")
    }

    /// Without the addresses that the cloud assigned, and without a field that equals its absence.
    fn plain(line: String) -> String {
        static ADDRESS: LazyLock<Regex> =
            LazyLock::new(|| Regex::new(r"\b(35\.206\.[0-9]+|10\.0\.[0-9]+)\.[1-9][0-9]*\b").unwrap());
        ADDRESS.replace_all(&line, "ADDRESS").replace("\"allowGlobalAccess\":false,", "")
    }
}

ccm_provider_contract::lives!(Living, "CCM_GCE_SEEDS", 1..=8, 100);

//! Random lives of Services in the simulated Compute Engine: see [`lives`].

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::{LoadBalancer, LoadBalancerExt as _, NodeRef, ProviderError, ProviderFactory as _, Service};
use ccm_provider_contract::TestCluster;
use ccm_provider_contract::lives::{self, LivingCloud};
use rand::Rng;
use rand::rngs::StdRng;
use serde_json::{Map, Value, json};

use super::scene::{internal, service, set};
use crate::bed::{Bed, CLUSTER, PROJECT, ZONE, contents, flags};

/// Run without being asked.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=8;

/// The simulated Compute Engine with neighbours.
struct Living {
    bed: Bed,
    config: String,
    flags: Vec<&'static str>,
    nodes: Vec<NodeRef>,
    made: usize,
    is_calm: bool,
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
    /// Another cluster has balancers in the same project.
    async fn neighbours(&self) {
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

    fn add_node(&mut self) {
        self.made += 1;
        self.nodes.push(self.bed.node(&format!("node-{}", self.made)));
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
        let mut living = Self { bed, config, flags: given, nodes: Vec::new(), made: 0, is_calm: false, cluster: ours };
        (0..3).for_each(|_| living.add_node());
        living.neighbours().await;
        living
    }

    fn description(&self) -> String {
        format!("config {:?}, flags {:?}", self.config, self.flags)
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        // A new one that finds no answer tries again, as its Deployment does.
        loop {
            if let Ok(provider) = self.bed.build(&self.config, &flags(&self.flags)).await {
                provider.initialize(self.cluster.context(CLUSTER)).await.unwrap();
                return provider.load_balancer().unwrap();
            }
        }
    }

    fn nodes(&self) -> &[NodeRef] {
        &self.nodes
    }

    fn change_nodes(&mut self, rng: &mut StdRng) {
        if self.nodes.len() < 3 || rng.random_bool(0.5) {
            return self.add_node();
        }
        let gone = self.nodes.remove(0);
        if rng.random_bool(0.5) {
            let path = format!("projects/{PROJECT}/zones/{ZONE}/instances/{}", gone.name);
            self.bed.cloud.world(|world| world.delete_instance(&path));
        }
    }

    /// Scheme and policy are those of the name: what a change of these leaves behind for a while, finalizers remember, and who
    /// shares it. There is no core here to write the former.
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
            // Without it a balancer keeps the tier that it has.
            set(&mut made, "cloud.google.com/network-tier", if may(0.2) { "Standard" } else { "Premium" });
        }
        made
    }

    fn kind(&self, _: &Service) -> bool {
        false
    }

    fn rough(&mut self, _: &mut StdRng) -> bool {
        false
    }

    fn trouble(&mut self, rng: &mut StdRng) -> Option<String> {
        self.bed.cloud.faults(Faults::clear);
        let skip = rng.random_range(0..16);
        let code = |status, code: &str| Fault::Code { status, code: code.to_owned(), message: "trouble".to_owned() };
        let nth = skip / 2;
        let lost = if rng.random_bool(0.5) { Fault::ResetAfter } else { Fault::Truncate };
        let write = |fault: Fault| Rule { mutating: Some(true), ..Rule::every(fault).window(nth, 1) };
        let failed = || {
            let message = "trouble".to_owned();
            Fault::Operation { status: 500, code: "INTERNAL_ERROR".to_owned(), message }
        };
        let rule = match rng.random_range(0..18) {
            0..=4 => return None,
            5 => Rule::every(Fault::Throttle).window(skip, 1),
            6 => write(code(412, "conditionNotMet")),
            7 | 8 => write(lost),
            9 => Rule { mutating: Some(false), ..Rule::every(lost).window(skip, 1) },
            10 | 11 => Rule::writes_from(nth + 1, code(400, "invalid")),
            12 => Rule::every(Fault::Deny).window(skip, 2),
            13 => Rule::every(Fault::Html { status: 404 }).window(skip, 2),
            14 => Rule::every(Fault::UnknownElements),
            15 => {
                self.bed.cloud.expire_tokens();
                return Some("all tokens expire".to_owned());
            }
            16 => write(failed()),
            _ => Rule::every(code(500, "backendError")).window(skip, 3),
        };
        let text = format!("{rule:?}");
        self.bed.cloud.fault(rule);
        Some(text)
    }

    fn end_trouble(&mut self) {
        self.bed.cloud.faults(Faults::clear);
    }

    fn calm(&mut self) {
        self.is_calm = true;
        self.end_trouble();
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

    fn step(&self, time: Duration) {
        self.bed.cloud.clock().step(time);
    }

    fn now(&self) -> jiff::Timestamp {
        self.bed.cloud.clock().now()
    }

    fn mark(&self) -> u64 {
        self.bed.cloud.mark()
    }

    fn writes(&self, mark: u64) -> Vec<String> {
        self.bed.cloud.ledger(|ledger| ledger.mutating(mark).map(|entry| entry.action.clone()).collect())
    }

    /// Without the addresses that the cloud gave out, and without what is the same as nothing.
    fn shape(&self) -> Vec<String> {
        let address = regex::Regex::new(r"\b(35\.206\.[0-9]+|10\.0\.[0-9]+)\.[1-9][0-9]*\b").unwrap();
        let ours = contents(&self.bed.cloud).into_iter().filter(|line| !is_theirs(line));
        let plain = |line: String| address.replace_all(&line, "ADDRESS").replace("\"allowGlobalAccess\":false,", "");
        let mut lines: Vec<String> = ours.map(plain).collect();
        lines.sort();
        lines
    }

    fn foreign(&self) -> Vec<String> {
        contents(&self.bed.cloud).into_iter().filter(|line| is_theirs(line)).collect()
    }
}

/// By the ID of the other cluster and by its Services, which are in descriptions.
fn is_theirs(line: &str) -> bool {
    line.contains("theirs")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn random_lives_reach_the_desired_state_and_leave_nothing() {
    lives::live::<Living>(lives::seeds("CCM_GCE_SEEDS", SEEDS)).await;
}

mod long_lane {
    use super::{Living, lives};

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn random_lives_of_the_day_reach_the_desired_state_and_leave_nothing() {
        lives::live_of_the_day::<Living>("CCM_GCE_SEEDS", 100).await;
    }
}

//! Random lives of Services in the simulated OpenStack: see [`ccm_provider_contract::lives`].

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::{LoadBalancer, LoadBalancerExt as _, NodeRef, ProviderError, Service};
use ccm_provider_contract::lives::LivingCloud;
use ccm_provider_contract::{Simulation, TestCluster};
use rand::Rng;
use rand::rngs::StdRng;
use regex::Regex;
use serde_json::{Map, Value, json};

use crate::bed::{Bed, CLUSTER, contents};
use crate::scene::{INTERNAL, id, service, set};

const LBS: &str = "/load-balancer/v2.0/lbaas";
/// The maximum delay of reads.
const STALE: Duration = Duration::from_secs(2);

/// The simulated OpenStack, with another cluster.
struct Living {
    bed: Bed,
    config: String,
    nodes: Vec<NodeRef>,
    is_calm: bool,
    cluster: Arc<TestCluster>,
}

impl Living {
    /// Adds a balancer of another cluster in the same project.
    async fn neighbors(&self) {
        let balancers = self.process().await;
        let node = self.bed.node("theirs");
        let theirs = service("theirs", &[(80, 31999)], json!({}));
        while let Err(error) = balancers.ensure("theirs", &theirs, std::slice::from_ref(&node)).await {
            assert!(self.wait(&error).await, "{error}");
        }
    }

    /// The IDs of the Services' objects of a kind.
    fn ours(&self, kind: &str) -> Vec<String> {
        let all = self.bed.cloud.resources(kind).into_iter();
        // The rules of the project's default group have no ports.
        let ours = all.filter(|object| !object["port_range_min"].is_null() || kind != "security_group_rule");
        ours.filter(|object| !Self::is_theirs(&object.to_string())).map(|object| id(&object).to_owned()).collect()
    }

    fn by_hand(&self, method: &str, path: &str, body: &Value) {
        self.bed.cloud.by_hand(&self.bed.project, method, path, body).unwrap();
        self.bed.cloud.clock().step(Duration::from_secs(2));
    }
}

#[async_trait]
impl LivingCloud for Living {
    const CLUSTER: &'static str = CLUSTER;
    const AT_ONCE: usize = 24;

    async fn start(seed: u64, rng: &mut StdRng) -> Self {
        let lines = [
            "manage-security-groups = true",
            "create-monitor = true",
            "cascade-delete = false",
            "provider-requires-serial-api-calls = true",
        ];
        let config = lines.into_iter().filter(|_| rng.random_bool(0.4)).collect::<Vec<_>>().join("\n");
        let provisioning = Duration::from_millis([0, 3, 40][rng.random_range(0..3)]);
        let bed = Bed::start(Options { seed, provisioning, ..Options::default() });
        // Without nodes a balancer needs a configured subnet.
        let config = format!("subnet-id = {}\n{config}", bed.subnet);
        let clock = bed.cloud.clock().clone();
        let cluster = Arc::new(TestCluster::following(move || clock.now().into()));
        let living = Self { bed, config, nodes: Vec::new(), is_calm: false, cluster };
        living.neighbors().await;
        living
    }

    fn description(&self) -> String {
        format!("config {:?}", self.config)
    }

    async fn process(&self) -> Arc<dyn LoadBalancer> {
        // Reads have caught up before another process leads.
        self.bed.cloud.clock().step(STALE);
        self.bed.process(&self.config, &self.cluster).await.load_balancer().unwrap()
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
        let server = node.provider_id.as_deref().unwrap().rsplit('/').next().unwrap();
        self.bed.cloud.world(|world| world.delete_server(server));
    }

    fn service(&mut self, rng: &mut StdRng, name: &str, _: bool) -> Service {
        let base = i32::from(name.as_bytes()[0] - b'a') * 10;
        let all = [(80, 30080 + base), (443, 30443 + base), (8443, 30844 + base)];
        let count = rng.random_range(1..=3);
        let first = rng.random_range(0..=3 - count);
        let mut may = |chance: f64| rng.random_bool(chance);
        let mut spec = Map::new();
        if may(0.3) {
            spec.insert("externalTrafficPolicy".to_owned(), json!("Local"));
            spec.insert("healthCheckNodePort".to_owned(), json!(32000 + base));
        }
        if may(0.2) {
            spec.insert("sessionAffinity".to_owned(), json!("ClientIP"));
        }
        if may(0.5) {
            let range = ["10.0.0.0/8", "192.168.0.0/16", "0.0.0.0/0"][usize::from(may(0.5)) + usize::from(may(0.5))];
            spec.insert("loadBalancerSourceRanges".to_owned(), json!([range]));
        }
        let mut made = service(name, &all[first..first + count], Value::Object(spec));
        let header = if may(0.5) { ("x-forwarded-for", "true") } else { ("proxy-protocol", "v2") };
        let settings = [
            (header.0, header.1, 0.3),
            (INTERNAL, "true", 0.3),
            ("enable-health-monitor", "true", 0.3),
            ("health-monitor-delay", "7", 0.3),
            ("connection-limit", "100", 0.2),
            ("timeout-client-data", "60000", 0.2),
            ("lb-method", "LEAST_CONNECTIONS", 0.2),
            ("listener-tags", "blue", 0.2),
            ("load-balancer-tags", "green", 0.2),
        ];
        for (key, value, _) in settings.into_iter().filter(|(_, _, chance)| may(*chance)) {
            set(&mut made, key, value);
        }
        if may(0.2) {
            made.spec.ports[0].protocol = "UDP".to_owned();
            for key in ["x-forwarded-for", "proxy-protocol"] {
                crate::scene::unset(&mut made, key);
            }
        }
        made
    }

    fn rough(&mut self, rng: &mut StdRng) -> bool {
        let is_late = rng.random_bool(0.5);
        self.bed.cloud.change(|options| options.stale_reads = if is_late { STALE } else { Duration::ZERO });
        // A process caches external networks for minutes.
        is_late
    }

    fn disrupt(&mut self, rng: &mut StdRng) -> String {
        match rng.random_range(0..3) {
            0 => {
                let conflict = Fault::Code { status: 409, code: "Conflict".to_owned(), message: "outage".to_owned() };
                let nth = rng.random_range(0..8);
                self.bed.cloud.fault(Rule::writes_from(1, conflict).window(nth, 1));
                format!("write {nth} conflicts")
            }
            1 => {
                self.bed.cloud.expire_tokens();
                "all tokens expire".to_owned()
            }
            _ => {
                self.bed.cloud.fail_provisioning(1);
                "the next change ends in ERROR".to_owned()
            }
        }
    }

    /// An administrator repairs the balancers whose changes failed.
    fn calm(&mut self) {
        self.is_calm = true;
        self.bed.cloud.change(|options| options.stale_reads = Duration::ZERO);
        self.bed.cloud.fail_provisioning(0);
        for kind in ["loadbalancer", "listener", "pool", "member", "healthmonitor"] {
            for object in self.bed.cloud.resources(kind) {
                self.bed.cloud.world(|world| {
                    let row = world.row_mut(kind, id(&object)).unwrap();
                    if row.text("provisioning_status") == "ERROR" {
                        row.set("provisioning_status", "ACTIVE");
                    }
                });
            }
        }
    }

    fn change_by_hand(&mut self, rng: &mut StdRng, _: &[String]) -> String {
        // Octavia shows update times in seconds.
        self.bed.cloud.clock().step(Duration::from_secs(2));
        let (kind, path) = [
            ("listener", "listeners"),
            ("pool", "pools"),
            ("healthmonitor", "healthmonitors"),
            ("floatingip", ""),
            ("security_group_rule", ""),
        ][rng.random_range(0..5)];
        let found = self.ours(kind).into_iter().next();
        let path = if path.is_empty() {
            format!("/network/v2.0/{}s", kind.replace('_', "-"))
        } else {
            format!("{LBS}/{path}")
        };
        let busy = self.bed.cloud.balancers().iter().any(|it| it["provisioning_status"] != "ACTIVE");
        match found.filter(|_| !busy) {
            Some(found) => self.by_hand("DELETE", &format!("{path}/{found}"), &Value::Null),
            None => return "nothing".to_owned(),
        }
        format!("a {kind} is deleted")
    }

    async fn wait(&self, error: &ProviderError) -> bool {
        if error.is_in_progress() {
            let after = error.retry_after().unwrap_or_default();
            if error.to_string().contains("does not show yet") {
                self.bed.cloud.clock().step(after);
            }
            tokio::time::sleep(after.clamp(Duration::from_millis(1), Duration::from_millis(20))).await;
        }
        // A failed read is shared by all requests within a second of real time.
        if self.is_calm && !error.is_in_progress() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        error.is_in_progress()
    }

    fn contents(&self) -> Vec<String> {
        contents(&self.bed.cloud)
    }

    /// By the name of the other cluster and of its Service, and by its node port.
    fn is_theirs(line: &str) -> bool {
        line.contains("theirs") || line.contains("31999")
    }

    /// Removes the numbers in names, since a listener keeps the one that its port had at creation; and the user's tags,
    /// which remain when the annotation is removed.
    fn plain(line: String) -> String {
        static VARYING: LazyLock<Regex> =
            LazyLock::new(|| Regex::new("(listener_|pool_|monitor_)[0-9]+_|\"(blue|green)\",").unwrap());
        VARYING.replace_all(&line, "${1}").into_owned()
    }
}

// The default seeds take about three minutes, most of it waiting.
ccm_provider_contract::lives!(Living, "CCM_OPENSTACK_SEEDS", 1..=8, 150);

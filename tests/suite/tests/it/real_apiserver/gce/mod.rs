//! The whole program with `--cloud-provider=gce`, as a process, with a real API server and a simulated Compute Engine.

mod bad_input;
mod balancers;
mod interruptions;
mod nodes;
mod pod_ranges;
mod pods;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ccm_cloudsim::gce::seed::InstanceSeed;
use ccm_cloudsim::gce::{Gce, Metadata, Options};
use ccm_test_suite::{LONG, Make, Object, Process, Rig, node, service_with, tcp_ports};
use serde_json::{Value, json};

/// Longer than any delay between two calls of a sync.
const QUIET: Duration = Duration::from_millis(1000);
const PROJECT: &str = "p";
const REGION: &str = "us-central1";
const ZONES: [&str; 2] = ["us-central1-b", "us-central1-c"];
const TAG: &str = "k8s-node";
const ARGS: &[&str] = &["--configure-cloud-routes=false", "--node-monitor-period=500ms"];
const INTERNAL: (&str, &str) = ("networking.gke.io/load-balancer-type", "Internal");

/// A cluster in a project with a network and a subnetwork.
struct World {
    rig: Rig,
    gce: Gce,
    /// The metadata server of the program's instance.
    metadata: Metadata,
    subnetwork: String,
}

/// The running program; killed when dropped.
struct Manager {
    process: Process,
    mark: u64,
}

impl World {
    async fn start() -> Option<Self> {
        let rig = Rig::real_alone(ccm_test_bed::Options::default(), "unused", "").await?;
        let gce = Gce::start(Options::default()).unwrap();
        let subnetwork = gce.world(|world| {
            world.project(PROJECT);
            let network = world.network(PROJECT, "default", false);
            world.subnetwork(&network, REGION, "nodes", "10.50.0.0/24", &[("pods", "10.88.0.0/16")])
        });
        let control = InstanceSeed { name: "control", ..Self::seed("control", ZONES[0], &subnetwork) };
        let control = gce.world(|world| world.instance(&control)).unwrap();
        let metadata = gce.metadata(&control, 0).unwrap();
        Some(Self { rig, gce, metadata, subnetwork })
    }

    fn seed<'a>(name: &'a str, zone: &'a str, subnetwork: &'a str) -> InstanceSeed<'a> {
        InstanceSeed { project: PROJECT, zone, name, subnetwork, tags: &[TAG], ..InstanceSeed::default() }
    }

    /// A running instance, in alternating zones.
    fn instance(&self, number: usize) -> String {
        let name = format!("node-{number}");
        let seed = InstanceSeed { alias: Some(("pods", 24)), ..Self::seed(&name, zone(number), &self.subnetwork) };
        self.gce.world(|world| world.instance(&seed)).unwrap()
    }

    /// An instance, and the node that its kubelet would register: its path and name.
    async fn machine(&self, number: usize) -> (String, String) {
        let (path, name) = (self.instance(number), format!("node-{number}"));
        self.rig.create(node(&name).uninitialized().pod_cidr(&format!("10.99.{number}.0/24"))).await;
        (path, name)
    }

    /// Starts the program; `more` is appended to `[global]`.
    fn manager(&self, more: &str, args: &[&str]) -> Manager {
        let config = format!(
            "[global]\napi-endpoint = {}\nnode-tags = {TAG}\nmultizone = true\nsubnetwork-name = nodes\n{more}\n",
            self.gce.url()
        );
        let file = self.rig.cloud.path("gce.conf");
        std::fs::write(&file, config).unwrap();
        let fixed = [
            "--cloud-provider=gce".to_owned(),
            format!("--cloud-config={}", file.display()),
            format!("--kubeconfig={}", self.rig.bed().kubeconfig().display()),
            "--leader-elect=false".to_owned(),
            "--secure-port=0".to_owned(),
            "-v=2".to_owned(),
        ];
        let args: Vec<String> = fixed.into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        let mark = self.gce.mark();
        let log = self.rig.cloud.path(&format!("{mark}.log"));
        let environment = [("GCE_METADATA_HOST", self.metadata.host())];
        let process = Process::start_with(env!("CARGO_BIN_EXE_ccm-under-test"), &args, &environment, &log);
        Manager { process, mark }
    }

    /// The program with [`ARGS`], and this many nodes that it has initialized.
    async fn with_nodes(&self, count: usize) -> Manager {
        for number in 1..=count {
            self.machine(number).await;
        }
        let manager = self.manager("", ARGS);
        for number in 1..=count {
            self.rig.initialized(&format!("node-{number}")).await;
        }
        manager
    }

    /// Waits until the cloud meets a condition.
    async fn until(&self, what: &str, mut is_so: impl FnMut(&Gce) -> bool) {
        self.rig.until(LONG, what, async |_| is_so(&self.gce).then_some(())).await;
    }

    /// Names of the objects of a collection.
    fn names(&self, collection: &str) -> BTreeSet<String> {
        let name = |object: &Value| object["name"].as_str().unwrap().to_owned();
        self.gce.objects(collection).iter().map(name).collect()
    }

    /// The only object of a collection.
    fn only(&self, collection: &str) -> Value {
        let mut objects = self.gce.objects(collection);
        assert_eq!(objects.len(), 1, "{collection}: {objects:#?}");
        objects.remove(0)
    }

    /// The names of the writes since a position in the ledger.
    fn writes(&self, mark: u64) -> Vec<String> {
        self.gce.ledger(|ledger| ledger.mutating(mark).map(|entry| entry.action.clone()).collect())
    }

    /// The number of calls, without the periodic ones.
    fn calls(&self, mark: u64) -> usize {
        let periodic = |action: &str| action.starts_with("instances.") || action == "routes.list";
        self.gce.ledger(|ledger| ledger.since(mark).filter(|call| !periodic(&call.action)).count())
    }

    /// Asserts that another sync of a Service reads, and writes nothing.
    async fn is_steady(&self, service: &str) {
        let mark = self.gce.mark();
        let touched = json!({"metadata": {"annotations": {"touched": mark.to_string()}}});
        self.rig.patch_service(service, touched).await;
        self.until("another look at the balancer", |_| self.calls(mark) > 0).await;
        let (mut calls, mut since) = (0, Instant::now());
        let quiet = |_: &Gce| {
            let now = self.calls(mark);
            if now != calls {
                (calls, since) = (now, Instant::now());
            }
            since.elapsed() >= QUIET
        };
        self.until("the end of the sync", quiet).await;
        assert_eq!(self.writes(mark), [""; 0]);
    }

    /// Asserts that no object of a load balancer remains, and that all calls and responses conform to the API.
    fn end(&self) {
        for collection in ["forwardingRules", "targetPools", "backendServices", "instanceGroups", "addresses"] {
            assert_eq!(self.names(collection), BTreeSet::new(), "{collection}");
        }
        for collection in ["healthChecks", "httpHealthChecks", "firewalls"] {
            assert_eq!(self.names(collection), BTreeSet::new(), "{collection}");
        }
        assert_eq!(self.gce.violations(), [""; 0]);
    }
}

impl Manager {
    /// Stops the program as Kubernetes does.
    async fn stop(self) {
        self.process.stop().await;
    }
}

fn zone(number: usize) -> &'static str {
    ZONES[number % 2]
}

/// A Service with annotations and TCP ports.
fn service(name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Make {
    service_with(name, "", annotations, ports)
}

/// The last part of a link.
fn last(link: &Value) -> &str {
    link.as_str().unwrap_or_default().rsplit('/').next().unwrap_or_default()
}

//! The whole program with `--cloud-provider=openstack`, as a process, with a real API server, a simulated OpenStack and
//! real services.

mod bad_input;
mod balancers;
mod interruptions;
mod nodes;
mod pods;
mod secrets;

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_cloudsim::openstack::{OpenStack, Options};
use ccm_test_openstack::{Cloud, Real, Simulated};
use ccm_test_suite::{LONG, Make, Object, Process, Rig, node, service_with, tcp_ports};
use futures::future::join_all;
use serde_json::{Value, json};

const PREFIX: &str = "loadbalancer.openstack.org/";
const ARGS: &[&str] = &["--configure-cloud-routes=false", "--node-monitor-period=500ms"];

/// A cluster on a cloud.
struct World {
    rig: Rig,
    cloud: Box<dyn Cloud>,
}

/// A node with its own server.
struct Machine {
    name: String,
    server: String,
    address: String,
}

/// The running program; killed when dropped.
struct Manager<'w> {
    world: &'w World,
    process: Process,
    port: u16,
}

async fn simulated(case: impl AsyncFnOnce(&World)) {
    run(Box::new(Simulated::start(Options::default())), case).await;
}

/// Without real services the case is not run, after a message about it.
async fn real(case: impl AsyncFnOnce(&World)) {
    if let Some(cloud) = Real::start().await {
        run(Box::new(cloud), case).await;
    }
}

async fn run(cloud: Box<dyn Cloud>, case: impl AsyncFnOnce(&World)) {
    if let Some(rig) = Rig::real_alone(ccm_test_bed::Options::default(), "unused", "").await {
        let world = World { rig, cloud };
        case(&world).await;
        world.end().await;
    }
}

impl World {
    fn simulation(&self) -> &OpenStack {
        self.cloud.simulation().expect("a simulation")
    }

    /// In the simulation, sets the duration of further changes.
    fn slow(&self, provisioning: Duration) {
        if let Some(simulation) = self.cloud.simulation() {
            simulation.change(|options| options.provisioning = provisioning);
        }
    }

    /// A running server, and the node that its kubelet would register.
    async fn machine(&self, number: usize) -> Machine {
        let name = format!("node-{number}");
        let (server, address) = self.cloud.boot(&name).await;
        self.rig.create(node(&name).uninitialized().pod_cidr(&format!("10.88.{number}.0/24"))).await;
        Machine { name, server, address }
    }

    /// Starts the program; `more` is appended to `[Global]`.
    fn manager(&self, more: &str, args: &[&str]) -> Manager<'_> {
        self.manager_with(&(self.cloud.login() + more), args, &[])
    }

    fn manager_with(&self, config: &str, args: &[&str], environment: &[(&str, String)]) -> Manager<'_> {
        let port = ccm_test_bed::free_port().unwrap();
        let file = self.rig.cloud.path("cloud.conf");
        std::fs::write(&file, config).unwrap();
        let kubeconfig = self.rig.bed().kubeconfig();
        let kubeconfig = |name: &str| format!("--{name}={}", kubeconfig.display());
        let fixed = [
            "--cloud-provider=openstack".to_owned(),
            format!("--cloud-config={}", file.display()),
            kubeconfig("kubeconfig"),
            kubeconfig("authentication-kubeconfig"),
            kubeconfig("authorization-kubeconfig"),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={port}"),
            "-v=2".to_owned(),
        ];
        let args: Vec<String> = fixed.into_iter().chain(args.iter().map(|arg| (*arg).to_owned())).collect();
        let log = self.rig.cloud.path(&format!("{port}.log"));
        let process = Process::start_with(env!("CARGO_BIN_EXE_ccm-under-test"), &args, environment, &log);
        Manager { world: self, process, port }
    }

    /// The program with [`ARGS`], and this many nodes that it has initialized.
    async fn with_nodes(&self, count: usize, more: &str) -> (Manager<'_>, Vec<Machine>) {
        let machines = join_all((1..=count).map(|number| self.machine(number))).await;
        let manager = self.manager(more, ARGS);
        for machine in &machines {
            self.rig.initialized(&machine.name).await;
        }
        (manager, machines)
    }

    /// Waits until the cloud meets a condition.
    async fn until(&self, what: &str, mut is_so: impl AsyncFnMut() -> bool) {
        self.rig.until(LONG, what, async |_| is_so().await.then_some(())).await;
    }

    /// An annotation of a Service, given without the usual prefix.
    async fn annotation(&self, name: &str, key: &str) -> Value {
        self.rig.service(name).await.unwrap()["metadata"]["annotations"][format!("{PREFIX}{key}")].clone()
    }

    /// The node port for a port of a Service.
    async fn node_port(&self, name: &str, port: u16) -> u64 {
        let service = self.rig.service(name).await.unwrap();
        let ports = service["spec"]["ports"].as_array().unwrap();
        ports.iter().find(|item| item["port"] == port).unwrap()["nodePort"].as_u64().unwrap()
    }

    /// Asserts that nothing remains in the cloud, and that no output contains a secret.
    async fn end(self) {
        self.cloud.is_empty().await;
        for file in std::fs::read_dir(self.rig.cloud.path("")).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|end| end == "log") {
                self.shows_no_secret(&path.display().to_string(), &std::fs::read_to_string(&path).unwrap());
            }
        }
        for kind in ["events", "services"] {
            self.shows_no_secret(kind, &self.rig.bed().get(&format!("/api/v1/{kind}")).await.unwrap().1);
        }
        self.cloud.end().await;
    }

    fn shows_no_secret(&self, place: &str, text: &str) {
        for secret in self.cloud.secrets() {
            let found = text.lines().find(|line| line.contains(&secret));
            assert!(found.is_none(), "{secret} is in {place}: {}", found.unwrap());
        }
    }
}

impl Manager<'_> {
    /// The counters of a metric by the value of its only label.
    async fn counters(&self, metric: &str) -> BTreeMap<String, u64> {
        // Not listening yet, or no longer.
        let Ok((status, text)) = self.world.rig.bed().get_from(self.port, "/metrics").await else {
            return BTreeMap::new();
        };
        assert_eq!(status, 200, "{text}");
        let samples = text.lines().filter_map(|line| line.strip_prefix(metric)?.strip_prefix('{'));
        let parts = samples.map(|sample| sample.split('"').collect::<Vec<_>>());
        parts.map(|parts| (parts[1].to_owned(), parts[2].trim_start_matches("} ").parse().unwrap())).collect()
    }

    /// The number of these calls.
    async fn calls(&self, operation: &str) -> u64 {
        self.counters("openstack_api_requests_total").await.get(operation).copied().unwrap_or_default()
    }

    /// The number of writes.
    async fn writes(&self) -> BTreeMap<String, u64> {
        let mut calls = self.counters("openstack_api_requests_total").await;
        let is_write = |name: &str| ["_create", "_update", "_delete"].iter().any(|verb| name.ends_with(verb));
        calls.retain(|name, _| is_write(name) && name != "token_create");
        calls
    }

    /// The number of finished ensures of load balancers.
    async fn ensured(&self) -> u64 {
        let counters = self.counters("cloudprovider_openstack_reconcile_total").await;
        counters.get("loadbalancer_ensure").copied().unwrap_or_default()
    }

    /// Waits until this many ensures have ended.
    async fn until_ensured(&self, count: u64) {
        let what = format!("{count} ensures have ended");
        self.world.rig.until(LONG, &what, async |_| (self.ensured().await >= count).then_some(())).await;
    }

    /// Asserts that another sync of a Service writes nothing.
    async fn is_steady(&self, service: &str) {
        let (ensured, writes) = (self.ensured().await, self.writes().await);
        let touched = json!({"metadata": {"annotations": {"touched": ensured.to_string()}}});
        self.world.rig.patch_service(service, touched).await;
        self.until_ensured(ensured + 1).await;
        assert_eq!(self.writes().await, writes);
    }

    /// Stops the program as Kubernetes does.
    async fn stop(self) {
        self.process.stop().await;
    }
}

/// A Service with annotations (without their prefix) and TCP ports.
fn service(name: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Make {
    service_with(name, PREFIX, annotations, ports)
}

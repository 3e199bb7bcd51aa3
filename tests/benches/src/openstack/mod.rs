//! The benchmarks on the simulated OpenStack: a given binary of the program, with defaults, and a real API server.
//!
//! A read takes 50 ms, a write 500 ms. The cloud runs in this process and the program in a separate one. Goals are
//! printed with the figures but not enforced, since times depend on the machine.

mod balancers;
mod nodes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::openstack::seed::{ServerSeed, SubnetSeed};
use ccm_cloudsim::openstack::{OpenStack, Options};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::Settings;
use crate::cluster::{Cluster, NodeSpec};
use crate::figures::{self, listed, of, row, sum, table};
use crate::process::Manager;

/// The latency of calls.
const READ: Duration = Duration::from_millis(50);
const WRITE: Duration = Duration::from_millis(500);
/// The runs, in order.
pub(crate) const RUNS: [&str; 6] = ["nodes", "ports", "member", "restart", "quiet", "all"];

/// Executes the selected runs.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let program = settings.program("openstack")?;
    let nodes = settings.most_nodes(1000);
    let scene = async || Scene::start(program.clone(), settings.out.join("ccm-openstack.log")).await;
    if settings.wants("nodes") {
        nodes::burst(&scene().await?, nodes).await.context("nodes")?;
    }
    if settings.wants("ports") || settings.wants("member") {
        for busy in &settings.busy {
            balancers::ports(&scene().await?, Duration::from_secs(*busy), settings.wants("member"))
                .await
                .context("ports")?;
        }
    }
    if settings.wants("restart") {
        balancers::restart(&scene().await?, settings.services).await.context("restart")?;
    }
    if settings.wants("quiet") {
        nodes::quiet(&scene().await?, nodes, settings.services, settings.minutes).await.context("quiet")?;
    }
    Ok(())
}

/// A project, a cluster, and the program that manages it.
struct Scene {
    cloud: OpenStack,
    project: String,
    subnet: String,
    cluster: Arc<Cluster>,
    program: PathBuf,
    // The log of the last process.
    log: PathBuf,
}

impl Scene {
    async fn start(program: PathBuf, log: PathBuf) -> anyhow::Result<Self> {
        let latency = Latency { read: READ, write: WRITE, actions: BTreeMap::new() };
        let cloud = OpenStack::start(Options { latency, ledger_entries: 1_000_000, ..Options::default() })?;
        let (project, subnet) = cloud.world(|world| {
            let project = world.project("kube");
            world.user("ccm", "secret", &project, &["member", "load-balancer_member"]);
            world.flavor("f-1", "m1.small");
            let admin = world.project("admin");
            let external = world.network(&admin, "public", json!({"router:external": true}));
            world.subnet(&SubnetSeed { network: &external, cidr: "172.24.0.0/16", ..SubnetSeed::default() });
            let network = world.network(&project, "nodes", json!({}));
            let nodes = SubnetSeed { network: &network, cidr: "10.60.0.0/16", ..SubnetSeed::default() };
            let subnet = world.subnet(&nodes);
            world.router(&project, "router", Some(&external), &[&subnet]);
            (project, subnet)
        });
        Ok(Self { cloud, project, subnet, cluster: Arc::new(Cluster::start().await?), program, log })
    }

    /// Running servers, and the specifications of their nodes; tainted ones have no provider ID yet.
    fn servers(&self, numbers: std::ops::Range<usize>, tainted: bool) -> Vec<Bytes> {
        let node = |number: usize| {
            let name = format!("node-{number}");
            let subnets = [&*self.subnet];
            let seed = ServerSeed {
                project: &self.project,
                name: &name,
                flavor: "f-1",
                subnets: &subnets,
                ..ServerSeed::default()
            };
            let id = self.cloud.world(|world| world.server(&seed));
            let provider_id = (!tainted).then(|| format!("openstack:///{id}"));
            NodeSpec { number, name, provider_id, tainted, labels: Vec::new() }.call()
        };
        numbers.map(node).collect()
    }

    /// A new process of the program, with only the credentials configured.
    async fn program(&self) -> anyhow::Result<Manager> {
        let mut command = Command::new(&self.program);
        command.args(["--cloud-provider=openstack", "--configure-cloud-routes=false", "--leader-elect=false"]);
        let config = format!(
            "[Global]\nauth-url = {}\nusername = ccm\npassword = secret\ntenant-name = kube\ndomain-id = default\n\
             region = RegionOne\n",
            self.cloud.auth_url()
        );
        Manager::launch(command, &config, &self.cluster.bed.kubeconfig(), tempfile::tempdir()?, &self.log).await
    }

    /// A new process with this number of nodes, after it has initialized them.
    async fn program_over(&self, nodes: usize) -> anyhow::Result<Manager> {
        self.cluster.make(self.servers(0..nodes, false), Duration::ZERO).await?;
        let manager = self.program().await?;
        self.rest(&manager, Duration::from_secs(10)).await?;
        Ok(manager)
    }

    /// Creates a Service with these ports.
    async fn service(&self, name: &str, ports: std::ops::Range<u16>) -> anyhow::Result<()> {
        let port = |number: u16| json!({"name": format!("p{number}"), "port": number, "protocol": "TCP"});
        let ports: Vec<Value> = ports.map(port).collect();
        self.cluster.make_service(name, json!({}), json!({"ports": ports})).await
    }

    /// Creates Services with one port each, and waits until they have an address.
    async fn services(&self, count: usize) -> anyhow::Result<()> {
        for number in 0..count {
            self.service(&format!("service-{number}"), 80..81).await?;
        }
        self.cluster.until_served(count).await?;
        Ok(())
    }

    /// Calls by `service:action` since a position in the ledger.
    fn calls(&self, mark: u64) -> BTreeMap<String, u64> {
        self.cloud.ledger(|ledger| ledger.counts(mark))
    }

    /// Successful writes since a position in the ledger.
    fn written(&self, mark: u64) -> usize {
        self.cloud
            .ledger(|ledger| ledger.mutating(mark).filter(|entry| entry.applied && entry.service != "identity").count())
    }

    /// Waits until the program has not written for a while.
    async fn rest(&self, manager: &Manager, quiet: Duration) -> anyhow::Result<()> {
        figures::rest(manager, || self.written(0), quiet).await
    }
}

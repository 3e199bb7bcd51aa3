//! The benchmarks on the simulated Compute Engine: a given binary of the program, with defaults, and a real API server.
//!
//! Reads and writes take 50 ms, and the operation of a write 2 s. The cloud runs in this process and the program in a
//! separate one. Goals are printed with the figures but not enforced, since times depend on the machine. `--ccm` may
//! also be the cloud-controller-manager of cloud-provider-gcp.

mod balancers;
mod nodes;
mod takeover;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::gce::seed::InstanceSeed;
use ccm_cloudsim::gce::{Gce, Metadata, Options};
use serde_json::json;
use tokio::process::Command;

use crate::Settings;
use crate::cluster::{Cluster, NodeSpec};
use crate::figures::{self, listed, of, row, sum, table};
use crate::process::Manager;

/// The runs, in order.
pub(crate) const RUNS: [&str; 8] = ["looks", "hosts", "external", "internal", "nodes", "quiet", "takeover", "all"];
const PROJECT: &str = "p";
const REGION: &str = "us-central1";
const ZONES: [&str; 3] = ["us-central1-a", "us-central1-b", "us-central1-c"];
/// Network tag of the instances.
const TAG: &str = "k8s-node";
/// The hosts of the load balancers, in three zones.
const NODES: usize = 6;
/// The duration of an operation.
const OPERATION: Duration = Duration::from_secs(2);

/// Executes the selected runs.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let program = settings.program("gce")?;
    let nodes = settings.most_nodes(5000);
    let scene = async || Scene::start(program.clone(), settings.out.join("ccm-gce.log")).await;
    if settings.wants("looks") {
        balancers::looks(&scene().await?).await.context("looks")?;
    }
    if settings.wants("hosts") {
        balancers::hosts(&scene().await?, settings.services * 2 / 5).await.context("hosts")?;
    }
    for (run, kind) in [("external", Kind::External), ("internal", Kind::Internal)] {
        if settings.wants(run) {
            balancers::made(&scene().await?, settings.services, kind).await.context(run)?;
        }
    }
    if settings.wants("nodes") {
        nodes::burst(&scene().await?, nodes).await.context("nodes")?;
    }
    if settings.wants("quiet") {
        nodes::quiet(&scene().await?, nodes, settings.services, settings.minutes).await.context("quiet")?;
    }
    if let (true, Some(former)) = (settings.wants("takeover"), &settings.former) {
        takeover::run(scene, former, &settings.out).await.context("takeover")?;
    }
    Ok(())
}

/// The kind of load balancer of a Service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    External,
    Internal,
}

/// A project, a cluster, and the program that manages it.
struct Scene {
    cloud: Gce,
    // The metadata server of the program's instance.
    metadata: Metadata,
    subnetwork: String,
    cluster: Arc<Cluster>,
    program: PathBuf,
    // The log of the last process.
    log: PathBuf,
}

impl Scene {
    async fn start(program: PathBuf, log: PathBuf) -> anyhow::Result<Self> {
        let call = Duration::from_millis(50);
        let cloud = Gce::start(Options {
            latency: Latency { read: call, write: call, actions: BTreeMap::new() },
            operation: OPERATION,
            regions: BTreeMap::from([(REGION.to_owned(), ZONES.map(str::to_owned).to_vec())]),
            ledger_entries: 1_000_000,
            check: false,
            ..Options::default()
        })?;
        let (subnetwork, own) = cloud.world(|world| {
            world.project(PROJECT);
            let network = world.network(PROJECT, "default", false);
            let subnetwork = world.subnetwork(&network, REGION, "sub", "10.48.0.0/12", &[]);
            let own = instance("control", 0, &subnetwork);
            (subnetwork.clone(), world.instance(&own))
        });
        let metadata = cloud.metadata(&own.context("no instance to run on")?, 0)?;
        Ok(Self { cloud, metadata, subnetwork, cluster: Arc::new(Cluster::start().await?), program, log })
    }

    /// Running instances, in alternating zones, and the specifications of their nodes; nodes with an ID are already
    /// initialized.
    fn instances(&self, numbers: std::ops::Range<usize>, with_id: bool, tainted: bool) -> anyhow::Result<Vec<Bytes>> {
        let node = |number: usize| {
            let name = name(number);
            let seed = instance(&name, number, &self.subnetwork);
            let provider_id = with_id.then(|| format!("gce://{PROJECT}/{}/{name}", seed.zone));
            self.cloud.world(|world| world.instance(&seed)).context("the subnetwork is full")?;
            // The Go program reads zones from labels.
            let zone = with_id.then_some(("topology.kubernetes.io/zone", zone(number)));
            Ok(NodeSpec { number, name, provider_id, tainted, labels: zone.into_iter().collect() }.call())
        };
        numbers.map(node).collect()
    }

    /// A new process of the program.
    async fn program(&self) -> anyhow::Result<Manager> {
        self.start_program(&self.program, &["--configure-cloud-routes=false"]).await
    }

    async fn start_program(&self, program: &Path, args: &[&str]) -> anyhow::Result<Manager> {
        let mut command = Command::new(program);
        command
            .args(["--cloud-provider=gce", "--leader-elect=false"])
            // The Go program exits if pod ranges are disabled.
            .arg("--controllers=*,-node-ipam-controller")
            .args(args)
            .env("GCE_METADATA_HOST", self.metadata.host());
        // The Go program compares links as strings.
        let links = format!("https://www.googleapis.com/compute/v1/projects/{PROJECT}");
        let config = format!(
            "[global]\napi-endpoint = {}\nmultizone = true\nnode-tags = {TAG}\nnetwork-name = {links}/global/networks/default\n\
             subnetwork-name = {links}/regions/{REGION}/subnetworks/sub\n",
            self.cloud.url()
        );
        Manager::launch(command, &config, &self.cluster.bed.kubeconfig(), tempfile::tempdir()?, &self.log).await
    }

    /// A new process with this number of nodes, after it has initialized them.
    async fn program_over(&self, nodes: usize) -> anyhow::Result<Manager> {
        self.cluster.make(self.instances(0..nodes, true, false)?, Duration::ZERO).await?;
        let manager = self.program().await?;
        self.rest(&manager, Duration::from_secs(10)).await?;
        Ok(manager)
    }

    /// Creates Services with one port each, and waits until they have an address.
    async fn services(&self, numbers: std::ops::Range<usize>, kind: Kind) -> anyhow::Result<()> {
        let wanted = numbers.end;
        for number in numbers {
            let name = format!("service-{number}");
            let annotations = match kind {
                Kind::External => json!({}),
                Kind::Internal => json!({"networking.gke.io/load-balancer-type": "Internal"}),
            };
            let ports = json!([{"name": "web", "port": 443, "targetPort": 8443, "protocol": "TCP"}]);
            self.cluster.make_service(&name, annotations, json!({"ports": ports})).await?;
        }
        self.cluster.until_served(wanted).await
    }

    /// Calls of the Compute API by method since a position in the ledger, without waits for operations, whose number
    /// depends on their duration.
    fn calls(&self, mark: u64) -> BTreeMap<String, u64> {
        let calls = self.cloud.ledger(|ledger| ledger.counts(mark)).into_iter();
        let own = calls.filter_map(|(call, count)| Some((call.strip_prefix("compute:")?.to_owned(), count)));
        own.filter(|(call, _)| !call.ends_with("Operations.wait")).collect()
    }

    /// Writes since a position in the ledger.
    fn written(&self, mark: u64) -> usize {
        self.cloud.ledger(|ledger| ledger.mutating(mark).filter(|entry| entry.service == "compute").count())
    }

    /// The number of objects of a collection.
    fn objects(&self, collection: &str) -> usize {
        self.cloud.world(|world| world.store.all(collection).count())
    }

    /// Waits until the program has not written for a while.
    async fn rest(&self, manager: &Manager, quiet: Duration) -> anyhow::Result<()> {
        figures::rest(manager, || self.written(0), quiet).await
    }
}

fn name(number: usize) -> String {
    format!("node-{number}")
}

fn zone(number: usize) -> &'static str {
    ZONES.into_iter().cycle().nth(number % ZONES.len()).unwrap_or_default()
}

fn instance<'a>(name: &'a str, number: usize, subnetwork: &'a str) -> InstanceSeed<'a> {
    InstanceSeed { project: PROJECT, zone: zone(number), name, subnetwork, tags: &[TAG], ..InstanceSeed::default() }
}

//! The benchmarks on the simulated Azure: a given binary of the program, with defaults, and a real API server.
//!
//! Calls take 50 ms, and operations 2 s; the buckets and limits are those of Azure. The cloud runs in this process and the
//! program in a separate one. Goals are printed with the figures but not enforced, since times depend on the machine.

mod balancers;
mod nodes;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bytes::Bytes;
use ccm_cloudsim::azure::{Azure, ClusterSeed, Options, SetSeed};
use ccm_cloudsim::core::latency::Latency;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::Settings;
use crate::cluster::{Cluster, NodeSpec, text};
use crate::figures::{self, listed, of, row, sum, table};
use crate::process::Manager;

/// The runs, in order.
pub(crate) const RUNS: [&str; 10] =
    ["interfaces", "addresses", "replaced", "members", "nodes", "sets", "routes", "quiet", "memory", "all"];
/// The duration of an operation.
const OPERATION: Duration = Duration::from_secs(2);
/// The interval at which Services are created.
const EVERY: Duration = Duration::from_millis(50);
/// The pools hold addresses of nodes.
const BY_ADDRESS: &str = "loadBalancerBackendPoolConfigurationType: nodeIP\n";
/// Load balancers with addresses of nodes, each with those of a scale set.
fn several(count: usize) -> String {
    let one = |number: usize| {
        let name = if number == 0 { "kubernetes".to_owned() } else { format!("lb-{number}") };
        format!("- name: {name}\n  primaryVMSet: pool-{number}\n")
    };
    let all: String = (0..count).map(one).collect();
    format!("{BY_ADDRESS}multipleStandardLoadBalancerConfigurations:\n{all}")
}

/// Executes the selected runs.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let program = settings.program("azure")?;
    let scene = async |more: &str| Scene::start(program.clone(), settings.out.join("ccm-azure.log"), more).await;
    if settings.wants("interfaces") {
        balancers::made(&scene("").await?, 280, 1).await.context("interfaces")?;
    }
    if settings.wants("addresses") {
        balancers::made(&scene(&several(2)).await?, settings.services, 2).await.context("addresses")?;
    }
    if settings.wants("replaced") {
        for (more, services) in [("", 10), ("", 200), (BY_ADDRESS, 10), (BY_ADDRESS, 200)] {
            balancers::replaced(&scene(more).await?, services).await.context("replaced")?;
        }
    }
    if settings.wants("members") {
        balancers::members(&scene("").await?).await.context("members")?;
    }
    if settings.wants("nodes") {
        nodes::burst(&scene("").await?, settings.most_nodes(5000)).await.context("nodes")?;
    }
    if settings.wants("sets") {
        nodes::sets(&scene("").await?).await.context("sets")?;
    }
    if settings.wants("routes") {
        for limit in [1000, 400] {
            nodes::routes(&scene("").await?, limit).await.context("routes")?;
        }
    }
    if settings.wants("quiet") {
        let (services, minutes) = (settings.services, settings.minutes);
        nodes::quiet(&scene(&several(2)).await?, services, minutes).await.context("quiet")?;
    }
    if settings.wants("memory") {
        let nodes = settings.most_nodes(5000);
        // Each has place for 299 rules.
        nodes::memory(&scene(&several(4)).await?, nodes, 2 * settings.services).await.context("memory")?;
    }
    Ok(())
}

/// A resource group, a cluster, and the program that manages it.
struct Scene {
    cloud: Azure,
    cluster: Arc<Cluster>,
    program: PathBuf,
    /// More keys of the configuration.
    more: String,
    // The log of the last process.
    log: PathBuf,
}

/// An instance of a scale set.
#[derive(Debug, Clone)]
struct Instance {
    id: String,
    name: String,
}

impl Scene {
    async fn start(program: PathBuf, log: PathBuf, more: &str) -> anyhow::Result<Self> {
        let call = Duration::from_millis(50);
        let cloud = Azure::start(Options {
            latency: Latency { read: call, write: call, actions: BTreeMap::new() },
            operation: OPERATION,
            throttle: Options::buckets(),
            ledger_entries: 1_000_000,
            check: false,
            ..Options::default()
        })?;
        cloud.world(|world| world.cluster(&ClusterSeed::default()));
        let cluster = Arc::new(Cluster::start().await?);
        Ok(Self { cloud, cluster, program, more: more.to_owned(), log })
    }

    /// Uniform scale sets `pool-0`, `pool-1`, … Returns their IDs.
    fn sets(&self, count: usize, each: usize) -> Vec<String> {
        let set = |number: usize| {
            let name = format!("pool-{number}");
            // Six digits follow, in base 36.
            let prefix = format!("p{number}-");
            let seed = SetSeed {
                name: &name,
                prefix: &prefix,
                instances: each,
                zones: &["1", "2", "3"],
                ..SetSeed::default()
            };
            self.cloud.world(|world| world.scale_set(&seed))
        };
        (0..count).map(set).collect()
    }

    /// All instances, by ID.
    fn instances(&self) -> BTreeMap<String, Instance> {
        let all = self.cloud.objects("Microsoft.Compute/virtualMachineScaleSets/virtualMachines");
        let instance = |machine: &Value| Instance {
            id: text(machine, "/id"),
            name: text(machine, "/properties/osProfile/computerName").to_lowercase(),
        };
        all.iter().map(instance).map(|it| (it.id.to_lowercase(), it)).collect()
    }

    /// The calls that create the nodes of instances; nodes with an ID are already initialized.
    fn nodes<'a>(instances: impl Iterator<Item = &'a Instance>, with_id: bool) -> Vec<Bytes> {
        let node = |(number, it): (usize, &Instance)| {
            let provider_id = with_id.then(|| format!("azure://{}", it.id));
            NodeSpec { number, name: it.name.clone(), provider_id, tainted: !with_id, labels: Vec::new() }.call()
        };
        instances.enumerate().map(node).collect()
    }

    /// A new process of the program.
    async fn program(&self, routes: bool) -> anyhow::Result<Manager> {
        let mut command = Command::new(&self.program);
        command
            .args(["--cloud-provider=azure", "--leader-elect=false", "--controllers=*,-node-ipam-controller"])
            .args(["--cluster-cidr=10.64.0.0/10", &format!("--configure-cloud-routes={routes}")]);
        let config = format!(
            "cloud: AzureCloud\nresourceManagerEndpoint: {}\ntenantId: tenant\nsubscriptionId: sub\naadClientId: client\n\
             aadClientSecret: secret\nresourceGroup: rg\nlocation: eastus\nvnetName: vnet\nsubnetName: subnet\n\
             securityGroupName: nsg\nrouteTableName: rt\n{}",
            self.cloud.root(),
            self.more
        );
        Manager::launch(command, &config, &self.cluster.bed.kubeconfig(), tempfile::tempdir()?, &self.log).await
    }

    /// A new process with the nodes of scale sets, after it has given them their addresses.
    async fn program_over(&self, sets: usize, each: usize) -> anyhow::Result<Manager> {
        self.sets(sets, each);
        self.cluster.make(Self::nodes(self.instances().values(), true), Duration::ZERO).await?;
        let manager = self.program(false).await?;
        self.rest(&manager, Duration::from_secs(10)).await?;
        Ok(manager)
    }

    /// Creates Services with one port each, 20 a second, and waits until they have an address. Their ports differ, as far
    /// as the security group has room for rules.
    async fn services(&self, numbers: std::ops::Range<usize>) -> anyhow::Result<()> {
        let wanted = numbers.end;
        let mut tick = tokio::time::interval(EVERY);
        for number in numbers {
            tick.tick().await;
            let ports = json!([{"name": "web", "port": 8000 + number % 10, "targetPort": 8443, "protocol": "TCP"}]);
            self.cluster.make_service(&service(number), json!({}), json!({"ports": ports})).await?;
        }
        self.cluster.until_served(wanted).await
    }

    /// Calls by action since a position in the ledger, without looks at operations, whose number depends on their
    /// duration.
    fn calls(&self, mark: u64) -> BTreeMap<String, u64> {
        let calls = self.cloud.ledger(|ledger| ledger.counts(mark)).into_iter();
        let own = calls.filter_map(|(call, count)| {
            let (service, action) = call.split_once(':')?;
            let is_own = !matches!(service, "login" | "metadata" | "imds") && !action.starts_with("operation");
            is_own.then(|| (action.to_owned(), count))
        });
        own.collect()
    }

    /// Calls of all kinds since a position in the ledger: those for tokens, metadata and operations too.
    fn all_calls(&self, mark: u64) -> u64 {
        self.cloud.ledger(|ledger| ledger.counts(mark)).into_values().sum()
    }

    /// Writes since a position in the ledger.
    fn written(&self, mark: u64) -> usize {
        self.cloud.ledger(|ledger| ledger.mutating(mark).filter(|entry| entry.service != "login").count())
    }

    /// Throttled calls since a position in the ledger.
    fn throttled(&self, mark: u64) -> usize {
        self.cloud.ledger(|ledger| ledger.since(mark).filter(|entry| entry.status == 429).count())
    }

    /// Waits until the program has not written for a while.
    async fn rest(&self, manager: &Manager, quiet: Duration) -> anyhow::Result<()> {
        figures::rest(manager, || self.written(0), quiet).await
    }
}

fn service(number: usize) -> String {
    format!("service-{number}")
}

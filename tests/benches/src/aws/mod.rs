//! The benchmarks on the simulated AWS: a given binary of the program, with defaults, and a real API server.
//!
//! A read takes 50 ms and a write 500 ms. The cloud runs in this process and the program in a separate one, so the
//! figures for CPU and memory are those of the program alone. Goals are printed with the figures but not enforced,
//! since times depend on the machine.

mod balancers;
mod handover;
mod nodes;
mod quiet;
mod takeover;
mod unrest;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, anyhow};
use bytes::Bytes;
use ccm_cloudsim::aws::ec2::model::{InstanceState, Tags};
use ccm_cloudsim::aws::ec2::seed::{self, InstanceSeed, Network, NetworkSeed};
use ccm_cloudsim::aws::options::{Delays, Latency, Limits};
use ccm_cloudsim::aws::{ApiError, Aws, Options};
use tokio::process::Command;

use crate::Settings;
use crate::cluster::{Cluster, NodeSpec};
use crate::figures::{self, listed, row, sum, table};
use crate::process::Manager;

/// The runs, in order.
pub(crate) const RUNS: [&str; 9] =
    ["burst", "burst-by-name", "handover", "quiet", "partial", "throttle", "balancers", "takeover", "all"];
/// Cluster ID in the account.
const CLUSTER: &str = "bench";

/// Executes the selected runs.
pub(crate) async fn run(settings: &Settings) -> anyhow::Result<()> {
    let program = settings.program("aws")?;
    let nodes = settings.most_nodes(5000);
    if settings.wants("burst") {
        nodes::burst(Scene::start(&program, &settings.out).await?, nodes, true).await.context("burst")?;
    }
    if settings.wants("burst-by-name") {
        nodes::burst(Scene::start(&program, &settings.out).await?, nodes, false).await.context("burst-by-name")?;
    }
    if settings.wants("handover") {
        handover::run(Scene::start(&program, &settings.out).await?).await.context("handover")?;
    }
    if settings.wants("quiet") {
        quiet::run(Scene::start(&program, &settings.out).await?, nodes, settings.minutes).await.context("quiet")?;
    }
    if settings.wants("partial") {
        unrest::partial(Scene::start(&program, &settings.out).await?).await.context("partial")?;
    }
    if settings.wants("throttle") {
        unrest::throttle(Scene::start(&program, &settings.out).await?).await.context("throttle")?;
    }
    if settings.wants("balancers") {
        balancers::run(Scene::start(&program, &settings.out).await?, nodes, settings.services)
            .await
            .context("balancers")?;
    }
    if settings.wants("takeover") {
        let Some(from) = &settings.former else {
            anyhow::ensure!(settings.runs.is_empty(), "takeover from which build? --former <program>");
            return Ok(());
        };
        let scene = Scene::over(Cluster::audited().await?, &program, &settings.out)?;
        takeover::run(scene, from).await.context("takeover")?;
    }
    Ok(())
}

/// An account, a cluster, and the program that manages it.
struct Scene {
    aws: Aws,
    network: Network,
    cluster: Arc<Cluster>,
    program: PathBuf,
    // The log of the last process.
    log: PathBuf,
}

/// The properties of an instance that its node needs.
#[derive(Debug, Clone)]
struct Machine {
    id: String,
    dns: String,
    provider_id: String,
}

impl Scene {
    async fn start(program: &Path, out: &Path) -> anyhow::Result<Self> {
        Self::over(Cluster::start().await?, program, out)
    }

    fn over(cluster: Cluster, program: &Path, out: &Path) -> anyhow::Result<Self> {
        let options = Options {
            latency: Latency {
                read: Duration::from_millis(50),
                write: Duration::from_millis(500),
                actions: BTreeMap::new(),
            },
            delays: Delays::none(),
            // The limits of a large account.
            limits: Limits { rules_per_group: 100_000, groups: 10_000, network_balancers: 10_000, ..Limits::default() },
            ledger_entries: 1_000_000,
            validate: false,
            ..Options::default()
        };
        let aws = Aws::start(options)?;
        let wanted = NetworkSeed { cluster: Some(CLUSTER.to_owned()), ..NetworkSeed::default() };
        let network = aws.world(|world| seed::network(world, &wanted)).map_err(|error| failure(&error))?;
        Ok(Self { aws, network, cluster: Arc::new(cluster), program: program.to_owned(), log: out.join("ccm-aws.log") })
    }

    /// Running instances of the cluster.
    fn machines(&self, count: usize) -> anyhow::Result<Vec<Machine>> {
        let wanted = InstanceSeed {
            count,
            subnets: self.network.private.clone(),
            groups: vec![self.network.node_group.clone()],
            tags: Tags::from([(format!("kubernetes.io/cluster/{CLUSTER}"), "owned".to_owned())]),
            ..InstanceSeed::default()
        };
        self.aws.world(|world| {
            let ids = seed::instances(world, &wanted).map_err(|error| failure(&error))?;
            let machine = |id: String| {
                let instance = world.ec2.instances.get(&id).context("a seeded instance is missing")?;
                let provider_id = format!("aws:///{}/{id}", instance.zone);
                Ok(Machine { dns: instance.private_dns.clone(), provider_id, id })
            };
            ids.into_iter().map(machine).collect()
        })
    }

    /// Terminates instances, which stay visible.
    fn terminate(&self, ids: &[String]) {
        self.aws.world(|world| {
            for id in ids {
                if let Some(instance) = world.ec2.instances.get_mut(id) {
                    instance.state = InstanceState::Terminated;
                }
            }
        });
    }

    /// Omits these instances from the next list.
    async fn leave_out_once(&self, ids: BTreeSet<String>) {
        let mark = self.aws.mark();
        self.aws.world(|world| world.ec2.left_out = ids);
        while !self.calls(mark).contains_key("ec2:DescribeInstances") {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        self.aws.world(|world| world.ec2.left_out.clear());
    }

    /// A new process of the program, with only its location configured.
    async fn program(&self) -> anyhow::Result<Manager> {
        self.replica("--leader-elect=false", &self.log).await
    }

    /// The same, with or without leader election.
    async fn replica(&self, election: &str, log: &Path) -> anyhow::Result<Manager> {
        self.start_program(&self.program, &["--configure-cloud-routes=false", election], log).await
    }

    /// Any build of the program, with these flags.
    async fn start_program(&self, program: &Path, flags: &[&str], log: &Path) -> anyhow::Result<Manager> {
        let mut command = Command::new(program);
        command
            .arg("--cloud-provider=aws")
            .args(flags)
            .env("AWS_ACCESS_KEY_ID", "AKIABENCHBENCHBENCH0")
            .env("AWS_SECRET_ACCESS_KEY", "not-a-secret")
            .env("AWS_EC2_METADATA_DISABLED", "true")
            .env("AWS_ENDPOINT_URL", self.aws.url());
        let subnet = self.network.private.first().map(String::as_str).unwrap_or_default();
        let config = format!(
            "[Global]\nRegion = us-west-2\nVPC = {}\nSubnetID = {subnet}\nKubernetesClusterID = {CLUSTER}\n",
            self.network.vpc
        );
        Manager::launch(command, &config, &self.cluster.bed.kubeconfig(), tempfile::tempdir()?, log).await
    }

    /// Calls by `service:action` since a position in the ledger.
    fn calls(&self, mark: u64) -> BTreeMap<String, u64> {
        self.aws.ledger(|ledger| ledger.counts(mark))
    }

    /// Waits until the program has not written to the cloud or to the API server for a while.
    async fn rest(&self, manager: &Manager, quiet: Duration) -> anyhow::Result<()> {
        figures::rest(manager, || self.aws.ledger(|ledger| ledger.mutating(0).count()), quiet).await
    }
}

impl Machine {
    /// Its node, with the name of the instance in EC2.
    fn node(&self, number: usize, with_id: bool, tainted: bool) -> NodeSpec {
        let provider_id = with_id.then(|| self.provider_id.clone());
        NodeSpec { number, name: self.dns.clone(), provider_id, tainted, labels: Vec::new() }
    }
}

/// The specifications of their nodes, numbered from `first`.
fn nodes_of(machines: &[Machine], first: usize, with_id: bool, tainted: bool) -> Vec<Bytes> {
    machines.iter().zip(first..).map(|(machine, number)| machine.node(number, with_id, tainted).call()).collect()
}

fn failure(error: &ApiError) -> anyhow::Error {
    anyhow!("{}: {}", error.code, error.message)
}

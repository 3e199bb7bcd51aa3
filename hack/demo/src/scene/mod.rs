//! The environment: an API server, a cloud, kubelets, and a folder for their files.

pub(crate) mod cloud;
pub(crate) mod kubelet;
mod log;
pub(crate) mod manager;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use ccm_test_apiserver::{ApiServer, Clock, Options, Store};
use jiff::Timestamp;
use tempfile::TempDir;
use tokio::task::JoinSet;

use self::cloud::Cloud;
use self::kubelet::Kubelets;
use self::log::Log;
use crate::args::{Args, Pace};
use crate::feed::Feed;
use crate::world::World;

/// A Service for the user to apply.
const SHOP: &str = "\
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {type: LoadBalancer, selector: {app: shop}, ports: [{port: 80}]}
";

/// The environment of the manager. Dropping it stops all parts and removes the files.
#[derive(Debug)]
pub(crate) struct Scene {
    pub(crate) server: ApiServer,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) world: Arc<World>,
    folder: TempDir,
    nodes: usize,
    period: &'static str,
    tasks: JoinSet<()>,
}

impl Scene {
    /// Starts the API server on 127.0.0.1 and writes the files. The kubelets do not run yet.
    pub(crate) async fn start(args: Args, feed: &Arc<Feed>) -> Result<Self> {
        let folder =
            tempfile::Builder::new().prefix("ccm-demo-").tempdir().context("cannot make a temporary folder")?;
        let cloud = cloud::start(args, folder.path())?;
        let age = cloud.profile().age;
        let options = Options { clock: Clock::new(move || Timestamp::now() - age), ..Options::default() };
        let server = ApiServer::start(options).await.context("cannot listen on 127.0.0.1")?;
        std::fs::write(folder.path().join("kubeconfig"), server.kubeconfig())?;
        std::fs::write(folder.path().join("shop.yaml"), SHOP)?;
        let world = Arc::new(World::default());
        let log = Log::create(&folder.path().join("manager.log"), feed.clone(), world.clone())?;
        ccm::logging::init_to(2, move || log.clone());
        let mut tasks = JoinSet::new();
        world.watch(server.store(), feed, &mut tasks);
        cloud.clone().watch(world.clone(), feed.clone(), &mut tasks);
        let period = args.pace().period;
        Ok(Self { server, cloud, world, folder, nodes: args.nodes, period, tasks })
    }

    pub(crate) fn start_kubelets(&mut self, feed: &Arc<Feed>, pace: Pace) {
        let kubelets = Kubelets {
            store: self.store().clone(),
            world: self.world.clone(),
            feed: feed.clone(),
            cloud: self.cloud.clone(),
            nodes: self.nodes,
            pace,
        };
        self.tasks.spawn(kubelets.run());
    }

    pub(crate) fn store(&self) -> &Store {
        self.server.store()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.file("kubeconfig")
    }

    /// The flags that the commands need too.
    pub(crate) fn command_args(&self) -> Vec<String> {
        vec![
            format!("--cloud-provider={}", self.cloud.profile().name),
            format!("--cloud-config={}", self.cloud.config().display()),
            format!("--kubeconfig={}", self.kubeconfig().display()),
            format!("--cluster-cidr={}", cloud::cluster_cidr(self.nodes)),
        ]
    }

    pub(crate) fn manager_args(&self, dry_run: bool) -> Vec<String> {
        let mut args = self.command_args();
        args.extend([
            format!("--node-monitor-period={}", self.period),
            format!("--route-reconciliation-period={}", self.period),
            "--secure-port=0".to_owned(),
        ]);
        if dry_run {
            args.push("--dry-run".to_owned());
        }
        args
    }

    /// Keeps the files, for debugging.
    pub(crate) fn keep_files(&mut self) {
        self.folder.disable_cleanup(true);
    }

    pub(crate) async fn end(mut self) {
        self.tasks.shutdown().await;
        self.server.stop().await;
        // Dropping the folder removes it.
    }
}

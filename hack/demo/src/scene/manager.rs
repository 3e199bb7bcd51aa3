//! The real manager, with real flags, in this process.

use anyhow::{Context, Result, anyhow};
use ccm::Failure;
use ccm::manager::Manager;
use ccm::options::Options;
use ccm_provider::{CloudConfig, ProviderFactory};
use ccm_runtime::client::ConnectOptions;
use ccm_runtime::{Client, Metrics};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A running manager; killed when dropped.
#[derive(Debug)]
pub(crate) struct Running {
    task: JoinHandle<Result<(), Failure>>,
    stop: CancellationToken,
}

impl Running {
    /// Starts a manager with these arguments, without the program's name.
    pub(crate) async fn start(args: &[String], factory: &dyn ProviderFactory) -> Result<Self> {
        let options = Options::from_args(args).map_err(said)?;
        let path = options.cloud_config.clone();
        let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let provider = factory.build(Some(CloudConfig { path: path.into(), text }), &options.values).await?;
        let metrics = Metrics::new();
        let connect = ConnectOptions {
            kubeconfig: options.kubeconfig.clone(),
            master: options.master.clone(),
            user_agent: "ccm/demo".into(),
            ..ConnectOptions::default()
        };
        let client = Client::connect(&connect, metrics.clone()).await?;
        let stop = CancellationToken::new();
        let task = tokio::spawn(Manager::new(options, provider, client, metrics).run(stop.clone()));
        Ok(Self { task, stop })
    }

    /// Whether it exited unexpectedly.
    pub(crate) fn has_ended(&self) -> bool {
        self.task.is_finished()
    }

    /// Like SIGTERM: finishes work in flight and releases the lease.
    pub(crate) async fn stop(mut self) -> Result<()> {
        self.stop.cancel();
        (&mut self.task).await.context("the manager panicked")?.map_err(said)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.task.abort();
    }
}

#[expect(clippy::needless_pass_by_value, reason = "the form that map_err wants")]
fn said(failure: Failure) -> anyhow::Error {
    anyhow!("the manager says: {}", failure.message)
}

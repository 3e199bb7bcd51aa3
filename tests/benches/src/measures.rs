//! Common measurements of the benchmarks on simulated clouds: a burst of nodes, and a quiet period.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;

use crate::cluster::Cluster;
use crate::figures::{row, unchanged};
use crate::process::{Manager, Memory};
use crate::runs::{BURST, count, mib};

/// Counts nodes that lost the taint.
pub(crate) const UNTAINTED: &str = "node_controller_cloud_provider_taint_removal_delay_seconds_count";
/// The interval at which each kubelet writes its status.
const STATUS: Duration = Duration::from_secs(300);

/// The result of the initialization of nodes created within [`BURST`].
pub(crate) struct Joined {
    /// The time since the start.
    made: Duration,
    pub(crate) last: Duration,
    cpu: f64,
    memory: Memory,
}

/// Creates nodes with the taint, and waits until all have lost it.
pub(crate) async fn join(cluster: &Arc<Cluster>, manager: &Manager, nodes: Vec<Bytes>) -> anyhow::Result<Joined> {
    let (wanted, cpu, began) = (count(nodes.len()), manager.cpu()?, Instant::now());
    let loader = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.make(nodes, BURST).await }
    });
    loop {
        let done = manager.metric(UNTAINTED, "").await?;
        if done >= wanted {
            break;
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(3600), "only {done} of {wanted} nodes after an hour");
        // Polling costs the program some CPU time.
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let last = began.elapsed();
    let made = loader.await??.duration_since(began);
    Ok(Joined { made, last, cpu: manager.cpu()? - cpu, memory: manager.memory()? })
}

impl Joined {
    pub(crate) fn print(&self) {
        row("last node made after", self.made.as_secs_f64(), " s", None);
        row("last taint removed after that", self.last.saturating_sub(self.made).as_secs_f64(), " s", Some(5.0));
        row("CPU of the program", self.cpu, " s", None);
        row("RSS", mib(self.memory.now), " MiB", None);
    }
}

/// Waits until the program has made no cloud call, according to its ledger, and no sync of a Service for a while.
/// Returns the time of the last one.
pub(crate) async fn settled(manager: &Manager, mark: impl Fn() -> u64, quiet: Duration) -> anyhow::Result<Instant> {
    let synced = async || manager.metric("service_controller_loadbalancer_sync_total", "").await;
    unchanged(async || Ok((mark(), synced().await?)), quiet).await
}

/// The activity of the program while only kubelets wrote their status.
pub(crate) struct Quiet {
    writes: f64,
    cpu: f64,
    memory: Memory,
    /// Scales figures to an hour.
    pub(crate) per_hour: f64,
}

/// Waits some minutes, with the heartbeats of these nodes.
pub(crate) async fn quiet(
    cluster: &Arc<Cluster>,
    manager: &Manager,
    nodes: Vec<String>,
    minutes: u64,
) -> anyhow::Result<Quiet> {
    let heartbeat = tokio::spawn(cluster.clone().heartbeat(nodes, STATUS));
    let (writes, cpu) = (manager.writes().await?, manager.cpu()?);
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let (writes, cpu) = (manager.writes().await? - writes, manager.cpu()? - cpu);
    heartbeat.abort();
    let per_hour = 60.0 / f64::from(u32::try_from(minutes.max(1))?);
    Ok(Quiet { writes, cpu, memory: manager.memory()?, per_hour })
}

impl Quiet {
    /// `cpu`: the goal for CPU seconds per hour.
    pub(crate) fn print(&self, cpu: Option<f64>) {
        row("API writes", self.writes * self.per_hour, "", Some(0.0));
        row("CPU of the program", self.cpu * self.per_hour, " s", cpu);
        row("RSS", mib(self.memory.now), " MiB", None);
        row("RSS at its peak", mib(self.memory.peak), " MiB", None);
    }
}

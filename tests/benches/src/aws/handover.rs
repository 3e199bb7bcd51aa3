//! The leader gets SIGTERM while it initializes many nodes, and another replica continues.

use std::time::{Duration, Instant};

use super::nodes::INITIALIZED;
use super::{Scene, nodes_of, row, table};
use crate::process::Manager;

/// The number of new nodes, and the period in which they appear.
const NODES: usize = 1000;
const STORM: Duration = Duration::from_secs(4);
/// The number of initialized nodes at which the leader gets SIGTERM.
const DONE: f64 = 300.0;
/// Poll interval for a process.
const LOOK: Duration = Duration::from_millis(5);

async fn until(manager: &Manager, metric: &str, matching: &str, at_least: f64) -> anyhow::Result<Instant> {
    let deadline = Instant::now() + Duration::from_secs(120);
    while manager.metric(metric, matching).await? < at_least {
        anyhow::ensure!(Instant::now() < deadline, "{metric} stays below {at_least}");
        tokio::time::sleep(LOOK).await;
    }
    Ok(Instant::now())
}

/// Measures the time from SIGTERM to the first patch of a node by the other replica.
pub(super) async fn run(scene: Scene) -> anyhow::Result<()> {
    let machines = scene.machines(NODES)?;
    let leads = "leader_election_master_status";
    let old = scene.replica("--leader-elect=true", &scene.log).await?;
    until(&old, leads, "", 1.0).await?;
    let new = scene.replica("--leader-elect=true", &scene.log.with_extension("standby.log")).await?;
    scene.rest(&new, Duration::from_secs(3)).await?;
    let (cluster, nodes) = (scene.cluster.clone(), nodes_of(&machines, 0, true, true));
    let loader = tokio::spawn(async move { cluster.make(nodes, STORM).await });
    until(&old, INITIALIZED, "", DONE).await?;
    let asked = Instant::now();
    let ended = tokio::spawn(old.terminate());
    let led = until(&new, leads, "", 1.0).await?;
    let wrote = until(&new, "rest_client_requests_total", "method=\"PATCH\"", 1.0).await?;
    let (exited, status) = ended.await??;
    loader.await??;
    table(&format!("AWS hand-over: SIGTERM to the leader amid {NODES} new nodes, {DONE} of them initialized"));
    row("the other replica leads after", led.duration_since(asked).as_secs_f64(), " s", None);
    row("its first write of a node after", wrote.duration_since(asked).as_secs_f64(), " s", Some(0.5));
    row("the process has ended after", exited.duration_since(asked).as_secs_f64(), " s", None);
    row("its exit code", f64::from(status.code().unwrap_or(-1)), "", Some(0.0));
    new.stop().await
}

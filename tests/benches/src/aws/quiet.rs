//! A time in which nothing happens but kubelets writing their status.

use std::time::Duration;

use super::{Scene, listed, nodes_of, row, sum, table};
use crate::runs::mib;

/// Each kubelet writes its status so often.
const STATUS: Duration = Duration::from_secs(300);

/// Measures some minutes and prints the figures for an hour.
pub(super) async fn run(scene: Scene, nodes: usize, minutes: u64) -> anyhow::Result<()> {
    let machines = scene.machines(nodes)?;
    scene.cluster.make(nodes_of(&machines, 0, true, false), Duration::ZERO).await?;
    let manager = scene.program().await?;
    // Labels and addresses of the new nodes are written first.
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let names = machines.into_iter().map(|machine| machine.dns).collect();
    let heartbeat = tokio::spawn(scene.cluster.clone().heartbeat(names, STATUS));
    let (mark, writes, cpu) = (scene.aws.mark(), manager.writes().await?, manager.cpu()?);
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let (calls, cpu, memory) = (scene.calls(mark), manager.cpu()? - cpu, manager.memory()?);
    let writes = manager.writes().await? - writes;
    heartbeat.abort();
    let per_hour = 60.0 / f64::from(u32::try_from(minutes.max(1))?);
    table(&format!("AWS quiet: {nodes} nodes of 20 KB, statuses every 5 minutes, {minutes} minutes, per hour"));
    row("cloud calls", sum(&calls) * per_hour, "", Some(60.0));
    row("API writes", writes * per_hour, "", Some(0.0));
    row("CPU of the program", cpu * per_hour, " s", Some(12.0));
    row("RSS", mib(memory.now), " MiB", None);
    row("RSS at its peak", mib(memory.peak), " MiB", None);
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

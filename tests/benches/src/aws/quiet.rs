//! A period in which only kubelets write their status.

use std::time::Duration;

use super::{Scene, listed, nodes_of, row, sum, table};
use crate::measures;

/// Measures for some minutes and prints the figures for an hour.
pub(super) async fn run(scene: Scene, nodes: usize, minutes: u64) -> anyhow::Result<()> {
    let machines = scene.machines(nodes)?;
    scene.cluster.make(nodes_of(&machines, 0, true, false), Duration::ZERO).await?;
    let manager = scene.program().await?;
    // Labels and addresses of the new nodes are written first.
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let names = machines.into_iter().map(|machine| machine.dns).collect();
    let mark = scene.aws.mark();
    let quiet = measures::quiet(&scene.cluster, &manager, names, minutes).await?;
    let calls = scene.calls(mark);
    table(&format!("AWS quiet: {nodes} nodes of 20 KB, statuses every 5 minutes, {minutes} minutes, per hour"));
    row("cloud calls", sum(&calls) * quiet.per_hour, "", Some(60.0));
    quiet.print(Some(12.0));
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

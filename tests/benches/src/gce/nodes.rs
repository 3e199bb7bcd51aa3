//! Many nodes, joining at once and quiet.

use std::time::Duration;

use super::{Kind, Scene, ZONES, listed, name, of, row, sum, table};
use crate::measures;
use crate::runs::{BURST, count};

/// Instances on a page of a list.
const PAGE: usize = 500;

/// Measures the number of lists that new nodes cause.
pub(super) async fn burst(scene: &Scene, nodes: usize) -> anyhow::Result<()> {
    let calls = scene.instances(0..nodes, false, true)?;
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(3)).await?;
    let mark = scene.cloud.mark();
    let joined = measures::join(&scene.cluster, &manager, calls).await?;
    let calls = scene.calls(mark);
    table(&format!(
        "GCE nodes: {nodes} tainted nodes of 20 KB within {} s in three zones, found by their names",
        BURST.as_secs()
    ));
    joined.print();
    row("calls", sum(&calls), "", Some(30.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// A period in which only kubelets write their status. Half of the Services are internal.
pub(super) async fn quiet(scene: &Scene, nodes: usize, services: usize, minutes: u64) -> anyhow::Result<()> {
    let manager = scene.program_over(nodes).await?;
    scene.services(0..services / 2, Kind::External).await?;
    scene.services(services / 2..services, Kind::Internal).await?;
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let mark = scene.cloud.mark();
    let quiet = measures::quiet(&scene.cluster, &manager, (0..nodes).map(name).collect(), minutes).await?;
    let calls = scene.calls(mark);
    // Every five minutes.
    let pages = 12 * ZONES.len() * nodes.div_ceil(ZONES.len() * PAGE).max(1);
    table(&format!("GCE quiet: {nodes} nodes in three zones, {services} Services, {minutes} minutes, per hour"));
    row("calls", sum(&calls) * quiet.per_hour, "", Some(60.0_f64.max(count(pages))));
    row("calls about others than instances", (sum(&calls) - of(&calls, "instances.")) * quiet.per_hour, "", Some(0.0));
    row("cloud writes", count(scene.written(mark)) * quiet.per_hour, "", Some(0.0));
    quiet.print(None);
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

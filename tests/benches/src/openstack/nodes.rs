//! Many nodes, joining at once and quiet.

use std::time::{Duration, Instant};

use super::{Scene, listed, of, row, sum, table};
use crate::runs::{BURST, count, mib};

/// Counts nodes that lost the taint.
const UNTAINTED: &str = "node_controller_cloud_provider_taint_removal_delay_seconds_count";
/// Entries of a page of Nova and of Neutron.
const PAGE: usize = 1000;
/// Each kubelet writes its status so often.
const STATUS: Duration = Duration::from_secs(300);

/// New nodes: how many lists do they cost?
pub(super) async fn burst(scene: &Scene, nodes: usize) -> anyhow::Result<()> {
    let calls = scene.servers(0..nodes, true);
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(3)).await?;
    let (mark, cpu, began) = (scene.cloud.mark(), manager.cpu()?, Instant::now());
    let cluster = scene.cluster.clone();
    let loader = tokio::spawn(async move { cluster.make(calls, BURST).await });
    while manager.metric(UNTAINTED, "").await? < count(nodes) {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(900), "not all nodes after 15 minutes");
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
    let last = Instant::now();
    let made = loader.await??;
    let (calls, cpu, memory) = (scene.calls(mark), manager.cpu()? - cpu, manager.memory()?);
    // Who asks within a second shares a list.
    let lists = count(nodes.div_ceil(PAGE)) * (last - began).as_secs_f64().ceil();
    table(&format!(
        "OpenStack nodes: {nodes} tainted nodes of 20 KB within {} s, found by their names",
        BURST.as_secs()
    ));
    row("last node made after", made.duration_since(began).as_secs_f64(), " s", None);
    row("last taint removed after that", last.saturating_duration_since(made).as_secs_f64(), " s", Some(5.0));
    row("calls of servers", of(&calls, "compute:server"), "", Some(lists));
    row("pages of ports", of(&calls, "network:port"), "", Some(lists));
    row("calls", sum(&calls), "", None);
    row("CPU of the program", cpu, " s", None);
    row("RSS", mib(memory.now), " MiB", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// A time in which nothing happens but kubelets writing their status.
pub(super) async fn quiet(scene: &Scene, nodes: usize, services: usize, minutes: u64) -> anyhow::Result<()> {
    let manager = scene.program_over(nodes).await?;
    scene.services(services).await?;
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let names = (0..nodes).map(|number| format!("node-{number}")).collect();
    let heartbeat = tokio::spawn(scene.cluster.clone().heartbeat(names, STATUS));
    let (mark, writes, cpu) = (scene.cloud.mark(), manager.writes().await?, manager.cpu()?);
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let (calls, cpu, memory) = (scene.calls(mark), manager.cpu()? - cpu, manager.memory()?);
    let writes = manager.writes().await? - writes;
    heartbeat.abort();
    let per_hour = 60.0 / f64::from(u32::try_from(minutes.max(1))?);
    table(&format!("OpenStack quiet: {nodes} nodes, {services} Services, {minutes} minutes, per hour"));
    row("calls", sum(&calls) * per_hour, "", Some(60.0));
    row("calls of load balancers", of(&calls, "load-balancer") * per_hour, "", Some(0.0));
    row("cloud writes", count(scene.written(mark)) * per_hour, "", Some(0.0));
    row("API writes", writes * per_hour, "", Some(0.0));
    row("CPU of the program", cpu * per_hour, " s", None);
    row("RSS", mib(memory.now), " MiB", None);
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

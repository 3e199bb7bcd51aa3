//! The three benchmarks.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cluster::Cluster;
use crate::plot::{self, Series};
use crate::process::Manager;

/// The period in which the nodes of the burst appear.
pub(crate) const BURST: Duration = Duration::from_secs(10);
/// The time in which a process becomes idle.
const SETTLE: Duration = Duration::from_secs(5);

pub(crate) fn mib(kib: u64) -> f64 {
    u32::try_from(kib).map_or(f64::MAX, f64::from) / 1024.0
}

pub(crate) fn count(number: usize) -> f64 {
    u32::try_from(number).map_or(f64::MAX, f64::from)
}

/// A burst of tainted nodes: the time until the last taint is removed, and the cost.
pub(crate) async fn startup(nodes: usize, out: &Path) -> anyhow::Result<()> {
    let cluster = Arc::new(Cluster::start().await?);
    let manager = Manager::start(&cluster.bed.kubeconfig(), &["--configure-cloud-routes=false"]).await?;
    let (calls, writes, cpu) = (manager.cloud_calls()?, manager.writes().await?, manager.cpu()?);
    let began = Instant::now();
    let loader = tokio::spawn({
        let cluster = cluster.clone();
        async move { cluster.make_nodes(0..nodes, true, BURST).await }
    });
    let mut curve = vec![(0.0, 0.0)];
    let name = "node_controller_cloud_provider_taint_removal_delay_seconds_count";
    let last = loop {
        tokio::time::sleep(Duration::from_millis(100)).await;
        let done = manager.metric(name, "").await?;
        curve.push((began.elapsed().as_secs_f64(), done));
        if done >= count(nodes) {
            break Instant::now();
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(900), "only {done} of {nodes} nodes after 15 minutes");
    };
    let made = loader.await??;
    let memory = manager.memory()?;
    println!("\nStart-up: {nodes} tainted nodes of 20 KB within {} s, reads of 50 ms, pages of 1,000", BURST.as_secs());
    println!("| figure | value |\n|---|---|");
    println!("| last node made after | {:.1} s |", made.duration_since(began).as_secs_f64());
    println!("| last taint removed after | {:.1} s |", last.duration_since(began).as_secs_f64());
    println!("| that is after the last node was made | {:.1} s |", last.saturating_duration_since(made).as_secs_f64());
    println!("| cloud calls (pages) | {} |", manager.cloud_calls()? - calls);
    let events = manager.metric("ccm_events_total", "").await?;
    println!("| API writes | {:.0} ({:.0} events among them or dropped) |", manager.writes().await? - writes, events);
    println!("| CPU of the process | {:.1} s |", manager.cpu()? - cpu);
    println!("| RSS now, peak | {:.1}, {:.1} MiB |", mib(memory.now), mib(memory.peak));
    let series = [Series { name: "initialized".into(), points: curve }];
    plot::write(&out.join("startup.svg"), "Start-up of a burst of nodes", "seconds", "initialized nodes", &series)?;
    manager.stop().await
}

/// RSS at rest and peak for several sizes of cluster.
pub(crate) async fn memory(sizes: &[usize], out: &Path) -> anyhow::Result<()> {
    let cluster = Cluster::start().await?;
    let mut sizes = sizes.to_vec();
    sizes.sort_unstable();
    let (mut rest, mut peak) = (Vec::new(), Vec::new());
    println!("\nMemory: nodes of 20 KB, process started over an existing cluster");
    println!("| nodes | RSS at rest | peak | CPU until rest |\n|---|---|---|---|");
    let mut present = 0;
    for size in sizes {
        cluster.make_nodes(present..size, false, Duration::ZERO).await?;
        present = size;
        let manager = Manager::start(&cluster.bed.kubeconfig(), &["--configure-cloud-routes=false"]).await?;
        tokio::time::sleep(SETTLE).await;
        let memory = manager.memory()?;
        println!("| {size} | {:.1} MiB | {:.1} MiB | {:.2} s |", mib(memory.now), mib(memory.peak), manager.cpu()?);
        rest.push((count(size), mib(memory.now)));
        peak.push((count(size), mib(memory.peak)));
        manager.stop().await?;
    }
    let series = [Series { name: "at rest".into(), points: rest }, Series { name: "peak".into(), points: peak }];
    plot::write(&out.join("memory.svg"), "Memory of the process", "nodes", "RSS in MiB", &series)?;
    Ok(())
}

/// A quiet period with kubelet-like heartbeats.
pub(crate) async fn idle(nodes: usize, minutes: u64) -> anyhow::Result<()> {
    let cluster = Arc::new(Cluster::start().await?);
    cluster.make_nodes(0..nodes, false, Duration::ZERO).await?;
    let manager = Manager::start(&cluster.bed.kubeconfig(), &["--configure-cloud-routes=false"]).await?;
    // Labels and addresses of the new nodes are written first.
    tokio::time::sleep(Duration::from_secs(30)).await;
    let names = (0..nodes).map(|number| format!("node-{number}")).collect();
    let heartbeat = tokio::spawn(cluster.clone().heartbeat(names, Duration::from_secs(300)));
    let (calls, writes, cpu) = (manager.cloud_calls()?, manager.writes().await?, manager.cpu()?);
    tokio::time::sleep(Duration::from_secs(minutes * 60)).await;
    let memory = manager.memory()?;
    println!("\nIdle: {nodes} nodes, {minutes} minutes, heartbeats every 5 minutes");
    println!("| figure | value | per hour |\n|---|---|---|");
    let per_hour = 60.0 / f64::from(u32::try_from(minutes.max(1))?);
    let row = |name: &str, value: f64| println!("| {name} | {value:.1} | {:.1} |", value * per_hour);
    row("cloud calls (pages)", count(manager.cloud_calls()? - calls));
    row("API writes", manager.writes().await? - writes);
    row("CPU seconds", manager.cpu()? - cpu);
    println!("| RSS now, peak | {:.1}, {:.1} MiB | |", mib(memory.now), mib(memory.peak));
    heartbeat.abort();
    manager.stop().await
}

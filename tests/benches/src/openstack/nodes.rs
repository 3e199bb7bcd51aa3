//! Many nodes, joining at once and quiet.

use super::{Scene, listed, of, row, sum, table};
use crate::measures;
use crate::runs::{BURST, count};
use std::time::Duration;

/// Entries per page of Nova and of Neutron.
const PAGE: usize = 1000;

/// Measures the number of lists that new nodes cause.
pub(super) async fn burst(scene: &Scene, nodes: usize) -> anyhow::Result<()> {
    let calls = scene.servers(0..nodes, true);
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(3)).await?;
    let mark = scene.cloud.mark();
    let joined = measures::join(&scene.cluster, &manager, calls).await?;
    let calls = scene.calls(mark);
    // Lookups within a second share a list.
    let lists = count(nodes.div_ceil(PAGE)) * joined.last.as_secs_f64().ceil();
    table(&format!(
        "OpenStack nodes: {nodes} tainted nodes of 20 KB within {} s, found by their names",
        BURST.as_secs()
    ));
    joined.print();
    row("calls of servers", of(&calls, "compute:server"), "", Some(lists));
    row("pages of ports", of(&calls, "network:port"), "", Some(lists));
    row("calls", sum(&calls), "", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// A period in which only kubelets write their status.
pub(super) async fn quiet(scene: &Scene, nodes: usize, services: usize, minutes: u64) -> anyhow::Result<()> {
    let manager = scene.program_over(nodes).await?;
    scene.services(services).await?;
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let names = (0..nodes).map(|number| format!("node-{number}")).collect();
    let mark = scene.cloud.mark();
    let quiet = measures::quiet(&scene.cluster, &manager, names, minutes).await?;
    let calls = scene.calls(mark);
    table(&format!("OpenStack quiet: {nodes} nodes, {services} Services, {minutes} minutes, per hour"));
    row("calls", sum(&calls) * quiet.per_hour, "", Some(60.0));
    row("calls of load balancers", of(&calls, "load-balancer") * quiet.per_hour, "", Some(0.0));
    row("cloud writes", count(scene.written(mark)) * quiet.per_hour, "", Some(0.0));
    quiet.print(None);
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

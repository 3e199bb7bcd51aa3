//! Many nodes: joining, with routes, and quiet.

use std::time::{Duration, Instant};

use super::{Instance, Scene, listed, of, row, sum, table, text};
use crate::measures;
use crate::runs::{BURST, count, mib};

/// Measures the lists that new nodes in ten uniform scale sets cause.
pub(super) async fn burst(scene: &Scene, nodes: usize) -> anyhow::Result<()> {
    scene.sets(10, nodes / 10);
    let calls = Scene::nodes(scene.instances().values(), false);
    let manager = scene.program(false).await?;
    scene.rest(&manager, Duration::from_secs(3)).await?;
    let mark = scene.cloud.mark();
    let joined = measures::join(&scene.cluster, &manager, calls).await?;
    let calls = scene.calls(mark);
    table(&format!("Azure nodes: {nodes} tainted nodes within {} s in ten uniform scale sets", BURST.as_secs()));
    joined.print();
    row("scans of each set", of(&calls, "virtualMachineScaleSetVMs.list") / 10.0, "", Some(3.0));
    row(
        "reads of single machines",
        of(&calls, "virtualMachineScaleSetVMs.get") + of(&calls, "virtualMachines.get"),
        "",
        Some(0.0),
    );
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// One new node in 50 sets of two.
pub(super) async fn sets(scene: &Scene) -> anyhow::Result<()> {
    let manager = scene.program_over(50, 2).await?;
    let first = scene.instances().into_values().next();
    let set = first.as_ref().and_then(|it| it.id.split("/virtualMachines/").next()).unwrap_or_default().to_owned();
    tokio::time::sleep(Duration::from_secs(30)).await;
    let new = scene.cloud.world(|world| world.scale_out(&set, 1));
    let all = scene.instances();
    let new: Vec<&Instance> = new.iter().filter_map(|id| all.get(&id.to_lowercase())).collect();
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let joined = measures::join(&scene.cluster, &manager, Scene::nodes(new.into_iter(), false));
    joined.await?;
    let calls = scene.calls(mark);
    table("Azure sets: one new node in 50 sets of two");
    row("initialized after", began.elapsed().as_secs_f64(), " s", None);
    row("calls", sum(&calls), "", Some(3.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// The routes of 1,000 nodes, in a table of this many.
pub(super) async fn routes(scene: &Scene, limit: usize) -> anyhow::Result<()> {
    scene.cloud.change(|options| options.limits.routes = limit);
    // Routes need the addresses of nodes.
    scene.program_over(1, 1000).await?.stop().await?;
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let manager = scene.program(true).await?;
    // Events about nodes without a route go on.
    let written = || u64::try_from(scene.written(0)).unwrap_or(u64::MAX);
    measures::settled(&manager, written, Duration::from_secs(20)).await?;
    let calls = scene.calls(mark);
    let made = scene.cloud.objects("Microsoft.Network/routeTables");
    let made = made.first().and_then(|table| table.pointer("/properties/routes")?.as_array().map(Vec::len));
    table(&format!("Azure routes: 1,000 nodes, a table of {limit} routes"));
    row("settled after", began.elapsed().as_secs_f64() - 20.0, " s", None);
    row("routes", count(made.unwrap_or_default()), "", Some(count(limit)));
    row("PUTs of the table", of(&calls, "routeTables.put"), "", Some(1.0));
    row("reads of the table", of(&calls, "routeTables.get"), "", None);
    let mut events = 0;
    let is_due = |event: &serde_json::Value| text(event, "/reason") == "FailedToCreateRoute";
    scene.cluster.each("/api/v1/events", |event| events += usize::from(is_due(event))).await?;
    row("events about nodes without a route", count(events), "", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// The memory of the program with many nodes and Services, at rest and at its peak.
pub(super) async fn memory(scene: &Scene, nodes: usize, services: usize) -> anyhow::Result<()> {
    let manager = scene.program_over(4, nodes / 4).await?;
    scene.services(0..services).await?;
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let memory = manager.memory()?;
    table(&format!("Azure memory: {nodes} nodes, {services} Services"));
    row("RSS", mib(memory.now), " MiB", Some(150.0));
    row("RSS at its peak", mib(memory.peak), " MiB", None);
    row("CPU of the program", manager.cpu()?, " s", None);
    manager.stop().await
}

/// A period in which only kubelets write their status.
pub(super) async fn quiet(scene: &Scene, services: usize, minutes: u64) -> anyhow::Result<()> {
    let manager = scene.program_over(2, 500).await?;
    scene.services(0..services).await?;
    scene.rest(&manager, Duration::from_secs(20)).await?;
    let names = scene.instances().into_values().map(|it| it.name).collect();
    let mark = scene.cloud.mark();
    let quiet = measures::quiet(&scene.cluster, &manager, names, minutes).await?;
    let calls = scene.calls(mark);
    table(&format!("Azure quiet: 1,000 nodes, {services} Services, {minutes} minutes, per hour"));
    row("calls", sum(&calls) * quiet.per_hour, "", Some(60.0));
    row("cloud writes", count(scene.written(mark)) * quiet.per_hour, "", Some(0.0));
    quiet.print(None);
    println!("calls in {minutes} minutes: {}", listed(&calls));
    manager.stop().await
}

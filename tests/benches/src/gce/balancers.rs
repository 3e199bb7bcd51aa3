//! Services with a load balancer each: the sync of one, creation and deletion of many, and a node that joins.

use std::time::{Duration, Instant};

use ccm_cloudsim::gce::BALANCING;
use serde_json::json;

use super::{Kind, NODES, OPERATION, Scene, ZONES, listed, name, of, row, sum, table};
use crate::cluster::SERVICES;
use crate::measures;
use crate::process::Manager;
use crate::runs::{BURST, count};

/// Writes per second that stay below the quota of the API.
const PACE: f64 = 18.0;
/// Burst of writes after a quiet period.
const AT_ONCE: f64 = 240.0;
/// The cost of one sync of a Service in the desired state.
pub(super) async fn looks(scene: &Scene) -> anyhow::Result<()> {
    let manager = scene.program_over(NODES).await?;
    scene.services(0..1, Kind::External).await?;
    scene.services(1..2, Kind::Internal).await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    for (number, what, goal) in [(0, "external", 6.0), (1, "internal, three zones", 5.0 + 2.0 * count(ZONES.len()))] {
        let mark = scene.cloud.mark();
        let touched = json!({"metadata": {"annotations": {"example.com/touched": mark.to_string()}}});
        scene.cluster.patch(&format!("{SERVICES}/service-{number}"), &touched).await?;
        measures::settled(&manager, || scene.cloud.mark(), Duration::from_secs(10)).await?;
        let calls = scene.calls(mark);
        let writes = count(scene.written(mark));
        table(&format!("GCE look: a Service that is as desired, {what}"));
        row("reads", sum(&calls) - writes, "", Some(goal));
        row("writes", writes, "", Some(0.0));
        println!("calls: {}", listed(&calls));
    }
    manager.stop().await
}

/// A node joins the target pools of many Services.
pub(super) async fn hosts(scene: &Scene, services: usize) -> anyhow::Result<()> {
    let manager = scene.program_over(NODES).await?;
    scene.services(0..services, Kind::External).await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.cluster.make(scene.instances(NODES..NODES + 1, false, true)?, Duration::ZERO).await?;
    let end = format!("/instances/{}", name(NODES));
    let joined = || {
        scene.cloud.world(|world| {
            let pools = world.store.all("targetPools");
            pools.filter(|(_, row)| row.texts("instances").any(|member| member.ends_with(&end))).count()
        })
    };
    while joined() < services {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(3600), "{} of {services} pools after an hour", joined());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let took = began.elapsed();
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let calls = scene.calls(mark);
    table(&format!("GCE hosts: a node joins {services} external Services"));
    row("last pool has it after", took.as_secs_f64(), " s", None);
    row("lists of instances", of(&calls, "instances.list"), "", Some(0.0));
    row("writes", count(scene.written(mark)), "", Some(count(services)));
    row("calls", sum(&calls), "", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// Many Services are created at once, the program restarts, and all are deleted at once.
pub(super) async fn made(scene: &Scene, services: usize, kind: Kind) -> anyhow::Result<()> {
    let manager = scene.program_over(NODES).await?;
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.services(0..services, kind).await?;
    let took = began.elapsed();
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let (calls, writes) = (scene.calls(mark), count(scene.written(mark)));
    let what = if kind == Kind::External { "external" } else { "internal" };
    table(&format!("GCE {what}: {services} Services made at once, {} s for an operation", OPERATION.as_secs()));
    row("all have an address after", took.as_secs_f64(), " s", None);
    row("their writes at the pace of the quota", (writes - AT_ONCE).max(0.0) / PACE, " s", None);
    row("writes per Service", writes / count(services.max(1)), "", None);
    row("calls per Service", sum(&calls) / count(services.max(1)), "", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await?;
    let manager = restart(scene, services, what).await?;
    let names: Vec<String> = (0..services).map(|number| format!("service-{number}")).collect();
    end(scene, &manager, &names, what, 0).await?;
    manager.stop().await
}

async fn restart(scene: &Scene, services: usize, what: &str) -> anyhow::Result<Manager> {
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let manager = scene.program().await?;
    let last = measures::settled(&manager, || scene.cloud.mark(), Duration::from_secs(15)).await?;
    let (calls, writes) = (scene.calls(mark), count(scene.written(mark)));
    table(&format!("GCE restart: {services} {what} Services in place"));
    row("at rest after", last.saturating_duration_since(began).as_secs_f64(), " s", None);
    row("cloud writes", writes, "", Some(0.0));
    row("reads", sum(&calls) - writes, "", Some(30.0));
    println!("calls: {}", listed(&calls));
    Ok(manager)
}

/// Deletes all Services. `theirs`: the number of foreign objects.
pub(super) async fn end(
    scene: &Scene,
    manager: &Manager,
    names: &[String],
    what: &str,
    theirs: usize,
) -> anyhow::Result<()> {
    let (services, mark, began) = (names.len(), scene.cloud.mark(), Instant::now());
    scene.cluster.delete_services(names.iter().map(String::as_str)).await?;
    let took = began.elapsed();
    scene.rest(manager, BURST).await?;
    let (calls, writes) = (scene.calls(mark), count(scene.written(mark)));
    let left: usize = BALANCING.into_iter().map(|collection| scene.objects(collection)).sum();
    table(&format!("GCE end: {services} {what} Services deleted at once"));
    row("all are gone after", took.as_secs_f64(), " s", None);
    row("writes per Service", writes / count(services.max(1)), "", None);
    row("calls per Service", sum(&calls) / count(services.max(1)), "", None);
    row("objects left", count(left.saturating_sub(theirs)), "", Some(0.0));
    println!("calls: {}", listed(&calls));
    Ok(())
}

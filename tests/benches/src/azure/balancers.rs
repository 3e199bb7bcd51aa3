//! Services on shared load balancers: many made and deleted together, a restart, a sync of one, and nodes that change.

use std::time::{Duration, Instant};

use serde_json::json;

use super::{Instance, Scene, listed, of, row, service, sum, table};
use crate::cluster::SERVICES;
use crate::measures;
use crate::process::Manager;
use crate::runs::count;

/// Many Services are made at 20 a second, the program restarts, one is touched, and all are deleted.
pub(super) async fn made(scene: &Scene, services: usize, sets: usize) -> anyhow::Result<()> {
    let manager = scene.program_over(sets, 100 / sets).await?;
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.services(0..services).await?;
    let took = began.elapsed();
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let calls = scene.calls(mark);
    let kind =
        if sets == 1 { "one load balancer, pools of interfaces" } else { "two load balancers, pools of addresses" };
    table(&format!("Azure made: {services} Services at 20 a second, {kind}, 100 nodes"));
    row("last address after", took.as_secs_f64(), " s", Some(180.0));
    row("PUTs of public IP addresses", of(&calls, "publicIPAddresses.put"), "", Some(count(services)));
    row("PUTs of load balancers", of(&calls, "loadBalancers.put"), "", None);
    row("PUTs of the security group", of(&calls, "networkSecurityGroups.put"), "", None);
    row("calls per Service", sum(&calls) / count(services.max(1)), "", None);
    row("429", count(scene.throttled(mark)), "", Some(0.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await?;
    let manager = restart(scene, services, sets).await?;
    look(scene, &manager).await?;
    end(scene, &manager, services).await?;
    manager.stop().await
}

async fn restart(scene: &Scene, services: usize, sets: usize) -> anyhow::Result<Manager> {
    let mark = scene.cloud.mark();
    let manager = scene.program(false).await?;
    measures::settled(&manager, || scene.cloud.mark(), Duration::from_secs(15)).await?;
    let calls = scene.calls(mark);
    table(&format!("Azure restart: {services} Services in place, {sets} scale sets"));
    row("cloud writes", count(scene.written(mark)), "", Some(0.0));
    row(
        "lists of load balancers and addresses",
        of(&calls, "loadBalancers.list") + of(&calls, "publicIPAddresses.list"),
        "",
        Some(2.0),
    );
    row("reads of the security group", of(&calls, "networkSecurityGroups.get"), "", Some(1.0));
    row("lists of instances", of(&calls, "virtualMachineScaleSetVMs.list"), "", Some(count(sets)));
    row("calls of all kinds", count(usize::try_from(scene.all_calls(mark))?), "", Some(10.0));
    println!("calls: {}", listed(&calls));
    Ok(manager)
}

/// The cost of a sync of a Service in the desired state.
async fn look(scene: &Scene, manager: &Manager) -> anyhow::Result<()> {
    let mark = scene.cloud.mark();
    let touched = json!({"metadata": {"annotations": {"example.com/touched": mark.to_string()}}});
    scene.cluster.patch(&format!("{SERVICES}/{}", service(0)), &touched).await?;
    measures::settled(manager, || scene.cloud.mark(), Duration::from_secs(10)).await?;
    let calls = scene.calls(mark);
    table("Azure look: a Service that is as desired");
    row("calls", sum(&calls), "", Some(3.0));
    row("writes", count(scene.written(mark)), "", Some(0.0));
    println!("calls: {}", listed(&calls));
    Ok(())
}

async fn end(scene: &Scene, manager: &Manager, services: usize) -> anyhow::Result<()> {
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let names: Vec<String> = (0..services).map(service).collect();
    scene.cluster.delete_services(names.iter().map(String::as_str)).await?;
    let took = began.elapsed();
    scene.rest(manager, Duration::from_secs(10)).await?;
    let (calls, writes) = (scene.calls(mark), count(scene.written(mark)));
    let left = ["loadBalancers", "publicIPAddresses"]
        .map(|kind| scene.cloud.objects(&format!("Microsoft.Network/{kind}")).len());
    table(&format!("Azure end: {services} Services deleted together"));
    row("all are gone after", took.as_secs_f64(), " s", None);
    row("DELETEs of public IP addresses", of(&calls, "publicIPAddresses.delete"), "", Some(count(services)));
    row("PUTs of load balancers", of(&calls, "loadBalancers.put"), "", None);
    row("PUTs of the security group", of(&calls, "networkSecurityGroups.put"), "", None);
    let reads = sum(&calls) - writes;
    row("reads", reads, "", None);
    row("reads per Service", (reads / count(services.max(1))).floor(), "", Some(0.0));
    row("objects left", count(left.iter().sum()), "", Some(0.0));
    row("429", count(scene.throttled(mark)), "", Some(0.0));
    println!("calls: {}", listed(&calls));
    Ok(())
}

/// 10 of 100 nodes are replaced.
pub(super) async fn replaced(scene: &Scene, services: usize) -> anyhow::Result<()> {
    let manager = scene.program_over(1, 100).await?;
    scene.services(0..services).await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let old: Vec<Instance> = scene.instances().into_values().take(10).collect();
    let set = old.first().and_then(|it| it.id.split("/virtualMachines/").next()).unwrap_or_default().to_owned();
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let new = scene.cloud.world(|world| {
        old.iter().for_each(|it| world.delete_machine(&it.id));
        world.scale_out(&set, 10)
    });
    let all = scene.instances();
    let new = new.iter().filter_map(|id| all.get(&id.to_lowercase()));
    scene.cluster.make(Scene::nodes(new, false), Duration::ZERO).await?;
    for it in &old {
        scene.cluster.send(http::Method::DELETE, &format!("/api/v1/nodes/{}", it.name), &json!({})).await?;
    }
    measures::settled(&manager, || scene.cloud.mark(), Duration::from_secs(15)).await?;
    let calls = scene.calls(mark);
    let kind = if scene.more.is_empty() { "interfaces" } else { "addresses" };
    table(&format!("Azure replaced: 10 of 100 nodes, {services} Services, pools of {kind}"));
    row("settled after", began.elapsed().as_secs_f64() - 15.0, " s", None);
    row("PUTs of the pool", of(&calls, "backendAddressPools.put"), "", None);
    row("PUTs of the model", of(&calls, "virtualMachineScaleSets.put"), "", Some(1.0));
    row("PUTs of instances", of(&calls, "virtualMachineScaleSetVMs.put"), "", Some(10.0));
    row("writes", count(scene.written(mark)), "", None);
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// A new Service while 1,000 instances become members.
pub(super) async fn members(scene: &Scene) -> anyhow::Result<()> {
    let manager = scene.program_over(2, 500).await?;
    scene.services(0..1).await?;
    let puts = || of(&scene.calls(0), "virtualMachineScaleSetVMs.put");
    // The first ones are few.
    while puts() < 100.0 {
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let before = puts();
    let began = Instant::now();
    scene.services(1..2).await?;
    let took = began.elapsed();
    table("Azure members: a new Service while 1,000 instances become members");
    row("instances written before", before, "", None);
    row("address after", took.as_secs_f64(), " s", Some(30.0));
    row("instances written then", puts(), "", None);
    manager.stop().await
}

//! A load balancer of many ports, and many load balancers.

use std::time::{Duration, Instant};

use super::{Scene, listed, of, row, sum, table};
use crate::measures;
use crate::runs::count;

/// Behind the load balancers.
const NODES: usize = 160;
const PORTS: u16 = 10;
/// How long Octavia is at work on a change.
const BUSY: Duration = Duration::from_secs(5);

/// A Service of ten ports, and then a node more.
pub(super) async fn ports(scene: &Scene, with_member: bool) -> anyhow::Result<()> {
    let manager = scene.program_over(NODES).await?;
    scene.cloud.change(|options| options.provisioning = BUSY);
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.service("web", 8000..8000 + PORTS).await?;
    scene.cluster.until_served(1).await?;
    let took = began.elapsed();
    scene.rest(&manager, BUSY * 2).await?;
    let calls = scene.calls(mark);
    table(&format!(
        "OpenStack ports: a Service of {PORTS} ports over {NODES} nodes, {} s for each change",
        BUSY.as_secs()
    ));
    row("address after", took.as_secs_f64(), " s", None);
    row("writes", count(scene.written(mark)), "", Some(2.0));
    // Looks at a balancer at work are as many as it needs time. The Go program needs 38 calls in all, on a faster cloud.
    let looks = of(&calls, "load-balancer:loadbalancer_get");
    row("calls besides looks", sum(&calls) - looks, "", Some(19.0));
    row("looks", looks, "", None);
    println!("calls: {}", listed(&calls));
    if with_member {
        member(scene).await?;
    }
    manager.stop().await
}

/// A node joins, and becomes a member of each pool.
async fn member(scene: &Scene) -> anyhow::Result<()> {
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.cluster.make(scene.servers(NODES..NODES + 1, true), Duration::ZERO).await?;
    let members = || scene.cloud.world(|world| world.table("member").len());
    while members() < usize::from(PORTS) * (NODES + 1) {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(600), "{} members after ten minutes", members());
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // The last change was sent; the program waits for its end.
    let took = began.elapsed();
    tokio::time::sleep(BUSY * 2).await;
    let calls = scene.calls(mark);
    table(&format!("OpenStack member: a node more behind {PORTS} ports, {} s for each change", BUSY.as_secs()));
    row("last pool changed after", took.as_secs_f64(), " s", None);
    row("busy time of the changes before it", f64::from(PORTS - 1) * BUSY.as_secs_f64(), " s", None);
    row("writes", count(scene.written(mark)), "", Some(f64::from(PORTS)));
    // Octavia refuses a change that comes too early; the program learns how long changes take, up to three seconds.
    let sent = of(&calls, "load-balancer:loadbalancer_members_update");
    row("changes that came too early", sent - f64::from(PORTS), "", None);
    row("other calls of load balancers", of(&calls, "load-balancer") - sent, "", Some(18.0));
    println!("calls: {}", listed(&calls));
    Ok(())
}

/// Another process over Services that match.
pub(super) async fn restart(scene: &Scene, services: usize) -> anyhow::Result<()> {
    let manager = scene.program_over(3).await?;
    scene.services(services).await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    manager.stop().await?;
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    let manager = scene.program().await?;
    let last = measures::settled(&manager, || scene.cloud.mark(), Duration::from_secs(10)).await?;
    let calls = scene.calls(mark);
    table(&format!("OpenStack restart: {services} Services in place"));
    row("at rest after", (last - began).as_secs_f64(), " s", None);
    row("cloud writes", count(scene.written(mark)), "", Some(0.0));
    let reads = of(&calls, "load-balancer") + of(&calls, "network:floating_ip");
    row("reads for Services", reads, "", Some(4.0 + count(services) / 10.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

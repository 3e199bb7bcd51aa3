//! A load balancer with many ports, and many load balancers.

use std::time::{Duration, Instant};

use super::{Scene, WRITE, listed, of, row, sum, table};
use crate::measures;
use crate::runs::count;

/// The hosts of the load balancers.
const NODES: usize = 160;
const PORTS: u16 = 10;
/// After this time without activity, a measurement ends.
const REST: Duration = Duration::from_secs(10);

/// A Service with ten ports, and then another node. Octavia takes some time for each change.
pub(super) async fn ports(scene: &Scene, busy: Duration, with_member: bool) -> anyhow::Result<()> {
    let manager = scene.program_over(NODES).await?;
    scene.cloud.change(|options| options.provisioning = busy);
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.service("web", 8000..8000 + PORTS).await?;
    scene.cluster.until_served(1).await?;
    let took = began.elapsed();
    scene.rest(&manager, busy * 2 + REST).await?;
    let calls = scene.calls(mark);
    table(&format!(
        "OpenStack ports: a Service of {PORTS} ports over {NODES} nodes, {} s for each change",
        busy.as_secs()
    ));
    row("address after", took.as_secs_f64(), " s", None);
    row("writes", count(scene.written(mark)), "", Some(2.0));
    // The number of reads of a pending load balancer depends on its duration. The Go program needs 38 calls in total,
    // on a faster cloud.
    let looks = of(&calls, "load-balancer:loadbalancer_get");
    row("calls besides looks", sum(&calls) - looks, "", Some(19.0));
    row("looks", looks, "", None);
    println!("calls: {}", listed(&calls));
    if with_member {
        member(scene, busy).await?;
    }
    manager.stop().await
}

/// A node joins and becomes a member of each pool.
async fn member(scene: &Scene, busy: Duration) -> anyhow::Result<()> {
    let (mark, began) = (scene.cloud.mark(), Instant::now());
    scene.cluster.make(scene.servers(NODES..NODES + 1, true), Duration::ZERO).await?;
    let sent = || scene.cloud.ledger(|ledger| ledger.mutating(mark).filter(|entry| entry.applied).count());
    while sent() == 0 {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(600), "no change after ten minutes");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    // The program has received the node and sends the first change.
    let began = Instant::now();
    let members = || scene.cloud.world(|world| world.table("member").len());
    while members() < usize::from(PORTS) * (NODES + 1) {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(900), "{} members after 15 minutes", members());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let took = began.elapsed();
    // The program waits for the end of the last change.
    tokio::time::sleep(busy * 2 + REST).await;
    let calls = scene.calls(mark);
    table(&format!("OpenStack member: a node more behind {PORTS} ports, {} s for each change", busy.as_secs()));
    let floor = f64::from(PORTS - 1) * (busy + WRITE).as_secs_f64();
    row("from the first change to the last", took.as_secs_f64(), " s", Some((floor * 1.1).round()));
    row("of it Octavia's own time, and the calls", floor, " s", None);
    row("writes", count(scene.written(mark)), "", Some(f64::from(PORTS)));
    // Octavia rejects a change while another one is pending.
    let sent = of(&calls, "load-balancer:loadbalancer_members_update");
    row("changes that came too early", sent - f64::from(PORTS), "", Some(3.0));
    row("calls of load balancers", of(&calls, "load-balancer"), "", Some(18.0));
    println!("calls: {}", listed(&calls));
    Ok(())
}

/// Another process with Services in the desired state.
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

//! Many nodes at once.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::{Machine, Scene, listed, nodes_of, row, sum, table};
use crate::cluster::text;
use crate::measures::UNTAINTED;
use crate::runs::{BURST, count, mib};

/// Counts nodes whose addresses are also written.
pub(super) const INITIALIZED: &str = "node_controller_initial_node_sync_delay_seconds_count";

/// A burst of new nodes: the time until the last taint is removed, and the cost.
pub(super) async fn burst(scene: Scene, nodes: usize, with_id: bool) -> anyhow::Result<()> {
    let machines = scene.machines(nodes)?;
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(3)).await?;
    let (mark, writes, cpu) = (scene.aws.mark(), manager.writes().await?, manager.cpu()?);
    let calls = nodes_of(&machines, 0, with_id, true);
    let began = Instant::now();
    let cluster = scene.cluster.clone();
    let loader = tokio::spawn(async move { cluster.make(calls, BURST).await });
    let until_all = async |metric| loop {
        // Polling costs the program some CPU time.
        tokio::time::sleep(Duration::from_millis(500)).await;
        let done = manager.metric(metric, "").await?;
        if done >= count(nodes) {
            break Ok(Instant::now());
        }
        anyhow::ensure!(began.elapsed() < Duration::from_secs(900), "only {done} of {nodes} nodes after 15 minutes");
    };
    let (last, initialized) = (until_all(UNTAINTED).await?, until_all(INITIALIZED).await?);
    let made = loader.await??;
    let (calls, cpu, memory) = (scene.calls(mark), manager.cpu()? - cpu, manager.memory()?);
    let writes = manager.writes().await? - writes;
    let how = if with_id { "with provider IDs" } else { "found by their private DNS names" };
    table(&format!("AWS burst: {nodes} tainted nodes of 20 KB within {} s, {how}", BURST.as_secs()));
    row("last node made after", made.duration_since(began).as_secs_f64(), " s", None);
    row(
        "last taint removed after the last node was made",
        last.saturating_duration_since(made).as_secs_f64(),
        " s",
        Some(5.0),
    );
    let initialized = initialized.saturating_duration_since(made);
    row("last addresses written after that", initialized.as_secs_f64(), " s", None);
    row("cloud calls", sum(&calls), "", Some(30.0));
    row("CPU of the program", cpu, " s", Some(3.0));
    row("API writes", writes, "", None);
    row("RSS", mib(memory.now), " MiB", None);
    row("RSS at its peak", mib(memory.peak), " MiB", None);
    row("nodes not as desired", count(wrong(&scene, &machines).await?), "", Some(0.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// The number of nodes that are not completely initialized: taint, provider ID, type, zones and addresses.
async fn wrong(scene: &Scene, machines: &[Machine]) -> anyhow::Result<usize> {
    let ids: BTreeMap<&str, &str> = machines.iter().map(|m| (m.dns.as_str(), m.provider_id.as_str())).collect();
    let mut right = 0;
    scene
        .cluster
        .each("/api/v1/nodes", |node| {
            let text = |path: &str| text(node, path);
            let label = |key: &str| !text(&format!("/metadata/labels/{}", key.replace('/', "~1"))).is_empty();
            let list = |path: &str| node.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
            let is_tainted = list("/spec/taints").iter().any(|taint| {
                taint.get("key").and_then(Value::as_str) == Some("node.cloudprovider.kubernetes.io/uninitialized")
            });
            let has_ip =
                list("/status/addresses").iter().any(|a| a.get("type").and_then(Value::as_str) == Some("InternalIP"));
            let labeled =
                ["node.kubernetes.io/instance-type", "topology.kubernetes.io/zone", "topology.k8s.aws/zone-id"];
            let own = ids.get(&*text("/metadata/name")).is_some_and(|id| *id == text("/spec/providerID"));
            right += usize::from(own && has_ip && !is_tainted && labeled.into_iter().all(label));
        })
        .await?;
    Ok(machines.len() - right)
}

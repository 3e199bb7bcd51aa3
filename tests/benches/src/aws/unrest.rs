//! Nodes that are not Ready, and a cloud that omits instances or throttles.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use serde_json::Value;

use super::nodes::INITIALIZED;
use super::{Machine, Scene, listed, nodes_of, row, sum, table};
use crate::runs::count;

/// The number of nodes in these runs.
const NODES: usize = 1000;
/// The number of nodes that lose contact,
const LOST: usize = 333;
/// and how many of their instances are terminated.
const GONE: usize = 20;
/// The number of instances missing in an answer, and the number of such answers.
const LEFT_OUT: usize = 10;
const ANSWERS: usize = 6;
/// Absence is evidence only for nodes older than this.
const AGED: Duration = Duration::from_secs(310);
/// New nodes per second, before and while the cloud throttles.
const NEW_PER_SECOND: u32 = 5;
const MINUTE: Duration = Duration::from_secs(60);

/// Some nodes lose contact, a few instances are deleted, and answers are partial.
pub(super) async fn partial(scene: Scene) -> anyhow::Result<()> {
    let machines = scene.machines(NODES)?;
    scene.cluster.make(nodes_of(&machines, 0, true, false), Duration::ZERO).await?;
    let manager = scene.program().await?;
    tokio::time::sleep(AGED).await;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let (lost, _) = machines.split_at(LOST);
    let (gone, alive) = lost.split_at(GONE);
    let mark = scene.aws.mark();
    scene.terminate(&gone.iter().map(|machine| machine.id.clone()).collect::<Vec<_>>());
    for machine in lost {
        scene.cluster.set_ready(&machine.dns, false).await?;
    }
    let began = Instant::now();
    let out =
        |answer: usize| alive.iter().skip(answer * LEFT_OUT).take(LEFT_OUT).map(|machine| machine.id.clone()).collect();
    scene.leave_out_once(out(0)).await;
    for machine in gone {
        while scene.cluster.exists(&format!("/api/v1/nodes/{}", machine.dns)).await? {
            anyhow::ensure!(began.elapsed() < Duration::from_secs(300), "the node of {} is still there", machine.id);
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
    let deleted = began.elapsed();
    for answer in 1..ANSWERS {
        scene.leave_out_once(out(answer)).await;
        // The pass over this answer must finish before the next answer is changed.
        tokio::time::sleep(Duration::from_secs(7)).await;
    }
    let calls = scene.calls(mark);
    let passed = began.elapsed().as_secs_f64();
    let mut left = BTreeSet::new();
    let name = |node: &Value| node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned();
    scene.cluster.each("/api/v1/nodes", |node| left.extend([name(node)])).await?;
    let is_missing = |machine: &&Machine| !left.contains(&machine.dns);
    let (_, living) = machines.split_at(GONE);
    table(&format!(
        "AWS partial: {LOST} of {NODES} nodes not Ready, {GONE} terminated; {ANSWERS} answers leave out {LEFT_OUT} instances each"
    ));
    row("last of the gone deleted after", deleted.as_secs_f64(), " s", Some(10.0));
    row("nodes wrongly deleted", count(living.iter().filter(is_missing).count()), "", Some(0.0));
    row("cloud calls per minute", sum(&calls) * 60.0 / passed, "", Some(30.0));
    println!("calls: {}", listed(&calls));
    manager.stop().await
}

/// New nodes join continuously; for a minute every EC2 call is throttled.
pub(super) async fn throttle(scene: Scene) -> anyhow::Result<()> {
    let new = usize::try_from(NEW_PER_SECOND)? * 120;
    let machines = scene.machines(NODES + new)?;
    let (present, coming) = machines.split_at(NODES);
    scene.cluster.make(nodes_of(present, 0, true, false), Duration::ZERO).await?;
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    let done = manager.metric(INITIALIZED, "").await?;
    let mark = scene.aws.mark();
    let loader = tokio::spawn({
        let (cluster, nodes) = (scene.cluster.clone(), nodes_of(coming, NODES, true, true));
        async move { cluster.make(nodes, 2 * MINUTE).await }
    });
    tokio::time::sleep(MINUTE).await;
    let (before, mark) = (scene.calls(mark), scene.aws.mark());
    scene.aws.fault(Rule { service: Some("ec2".to_owned()), ..Rule::every(Fault::Throttle) });
    tokio::time::sleep(MINUTE).await;
    let (during, waiting) = (scene.calls(mark), manager.metric(INITIALIZED, "").await? - done);
    scene.aws.faults(Faults::clear);
    let ended = Instant::now();
    loader.await??;
    while manager.metric(INITIALIZED, "").await? - done < count(new) {
        anyhow::ensure!(ended.elapsed() < Duration::from_secs(300), "new nodes still wait after 5 minutes");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    table(&format!(
        "AWS throttling: {NODES} nodes, {NEW_PER_SECOND} new ones a second, a minute in which EC2 throttles every call"
    ));
    row("calls in the minute before", sum(&before), "", None);
    row("calls in the minute of throttling", sum(&during), "", None);
    row("the second divided by the first", sum(&during) / sum(&before).max(1.0), "", Some(0.1));
    row("new nodes that waited at its end", count(new) - waiting, "", None);
    row("the last of them done after", ended.elapsed().as_secs_f64(), " s", Some(5.0));
    println!("calls before: {}\ncalls during: {}", listed(&before), listed(&during));
    manager.stop().await
}

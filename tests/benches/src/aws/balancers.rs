//! Many Services with a Network Load Balancer each: a restart, replaced nodes, and memory use.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::Method;
use serde_json::{Value, json};

use super::{Machine, Scene, listed, nodes_of, row, sum, table};
use crate::cluster::{NodeSpec, text};
use crate::measures;
use crate::runs::{count, mib};

/// The hosts of the load balancers, a part of all nodes: a target group accepts at most 1,000 targets.
const TARGETS: usize = 100;
const REPLACED: usize = 10;
/// Label of the hosts of the load balancers.
const EDGE: (&str, &str) = ("node.example.com/edge", "true");

/// Creates the Services, restarts the program, replaces nodes.
pub(super) async fn run(scene: Scene, nodes: usize, services: usize) -> anyhow::Result<()> {
    let machines = scene.machines(nodes)?;
    let (targets, others) = machines.split_at(TARGETS.min(machines.len()));
    scene.cluster.make(edge(targets, 0, false), Duration::ZERO).await?;
    scene.cluster.make(nodes_of(others, TARGETS, true, false), Duration::ZERO).await?;
    let manager = scene.program().await?;
    scene.rest(&manager, Duration::from_secs(10)).await?;
    create(&scene, services).await?;
    scene.rest(&manager, Duration::from_secs(15)).await?;
    manager.stop().await?;
    restart(&scene, nodes, services).await
}

fn edge(machines: &[Machine], first: usize, tainted: bool) -> Vec<Bytes> {
    let node =
        |(machine, number): (&Machine, usize)| NodeSpec { labels: vec![EDGE], ..machine.node(number, true, tainted) };
    machines.iter().zip(first..).map(|pair| node(pair).call()).collect()
}

async fn create(scene: &Scene, services: usize) -> anyhow::Result<()> {
    let (began, mark) = (Instant::now(), scene.aws.mark());
    for number in 0..services {
        let annotations = json!({
            "service.beta.kubernetes.io/aws-load-balancer-type": "nlb",
            "service.beta.kubernetes.io/aws-load-balancer-target-node-labels": format!("{}={}", EDGE.0, EDGE.1)});
        let ports = json!([{"name": "web", "port": 443, "targetPort": 8443, "protocol": "TCP"}]);
        scene.cluster.make_service(&format!("service-{number}"), annotations, json!({"ports": ports})).await?;
    }
    scene.cluster.until_served(services).await?;
    table(&format!("AWS balancers: {services} Services with an NLB of one port, made at once"));
    row("all have an address after", began.elapsed().as_secs_f64(), " s", None);
    let calls = scene.calls(mark);
    row("calls per Service", sum(&calls) / count(services.max(1)), "", None);
    println!("calls: {}", listed(&calls));
    Ok(())
}

async fn restart(scene: &Scene, nodes: usize, services: usize) -> anyhow::Result<()> {
    let (began, mark) = (Instant::now(), scene.aws.mark());
    let manager = scene.program().await?;
    let last = measures::settled(&manager, || scene.aws.mark(), Duration::from_secs(15)).await?;
    let (calls, writes) = (scene.calls(mark), manager.writes().await?);
    let events = manager.metric("ccm_events_total", "").await?;
    let mutating = scene.aws.ledger(|ledger| ledger.mutating(mark).count());
    let memory = manager.memory()?;
    table(&format!("AWS restart: {services} NLB Services with {TARGETS} targets in place, {nodes} nodes of 20 KB"));
    row("cloud writes", count(mutating), "", Some(0.0));
    row("API writes besides events", (writes - events).max(0.0), "", Some(0.0));
    row("events", events, "", None);
    row("reads per Service", sum(&calls) / count(services.max(1)), "", Some(5.0));
    row("at rest after", (last - began).as_secs_f64(), " s", None);
    row("CPU until then", manager.cpu()?, " s", None);
    row("RSS", mib(memory.now), " MiB", Some(40.0));
    row("RSS at its peak", mib(memory.peak), " MiB", None);
    println!("calls: {}", listed(&calls));
    replace(scene, &manager, nodes).await?;
    let memory = manager.memory()?;
    row("RSS", mib(memory.now), " MiB", Some(40.0));
    row("RSS at its peak", mib(memory.peak), " MiB", None);
    manager.stop().await
}

/// Replaces some of the hosts of the load balancers.
async fn replace(scene: &Scene, manager: &crate::process::Manager, nodes: usize) -> anyhow::Result<()> {
    let mark = scene.aws.mark();
    let mut names = Vec::new();
    let is_edge = |node: &Value| node.pointer("/metadata/labels/node.example.com~1edge").is_some();
    scene
        .cluster
        .each("/api/v1/nodes", |node| {
            if is_edge(node) && names.len() < REPLACED {
                names.push(text(node, "/metadata/name"));
            }
        })
        .await?;
    // The instances stay: AWS itself removes only terminated targets.
    for name in &names {
        scene.cluster.send(Method::DELETE, &format!("/api/v1/nodes/{name}"), &json!({})).await?;
    }
    let new = scene.machines(REPLACED)?;
    scene.cluster.make(edge(&new, nodes, true), Duration::ZERO).await?;
    scene.rest(manager, Duration::from_secs(30)).await?;
    let mut by_group: BTreeMap<(String, String), usize> = BTreeMap::new();
    scene.aws.ledger(|ledger| {
        for entry in ledger.mutating(mark) {
            let arn = entry.params.split('&').find_map(|pair| pair.strip_prefix("TargetGroupArn="));
            *by_group.entry((entry.action.clone(), arn.unwrap_or_default().to_owned())).or_default() += 1;
        }
    });
    let most = |action: &str| {
        let of_action = by_group.iter().filter(|((a, _), _)| a == action).map(|(_, calls)| *calls);
        count(of_action.max().unwrap_or_default())
    };
    let targets = scene.aws.world(|world| {
        let groups = world.elbv2.groups.values();
        let wrong =
            groups.filter(|group| !new.iter().all(|machine| group.targets.keys().any(|id| id.contains(&machine.id))));
        wrong.count()
    });
    table(&format!("AWS nodes replaced: {REPLACED} of {TARGETS} behind the balancers"));
    row("most RegisterTargets for one target group", most("RegisterTargets"), "", Some(1.0));
    row("most DeregisterTargets for one target group", most("DeregisterTargets"), "", Some(1.0));
    row("target groups that lack a new node", count(targets), "", Some(0.0));
    let others =
        by_group.iter().filter(|((action, _), _)| !action.ends_with("registerTargets") && action != "RegisterTargets");
    row("other writes", count(others.map(|(_, calls)| *calls).sum()), "", Some(0.0));
    println!("calls: {}", listed(&scene.calls(mark)));
    Ok(())
}

//! Initialization and lifecycle of nodes.

use anyhow::{Result, ensure};
use ccm_test_bed::{Make, Object, node};
use serde_json::{Value, json};

use crate::world::{TYPE, World, node_path};

const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";

/// A new node with an instance, after it has been initialized.
async fn initialized(world: &World, make: Make, address: &str) -> Result<Object> {
    let name = name_of(&make);
    world.add_instance(&name, address)?;
    world.create(make.uninitialized()).await?;
    world.until_so(&node_path(&name), "without the taint", |node| !node.is_uninitialized()).await
}

fn name_of(make: &Make) -> String {
    make.object.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

pub(crate) fn known(name: &str) -> Make {
    node(name).provider_id(&format!("fake://{name}"))
}

fn expect(found: &str, wanted: &str) -> Result<()> {
    ensure!(found == wanted, "{found:?} instead of {wanted:?}");
    Ok(())
}

pub(super) async fn taint(world: &World) -> Result<()> {
    let node = initialized(world, node("taint").taint("example.com/own", "NoSchedule"), "10.0.1.1").await?;
    expect(&node.taints().join(","), "example.com/own:NoSchedule")
}

pub(super) async fn provider_id(world: &World) -> Result<()> {
    let node = initialized(world, node("provider-id"), "10.0.1.2").await?;
    expect(node.provider_id(), "fake://provider-id")
}

pub(super) async fn labels(world: &World) -> Result<()> {
    let node = initialized(world, node("labels"), "10.0.1.3").await?;
    for (key, value) in [
        ("node.kubernetes.io/instance-type", TYPE),
        ("beta.kubernetes.io/instance-type", TYPE),
        ("topology.kubernetes.io/zone", "here-a"),
        ("failure-domain.beta.kubernetes.io/zone", "here-a"),
        ("topology.kubernetes.io/region", "here"),
        ("failure-domain.beta.kubernetes.io/region", "here"),
    ] {
        ensure!(node.label(key) == value, "{key} is {:?} instead of {value:?}", node.label(key));
    }
    Ok(())
}

pub(super) async fn additional_labels(world: &World) -> Result<()> {
    let node = initialized(world, node("more-labels"), "10.0.1.4").await?;
    expect(node.label("example.com/rack"), "r7")
}

pub(super) async fn addresses(world: &World) -> Result<()> {
    let make = node("addresses").address("InternalIP", "192.0.2.1").address("Hostname", "own-name");
    initialized(world, make, "10.0.1.5").await?;
    let wanted = ["InternalIP=10.0.1.5", "Hostname=own-name"];
    world.until_so(&node_path("addresses"), "both addresses", |node| node.addresses() == wanted).await.map(drop)
}

pub(super) async fn node_ip(world: &World) -> Result<()> {
    let address = |address: &str| json!({"type": "InternalIP", "address": address});
    world.set_instance(
        json!({"name": "node-ip", "type": TYPE, "addresses": [address("10.0.1.6"), address("10.0.1.7")]}),
    )?;
    world.create(node("node-ip").uninitialized().provided_ip("10.0.1.7")).await?;
    let is_first = |node: &Object| node.addresses().first().is_some_and(|first| first == "InternalIP=10.0.1.7");
    world.until_so(&node_path("node-ip"), "its address is first", is_first).await.map(drop)
}

pub(super) async fn event(world: &World) -> Result<()> {
    initialized(world, node("event"), "10.0.1.8").await?;
    world.until_event("event", "Normal Synced: ").await
}

pub(super) async fn unknown(world: &World) -> Result<()> {
    world.fail("InstanceMetadata", "node", "unknown")?;
    world.create(node("unknown").uninitialized()).await?;
    // Made later, and done.
    initialized(world, node("after-unknown"), "10.0.1.9").await?;
    let node = world.until_so(&node_path("unknown"), "there", |_| true).await?;
    ensure!(node.is_uninitialized(), "the taint was removed");
    world.add_instance("unknown", "10.0.1.10")?;
    world.repair("InstanceMetadata", "node", "unknown")?;
    world.until_so(&node_path("unknown"), "initialized", |node| !node.is_uninitialized()).await.map(drop)
}

pub(super) async fn plain(world: &World) -> Result<()> {
    world.add_instance("plain", "10.0.1.11")?;
    world.create(known("plain")).await?;
    let has_address = |node: &Object| node.addresses().contains(&"InternalIP=10.0.1.11".to_owned());
    let node = world.until_so(&node_path("plain"), "has its address", has_address).await?;
    expect(node.label("node.kubernetes.io/instance-type"), "")
}

pub(super) async fn follow(world: &World) -> Result<()> {
    initialized(world, node("follow"), "10.0.1.12").await?;
    world.add_instance("follow", "10.0.1.13")?;
    let wanted = ["InternalIP=10.0.1.13"];
    world.until_so(&node_path("follow"), "the new address", |node| node.addresses() == wanted).await.map(drop)
}

/// Creates a node whose instance is gone, and waits until it is deleted: a pass over all nodes.
async fn pass(world: &World, name: &str) -> Result<()> {
    world.create(known(name).ready("Unknown")).await?;
    world.until_gone(&node_path(name)).await
}

pub(super) async fn gone(world: &World) -> Result<()> {
    pass(world, "gone").await?;
    world.until_event("gone", "Normal DeletingNode: ").await
}

pub(super) async fn ready(world: &World) -> Result<()> {
    world.create(known("ready")).await?;
    pass(world, "ready-pass-1").await?;
    pass(world, "ready-pass-2").await?;
    ensure!(world.get(&node_path("ready")).await?.is_some(), "it was deleted");
    Ok(())
}

pub(super) async fn unsure(world: &World) -> Result<()> {
    world.fail("InstanceExists", "node", "unsure")?;
    world.create(known("unsure").ready("Unknown")).await?;
    pass(world, "unsure-pass-1").await?;
    pass(world, "unsure-pass-2").await?;
    match world.get(&node_path("unsure")).await? {
        None => anyhow::bail!("it was deleted"),
        Some(node) => expect(&node.taints().join(","), ""),
    }
}

pub(super) async fn shutdown(world: &World) -> Result<()> {
    world.set_instance(json!({"name": "stopped", "type": TYPE, "shutdown": true}))?;
    world.create(known("stopped").ready("Unknown")).await?;
    let path = node_path("stopped");
    world.until_so(&path, "has the taint", |node| node.taints() == [SHUTDOWN]).await?;
    world.set_instance(json!({"name": "stopped", "type": TYPE}))?;
    let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
    world.patch(&format!("{path}/status"), ready).await?;
    world.until_so(&path, "without the taint", |node| node.taints().is_empty()).await.map(drop)
}

//! Routes to the pods.

use anyhow::{Context as _, Result, ensure};
use ccm_test_bed::{Make, Object};

use super::nodes::known;
use crate::world::{World, node_path};

const CONDITION: &str = "NetworkUnavailable";

/// `status reason` of the condition.
pub(crate) fn network(node: &Object) -> String {
    let condition = node.condition(CONDITION).unwrap_or_default();
    let text = |key: &str| condition.get(key).and_then(|value| value.as_str()).unwrap_or_default().to_owned();
    format!("{} {}", text("status"), text("reason"))
}

fn ranged(world: &World, name: &str, number: u8) -> Result<Make> {
    world.add_instance(name, &format!("10.0.3.{number}"))?;
    Ok(known(name).pod_cidr(&format!("10.90.{number}.0/24")))
}

async fn until_network(world: &World, name: &str, wanted: &str) -> Result<Object> {
    let what = format!("{CONDITION} is {wanted}");
    world.until_so(&node_path(name), &what, |node| network(node) == wanted).await
}

pub(super) async fn made(world: &World) -> Result<()> {
    world.create(ranged(world, "routed", 1)?).await?;
    until_network(world, "routed", "False RouteCreated").await.map(drop)
}

pub(super) async fn failed(world: &World) -> Result<()> {
    world.fail("CreateRoute", "node", "unrouted")?;
    world.create(ranged(world, "unrouted", 2)?).await?;
    until_network(world, "unrouted", "True NoRouteCreated").await?;
    world.repair("CreateRoute", "node", "unrouted")?;
    until_network(world, "unrouted", "False RouteCreated").await.map(drop)
}

pub(super) async fn others(world: &World) -> Result<()> {
    world.create(ranged(world, "conditions", 3)?).await?;
    let node = until_network(world, "conditions", "False RouteCreated").await?;
    let ready = node.condition("Ready").context("the condition Ready is gone")?;
    ensure!(ready.get("status").is_some_and(|status| status == "True"), "Ready is {ready}");
    Ok(())
}

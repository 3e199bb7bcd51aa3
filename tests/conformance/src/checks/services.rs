//! Load balancers of Services.

use anyhow::{Result, ensure};
use ccm_test_bed::{Make, Object, service};
use serde_json::json;

use super::nodes::known;
use crate::world::{World, service_path};

const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";

/// Creates it and waits for its address.
pub(crate) async fn ready(world: &World, make: Make) -> Result<Object> {
    let path = service_path(make.object.pointer("/metadata/name").and_then(|name| name.as_str()).unwrap_or_default());
    world.create(make).await?;
    world.until_so(&path, "has an address", |service| !service.ingress().is_empty()).await
}

pub(super) async fn ensured(world: &World) -> Result<()> {
    let made = ready(world, service("ensured")).await?;
    ensure!(made.finalizers() == [FINALIZER], "finalizers {:?}", made.finalizers());
    Ok(())
}

pub(super) async fn events(world: &World) -> Result<()> {
    ready(world, service("events")).await?;
    world.until_event("events", "Normal EnsuringLoadBalancer: ").await?;
    world.until_event("events", "Normal EnsuredLoadBalancer: ").await
}

pub(super) async fn deleted(world: &World) -> Result<()> {
    ready(world, service("deleted")).await?;
    world.delete(&service_path("deleted")).await?;
    world.until_gone(&service_path("deleted")).await?;
    world.until_event("deleted", "Normal DeletingLoadBalancer: ").await?;
    world.until_event("deleted", "Normal DeletedLoadBalancer: ").await
}

pub(super) async fn other_type(world: &World) -> Result<()> {
    ready(world, service("other-type")).await?;
    world.patch(&service_path("other-type"), json!({"spec": {"type": "ClusterIP"}})).await?;
    let is_plain = |service: &Object| service.ingress().is_empty() && service.finalizers().is_empty();
    world.until_so(&service_path("other-type"), "without address and finalizer", is_plain).await?;
    world.until_event("other-type", "Normal DeletedLoadBalancer: ").await
}

#[allow(clippy::indexing_slicing, reason = "a key that is missing is added")]
pub(super) async fn class(world: &World) -> Result<()> {
    world.create(service("class").with(|it| it["spec"]["loadBalancerClass"] = "example.com/other".into())).await?;
    // Made later, and done.
    ready(world, service("after-class")).await?;
    let service = world.until_so(&service_path("class"), "there", |_| true).await?;
    let (addresses, finalizers) = (service.ingress(), service.finalizers());
    ensure!(addresses.is_empty() && finalizers.is_empty(), "addresses {addresses:?}, finalizers {finalizers:?}");
    Ok(())
}

pub(super) async fn failure(world: &World) -> Result<()> {
    world.fail("EnsureLoadBalancer", "service", "default/failure")?;
    world.create(service("failure")).await?;
    world.until_event("failure", "Warning SyncLoadBalancerFailed: Error syncing load balancer: ").await?;
    world.repair("EnsureLoadBalancer", "service", "default/failure")?;
    let has_address = |service: &Object| !service.ingress().is_empty();
    world.until_so(&service_path("failure"), "has an address", has_address).await.map(drop)
}

pub(super) async fn kept(world: &World) -> Result<()> {
    ready(world, service("kept")).await?;
    world.fail("EnsureLoadBalancerDeleted", "service", "default/kept")?;
    world.delete(&service_path("kept")).await?;
    world.until_event("kept", "Warning SyncLoadBalancerFailed: ").await?;
    let service = world.get(&service_path("kept")).await?;
    ensure!(service.is_some_and(|it| it.finalizers() == [FINALIZER]), "its finalizer was removed");
    world.repair("EnsureLoadBalancerDeleted", "service", "default/kept")?;
    world.until_gone(&service_path("kept")).await
}

pub(super) async fn foreign(world: &World) -> Result<()> {
    ready(world, service("foreign").finalizer("example.com/other")).await?;
    world.delete(&service_path("foreign")).await?;
    let left = |service: &Object| service.finalizers() == ["example.com/other"];
    world.until_so(&service_path("foreign"), "only the other finalizer is left", left).await?;
    world.patch(&service_path("foreign"), json!({"metadata": {"finalizers": null}})).await
}

pub(super) async fn hosts(world: &World) -> Result<()> {
    ready(world, service("hosts")).await?;
    world.add_instance("new-host", "10.0.2.1")?;
    world.create(known("new-host")).await?;
    world.until_event("hosts", "Normal UpdatedLoadBalancer: ").await
}

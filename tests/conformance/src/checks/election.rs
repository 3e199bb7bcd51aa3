//! The election of a leader.

use std::time::Duration;

use anyhow::{Result, ensure};
use ccm_test_bed::{Object, Process};
use serde_json::json;

use crate::world::{LIMIT, World, exit, tail, while_it_runs};

const SHORT: &[&str] = &[
    "--leader-elect=true",
    "--leader-elect-lease-duration=12s",
    "--leader-elect-renew-deadline=8s",
    "--leader-elect-retry-period=1s",
];

fn path(namespace: &str, name: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{name}")
}

pub(super) fn holder(lease: &Object) -> &str {
    lease.pointer("/spec/holderIdentity").and_then(serde_json::Value::as_str).unwrap_or_default()
}

/// Starts a program that competes for a lease. Its only controller has nothing to do.
fn compete(world: &World, name: &str, more: &[&str]) -> Process {
    world.launch_as_admin(name, &[SHORT, &["--controllers=route", "--configure-cloud-routes=false"], more].concat())
}

async fn held(world: &World, program: &mut Process, path: &str, not_by: &str) -> Result<String> {
    let is_held = |lease: &Object| !holder(lease).is_empty() && holder(lease) != not_by;
    let lease = while_it_runs(program, world.until_so(path, "held", is_held)).await?;
    Ok(holder(&lease).to_owned())
}

pub(super) async fn lease(world: &World) -> Result<()> {
    let mut program = compete(world, "lease", &[]);
    held(world, &mut program, &path("kube-system", "cloud-controller-manager"), "").await.map(drop)
}

pub(super) async fn chosen(world: &World) -> Result<()> {
    let choice = ["--leader-elect-resource-name=chosen", "--leader-elect-resource-namespace=default"];
    let mut program = compete(world, "chosen", &choice);
    held(world, &mut program, &path("default", "chosen"), "").await.map(drop)
}

pub(super) async fn hand_over(world: &World) -> Result<()> {
    let (resource, path) = ("--leader-elect-resource-name=hand-over", path("kube-system", "hand-over"));
    let mut first = compete(world, "hand-over-1", &[resource]);
    let before = held(world, &mut first, &path, "").await?;
    let mut second = compete(world, "hand-over-2", &[resource]);
    // Longer than a few of its attempts.
    tokio::time::sleep(Duration::from_secs(5)).await;
    ensure!(second.exited().is_none(), "the second one has ended: {}", tail(&second.output()));
    ensure!(held(world, &mut first, &path, "").await? == before, "the second one took the lease from a living leader");
    first.terminate();
    exit(&mut first, LIMIT).await?;
    held(world, &mut second, &path, &before).await.map(drop)
}

pub(super) async fn lost(world: &World) -> Result<()> {
    let path = path("kube-system", "lost");
    let mut program = compete(world, "lost", &["--leader-elect-resource-name=lost"]);
    held(world, &mut program, &path, "").await?;
    // Another one has it for an hour.
    let now = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string();
    let other =
        json!({"holderIdentity": "another", "renewTime": now, "acquireTime": now, "leaseDurationSeconds": 3600});
    world.patch(&path, json!({"spec": other})).await?;
    let status = exit(&mut program, LIMIT).await?;
    ensure!(!status.success(), "it ended with success");
    Ok(())
}

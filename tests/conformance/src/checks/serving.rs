//! The HTTPS port.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use ccm_test_bed::Bed;
use serde_json::Value;

use crate::world::{LIMIT, World};

/// The answer, as soon as the program serves.
async fn get(world: &World, path: &str, token: &str) -> Result<(u16, String)> {
    let began = Instant::now();
    loop {
        match Bed::get_from_as(world.port, path, token).await {
            // Before its first request to the API server is answered, it knows no user.
            Ok((status, body)) if status != 500 || began.elapsed() >= LIMIT => return Ok((status, body)),
            Err(error) if began.elapsed() >= LIMIT => return Err(error),
            _ => tokio::time::sleep(Duration::from_millis(200)).await,
        }
    }
}

async fn expect(world: &World, path: &str, token: &str, wanted: u16) -> Result<String> {
    let (status, body) = get(world, path, token).await?;
    ensure!(status == wanted, "{path}: {status} instead of {wanted}: {body}");
    Ok(body)
}

pub(super) async fn health(world: &World) -> Result<()> {
    let body = expect(world, "/healthz", "", 200).await?;
    ensure!(body.trim() == "ok", "/healthz: {body:?}");
    Ok(())
}

pub(super) async fn anonymous(world: &World) -> Result<()> {
    let (status, body) = get(world, "/metrics", "").await?;
    ensure!(matches!(status, 401 | 403), "/metrics: {status}: {body}");
    Ok(())
}

pub(super) async fn wrong_token(world: &World) -> Result<()> {
    expect(world, "/metrics", "no-such-token", 401).await.map(drop)
}

pub(super) async fn unprivileged(world: &World) -> Result<()> {
    expect(world, "/configz", &world.bed.ccm_token, 403).await.map(drop)
}

pub(super) async fn metrics(world: &World) -> Result<()> {
    let names =
        ["workqueue_depth", "workqueue_adds_total", "rest_client_requests_total", "running_managed_controllers"];
    let began = Instant::now();
    loop {
        let text = expect(world, "/metrics", &world.bed.token, 200).await?;
        let missing = |name: &&str| !text.lines().any(|line| line.starts_with(name));
        let missing: Vec<&str> = names.into_iter().filter(missing).collect();
        if missing.is_empty() {
            return Ok(());
        }
        // Some appear only with their first sample.
        ensure!(began.elapsed() < LIMIT, "not in /metrics: {}", missing.join(", "));
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

pub(super) async fn configz(world: &World) -> Result<()> {
    let body = expect(world, "/configz", &world.bed.token, 200).await?;
    let config: Value = serde_json::from_str(&body)?;
    let pointer = "/cloudcontrollermanager.config.k8s.io/Generic/LeaderElection/leaderElect";
    ensure!(config.pointer(pointer) == Some(&Value::Bool(false)), "{pointer} is not false: {body}");
    Ok(())
}

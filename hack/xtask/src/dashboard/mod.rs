//! `cargo xtask dashboard`: an hour of trouble in minutes, in a real Prometheus.
//!
//! A real API server, the manager with the fake cloud, and a Prometheus with the alerts run on 127.0.0.1. Nodes join, a zone is lost
//! while the cloud throttles calls, and the throttling ends. Then each query of the dashboard must have data, and two alerts must
//! have fired. With `--out` the panels are drawn, and Chromium takes a picture of the page `/debug/` during the trouble.

mod chart;
mod panels;
mod prometheus;
mod scene;

use std::path::Path;

use anyhow::{Context as _, bail, ensure};

use crate::metadata::Metadata;
use panels::Panel;
use prometheus::Prometheus;
use scene::{Scene, Trouble};

const DASHBOARD: &str = "manifests/charts/ccm/files/dashboard.json";
const ALERTS: &str = "manifests/charts/ccm/files/alerts.yaml";
/// What must fire, and what causes it.
const MUST_FIRE: [(&str, &str); 2] = [
    ("CloudControllerManagerThrottled", "the cloud throttles calls about load balancers"),
    ("CloudControllerManagerDeletionsDeferred", "the machines of a zone are gone"),
];

/// Fails if a panel has no data, or an alert does not fire.
pub(crate) fn command(arguments: &[String]) -> anyhow::Result<()> {
    let out = match arguments {
        [] => None,
        [flag, folder] if flag == "--out" => Some(Path::new(folder)),
        _ => bail!("usage: cargo xtask dashboard [--out FOLDER]"),
    };
    let root = Metadata::read()?.workspace_root;
    let read = |name: &str| std::fs::read_to_string(root.join(name)).with_context(|| format!("cannot read {name}"));
    let mut panels = panels::read(&read(DASHBOARD)?)?;
    let folder = tempfile::tempdir().context("cannot make a temporary folder")?;
    println!("dashboard: starting an API server, the manager and Prometheus");
    let mut scene = Scene::start(folder.path())?;
    let mut prometheus = Prometheus::start(&root, folder.path(), &read(ALERTS)?, scene.port())?;
    prometheus.until(&mut scene, "Prometheus scrapes the manager", "up == 1")?;
    let began = prometheus.now()?;
    if let Some(out) = out {
        std::fs::create_dir_all(out).with_context(|| format!("cannot make {}", out.display()))?;
    }
    let trouble = story(&mut scene, &mut prometheus, out)?;
    let now = prometheus.now()?;
    for panel in &mut panels {
        prometheus.fill(panel, began, now)?;
    }
    if let Some(out) = out {
        let svg = chart::svg(&panels, (began, now), trouble);
        std::fs::write(out.join("dashboard.svg"), svg).context("cannot write dashboard.svg")?;
    }
    let without = without_data(&panels);
    ensure!(without.is_empty(), "{DASHBOARD}: no data for:\n  {}", without.join("\n  "));
    let queries: usize = panels.iter().map(|panel| panel.targets.len()).sum();
    println!("dashboard: all {queries} queries have data; fired: {}", prometheus.fired()?.join(", "));
    Ok(())
}

/// The beginning and the end of the trouble.
fn story(scene: &mut Scene, prometheus: &mut Prometheus, out: Option<&Path>) -> anyhow::Result<(f64, f64)> {
    prometheus.until(scene, "the manager leads", "leader_election_master_status == 1")?;
    scene.join()?;
    let joined = format!("node_controller_cloud_provider_taint_removal_delay_seconds_count >= {}", scene::NODES);
    prometheus.until(scene, "the nodes are initialized", &joined)?;
    let balanced =
        format!("ccm_provider_calls_total{{call=\"ReconcileLoadBalancers\",outcome=\"ok\"}} >= {}", scene::SERVICES);
    prometheus.until(scene, "the Services have load balancers", &balanced)?;
    let begin = prometheus.now()?;
    scene.trouble(Trouble::ZoneLostAndThrottled)?;
    for (alert, cause) in MUST_FIRE {
        // While the one was awaited, the other may have fired and ended.
        let query = format!("max_over_time(ALERTS{{alertstate=\"firing\",alertname=\"{alert}\"}}[1h])");
        prometheus.until(scene, &format!("{alert} fires, because {cause}"), &query)?;
    }
    if let Some(out) = out {
        scene.picture(&out.join("debug.png"))?;
    }
    scene.trouble(Trouble::ZoneLost)?;
    prometheus.until(scene, "no sync fails any more", "sum(ccm_failing_objects) == 0")?;
    let end = prometheus.now()?;
    let silent = format!("absent(ALERTS{{alertstate=\"firing\",alertname=\"{}\"}})", MUST_FIRE[0].0);
    prometheus.until(scene, "the alert about throttling ends", &silent)?;
    Ok((begin, end))
}

fn without_data(panels: &[Panel]) -> Vec<String> {
    let targets = panels.iter().flat_map(|panel| panel.targets.iter().map(move |target| (panel, target)));
    let without = targets.filter(|(_, target)| target.series.is_empty());
    without.map(|(panel, target)| format!("{} {:?}: {}", panel.id, panel.title, target.query)).collect()
}

//! The command line: what is accepted, what is refused, and how.

use anyhow::{Result, ensure};

use crate::world::{World, tail};

/// Made by `hack/upstream.sh` from the Go core.
const FLAGS: &str = include_str!("../../../../hack/upstream/tables.tsv");

/// The flags of Kubernetes 1.36 that are not deprecated: Go's help hides those.
fn current() -> Vec<&'static str> {
    let rows = FLAGS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    rows.filter_map(|row| match row[..] {
        ["flag", name, .., "false", versions] if versions.split(' ').any(|version| version == "1.36") => Some(name),
        _ => None,
    })
    .collect()
}

pub(super) async fn help(world: &World) -> Result<()> {
    let (succeeded, output) = world.ended("help", &["--help"]).await?;
    ensure!(succeeded, "it failed: {}", tail(&output));
    let words: Vec<&str> = output.split(|c: char| !(c.is_alphanumeric() || c == '-')).collect();
    let missing = |name: &&str| !words.iter().any(|word| word.strip_prefix("--") == Some(name));
    let missing: Vec<&str> = current().into_iter().filter(missing).collect();
    ensure!(missing.is_empty(), "these are not in the help: {}", missing.join(", "));
    Ok(())
}

pub(super) async fn version(world: &World) -> Result<()> {
    let (succeeded, output) = world.ended("version-alone", &["--version"]).await?;
    let has_number = output.split(|c: char| c.is_whitespace() || c == 'v').any(|word| {
        word.split_once('.').is_some_and(|(major, _)| !major.is_empty() && major.chars().all(|c| c.is_ascii_digit()))
    });
    ensure!(succeeded && has_number, "success {succeeded}, output {output:?}");
    Ok(())
}

/// The program ends with an error whose output has this text.
async fn refused(world: &World, name: &str, arguments: &[&str], text: &str) -> Result<()> {
    let (succeeded, output) = world.ended(name, arguments).await?;
    ensure!(!succeeded, "it ended with success: {}", tail(&output));
    ensure!(output.contains(text), "the output does not name {text:?}: {}", tail(&output));
    Ok(())
}

pub(super) async fn unknown(world: &World) -> Result<()> {
    refused(world, "unknown", &["--no-such-flag=1"], "no-such-flag").await
}

pub(super) async fn underscores(world: &World) -> Result<()> {
    let (succeeded, output) = world.ended("underscores", &["--node_monitor_period=1s", "--version"]).await?;
    ensure!(succeeded, "--node_monitor_period was refused: {}", tail(&output));
    refused(world, "underscores-wrong", &["--node_monitor_period=soon"], "node-monitor-period").await
}

pub(super) async fn wrong_type(world: &World) -> Result<()> {
    refused(world, "wrong-type", &["--node-monitor-period=soon"], "node-monitor-period").await?;
    refused(world, "wrong-number", &["--concurrent-service-syncs=many"], "concurrent-service-syncs").await
}

pub(super) async fn gate(world: &World) -> Result<()> {
    refused(world, "gate", &["--feature-gates=NoSuchGate=true"], "NoSuchGate").await
}

pub(super) async fn controller(world: &World) -> Result<()> {
    refused(world, "controller", &["--controllers=no-such-controller"], "no-such-controller").await
}

pub(super) async fn no_provider(world: &World) -> Result<()> {
    refused(world, "no-provider", &["--cloud-provider="], "cloud-provider").await
}

pub(super) async fn other_provider(world: &World) -> Result<()> {
    refused(world, "other-provider", &["--cloud-provider=no-such-cloud"], "no-such-cloud").await
}

pub(super) async fn kubeconfig(world: &World) -> Result<()> {
    refused(world, "kubeconfig", &["--kubeconfig=/no/such/kubeconfig"], "/no/such/kubeconfig").await
}

pub(super) async fn deadline(world: &World) -> Result<()> {
    let longer = ["--leader-elect=true", "--leader-elect-renew-deadline=20s", "--leader-elect-lease-duration=15s"];
    let resource = "--leader-elect-resource-name=conformance-deadline";
    let (succeeded, output) = world.ended("deadline", &[&longer[..], &[resource]].concat()).await?;
    ensure!(!succeeded, "it ended with success: {}", tail(&output));
    Ok(())
}

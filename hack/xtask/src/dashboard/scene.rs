//! A real API server, the manager with the fake cloud, nodes and Services.

use std::fs::File;
use std::io::{BufRead as _, BufReader};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail, ensure};
use serde_json::{Value, json};

use crate::metadata::{output_of, program};

const ZONES: [&str; 3] = ["a", "b", "c"];
const LOST: &str = "c";
/// With a node deleted in 5 s, the deletion of the others is deferred for more than two minutes: the alert has to hold for 30 s
/// without a gap, and a scrape that takes too long on a slow machine is one.
const IN_A_ZONE: usize = 30;
pub(super) const NODES: usize = ZONES.len() * IN_A_ZONE;
pub(super) const SERVICES: usize = 4;
const CLOUD: &str = "cloud.json";
const MANAGER: [&str; 10] = [
    "run",
    "--quiet",
    "--package",
    "ccm",
    "--no-default-features",
    "--features",
    "kubernetes,fake",
    "--bin",
    "ccm",
    "--",
];
const BED: [&str; 7] = ["run", "--quiet", "--package", "ccm-test-bed", "--bin", "ccm-bed", "--"];
const FLAGS: [&str; 11] = [
    "--cloud-provider=fake",
    "--allocate-node-cidrs=true",
    "--cluster-cidr=10.64.0.0/10",
    "--controllers=*,-node-ipam-controller",
    "--bind-address=127.0.0.1",
    "--authorization-always-allow-paths=/healthz,/metrics,/debug/*",
    "--node-monitor-period=5s",
    "--route-reconciliation-period=5s",
    "--drift-check-period=10s",
    "--node-deletion-budget=1",
    "--node-deletion-budget-percent=0",
];

/// The state of the cloud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    None,
    ZoneLostAndThrottled,
    ZoneLost,
}

/// A program that is stopped when this is dropped.
pub(super) struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

/// Everything is stopped when this is dropped.
pub(super) struct Scene {
    folder: PathBuf,
    kubeconfig: PathBuf,
    kubectl: PathBuf,
    port: u16,
    manager: Process,
    /// Its output stays open: it writes on.
    _server: (Process, Box<dyn std::io::Read>),
}

impl Process {
    /// Its output goes into a file of the folder.
    pub(super) fn start(name: &'static str, mut command: Command, folder: &Path) -> anyhow::Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::create(&log).with_context(|| format!("cannot write {}", log.display()))?;
        command.stdin(Stdio::null()).stdout(file.try_clone()?).stderr(file);
        let child = command.spawn().with_context(|| format!("cannot start {name}: {command:?}"))?;
        Ok(Self { name, child, log })
    }

    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        bail!("{} ended with {status}:\n{}", self.name, self.last_lines());
    }

    /// The end of its log.
    fn last_lines(&self) -> String {
        let log = std::fs::read_to_string(&self.log).unwrap_or_default();
        let last: Vec<&str> = log.lines().rev().take(20).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended.
        let _ended = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Scene {
    pub(super) fn start(folder: &Path) -> anyhow::Result<Self> {
        // Compiled before, so that the waiting below is not for a compiler.
        output_of(program("ccm", &MANAGER).arg("version"))?;
        output_of(program("ccm-bed", &BED).arg("--help"))?;
        let mut command = program("ccm-bed", &BED);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {command:?}"))?;
        let output = child.stdout.take().context("the output of the API server is not a pipe")?;
        let server = Process { name: "the API server", child, log: PathBuf::new() };
        let mut output = BufReader::new(output);
        let (mut kubectl, mut kubeconfig) = (None, None);
        while kubeconfig.is_none() {
            let mut line = String::new();
            ensure!(output.read_line(&mut line)? > 0, "no API server, for the reason above");
            let path = |prefix: &str| line.strip_prefix(prefix).map(|rest| PathBuf::from(rest.trim()));
            kubectl = kubectl.or_else(|| path("kubectl "));
            kubeconfig = path("export KUBECONFIG=");
        }
        let kubeconfig = kubeconfig.context("the API server has no kubeconfig")?;
        let kubectl = kubectl.context("kubectl is not with the API server: hack/k8s/build.sh kubectl")?;
        write(folder, CLOUD, &cloud(Trouble::None).to_string())?;
        let port = free_port()?;
        let mut command = program("ccm", &MANAGER);
        command.args(FLAGS).arg(format!("--secure-port={port}"));
        command.arg(format!("--kubeconfig={}", kubeconfig.display()));
        command.arg(format!("--cloud-config={}", folder.join(CLOUD).display()));
        let manager = Process::start("ccm", command, folder)?;
        Ok(Self { folder: folder.to_owned(), kubeconfig, kubectl, port, manager, _server: (server, Box::new(output)) })
    }

    /// Where the manager serves its metrics.
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Fails if the manager has ended.
    pub(super) fn check(&mut self) -> anyhow::Result<()> {
        self.manager.check()
    }

    /// The end of the manager's log.
    pub(super) fn last_lines(&self) -> String {
        self.manager.last_lines()
    }

    /// Nodes join, and Services are applied.
    pub(super) fn join(&self) -> anyhow::Result<()> {
        let items: Vec<Value> = nodes().enumerate().map(node).chain((0..SERVICES).map(service)).collect();
        let list = json!({"apiVersion": "v1", "kind": "List", "items": items});
        write(&self.folder, "objects.json", &list.to_string())?;
        self.kubectl(&["create", "--filename=objects.json"])
    }

    /// Changes the cloud. When the zone is lost, its nodes are not Ready, and the Services change.
    pub(super) fn trouble(&self, trouble: Trouble) -> anyhow::Result<()> {
        // A file that is only half written must not be read.
        write(&self.folder, "next.json", &cloud(trouble).to_string())?;
        std::fs::rename(self.folder.join("next.json"), self.folder.join(CLOUD))?;
        if trouble != Trouble::ZoneLostAndThrottled {
            return Ok(());
        }
        let patch = r#"{"spec": {"ports": [{"port": 443}]}}"#;
        self.kubectl(&["patch", "--type=merge", "--patch", patch, "services", "web-0", "web-1", "web-2", "web-3"])?;
        let patch = r#"{"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}}"#;
        let mut arguments = vec!["patch", "--subresource=status", "--type=merge", "--patch", patch, "nodes"];
        let lost: Vec<String> = nodes().filter(|(zone, _)| *zone == LOST).map(|(_, name)| name).collect();
        arguments.extend(lost.iter().map(String::as_str));
        self.kubectl(&arguments)
    }

    /// A picture of the page for people.
    pub(super) fn picture(&self, file: &Path) -> anyhow::Result<()> {
        let mut command = Command::new("timeout");
        command.args([
            "120",
            "chromium",
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--hide-scrollbars",
        ]);
        command.args(["--ignore-certificate-errors", "--window-size=1280,1600"]);
        command.arg(format!("--user-data-dir={}", self.folder.join("profile").display()));
        command.arg(format!("--screenshot={}", file.display()));
        command.arg(format!("https://127.0.0.1:{}/debug/", self.port)).stderr(Stdio::null());
        let status = command.status().context("chromium, which draws the page (apt-get install chromium)")?;
        ensure!(status.success() && file.exists(), "chromium ended with {status}, without {}", file.display());
        Ok(())
    }

    fn kubectl(&self, arguments: &[&str]) -> anyhow::Result<()> {
        let mut command = Command::new(&self.kubectl);
        command.arg("--cache-dir=cache").args(arguments).env("KUBECONFIG", &self.kubeconfig).current_dir(&self.folder);
        output_of(&mut command).map(drop)
    }
}

/// The zones and the names.
fn nodes() -> impl Iterator<Item = (&'static str, String)> {
    ZONES.into_iter().flat_map(|zone| (0..IN_A_ZONE).map(move |number| (zone, format!("node-{zone}{number}"))))
}

fn node((at, (_, name)): (usize, (&str, String))) -> Value {
    let taint =
        json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
    json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name},
        "spec": {"taints": [taint], "podCIDR": format!("10.64.{at}.0/24"), "podCIDRs": [format!("10.64.{at}.0/24")]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
}

fn service(at: usize) -> Value {
    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{at}"), "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [{"port": 80}]}})
}

fn cloud(trouble: Trouble) -> Value {
    let instance = |(at, (zone, name)): (usize, (&str, String))| {
        json!({"name": name, "type": "fake.small", "region": "here", "zone": format!("here-{zone}"),
            "addresses": [{"type": "InternalIP", "address": format!("10.0.0.{at}")}],
            "exists": zone != LOST || trouble == Trouble::None})
    };
    let instances: Vec<Value> = nodes().enumerate().map(instance).collect();
    let throttled = json!({"call": ["EnsureLoadBalancer", "UpdateLoadBalancer"], "kind": "Throttled",
        "error": "too many calls", "retryAfter": "1s"});
    let faults = if trouble == Trouble::ZoneLostAndThrottled { vec![throttled] } else { Vec::new() };
    json!({"interfaces": {"routes": true}, "unlisted": "error", "instances": instances, "faults": faults})
}

/// A port of 127.0.0.1 that nothing uses now.
pub(super) fn free_port() -> anyhow::Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0").context("no port is free")?.local_addr()?.port())
}

pub(super) fn write(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    std::fs::write(folder.join(name), text).with_context(|| format!("cannot write {name}"))
}

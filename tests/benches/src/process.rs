//! The measured process, with figures from the kernel and from its own metrics.

use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;
use http::Request;
use http_body_util::BodyExt;
use kube::client::Body;
use tokio::process::{Child, Command};

/// Set in the environment of the measured process.
pub(crate) const ROLE: &str = "CCM_BENCH_MANAGER";

pub(crate) struct Manager {
    child: Child,
    pid: u32,
    http: kube::Client,
    // Contains the cloud config and the log of calls.
    folder: tempfile::TempDir,
}

/// Memory in KiB.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    pub(crate) peak: u64,
}

impl Manager {
    /// Starts this program with the cloud of the benchmarks.
    pub(crate) async fn start(kubeconfig: &Path, extra: &[&str]) -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        let calls = folder.path().join("calls");
        std::fs::write(&calls, "")?;
        let mut command = Command::new(std::env::current_exe()?);
        command.env(ROLE, "1").args(["--cloud-provider=bench", "--leader-elect=false"]).args(extra);
        let log = folder.path().join("log");
        Self::launch(command, &calls.display().to_string(), kubeconfig, folder, &log).await
    }

    /// Starts a cloud-controller-manager with this cloud config, and waits until it is healthy.
    pub(crate) async fn launch(
        mut command: Command,
        cloud_config: &str,
        kubeconfig: &Path,
        folder: tempfile::TempDir,
        log: &Path,
    ) -> anyhow::Result<Self> {
        let config = folder.path().join("cloud.conf");
        std::fs::write(&config, cloud_config)?;
        let port = ccm_test_bed::free_port()?;
        let mut child = command
            .arg("--bind-address=127.0.0.1")
            .arg(format!("--cloud-config={}", config.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--secure-port={port}"))
            // The benchmark sends no credentials.
            .arg("--authorization-always-allow-paths=/healthz,/readyz,/livez,/metrics")
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(log)?)
            .kill_on_drop(true)
            .spawn()?;
        let pid = child.id().context("the manager ended at once")?;
        let mut config = kube::Config::new(format!("https://127.0.0.1:{port}").parse()?);
        // The process under test has a self-signed certificate.
        config.accept_invalid_certs = true;
        let http = kube::Client::try_from(config)?;
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            let asked = http.send(Request::get("/healthz").body(Body::empty())?).await;
            if asked.is_ok() {
                break;
            }
            if let Some(status) = child.try_wait()? {
                anyhow::bail!("the manager ended with {status}: {}", std::fs::read_to_string(log)?);
            }
            anyhow::ensure!(tokio::time::Instant::now() < deadline, "the manager does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { child, pid, http, folder })
    }

    /// The sum of all samples of a metric.
    pub(crate) async fn metric(&self, name: &str, matching: &str) -> anyhow::Result<f64> {
        let answer = self.http.send(Request::get("/metrics").body(Body::empty())?).await?;
        let text = answer.into_body().collect().await?.to_bytes();
        let text = String::from_utf8_lossy(&text);
        let samples = text.lines().filter(|line| {
            line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' '])) && line.contains(matching)
        });
        Ok(samples
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .fold(0.0, |sum, sample| sum + sample))
    }

    /// The number of API writes so far.
    pub(crate) async fn writes(&self) -> anyhow::Result<f64> {
        let mut sum = 0.0;
        for method in ["PATCH", "PUT", "POST", "DELETE"] {
            sum += self.metric("rest_client_requests_total", &format!("method=\"{method}\"")).await?;
        }
        Ok(sum)
    }

    /// The number of pages read from the cloud so far.
    pub(crate) fn cloud_calls(&self) -> anyhow::Result<usize> {
        Ok(std::fs::read_to_string(self.folder.path().join("calls"))?.lines().count())
    }

    pub(crate) fn memory(&self) -> anyhow::Result<Memory> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let field = |name: &str| {
            let line = status.lines().find(|line| line.starts_with(name))?;
            line.split_whitespace().nth(1)?.parse().ok()
        };
        Ok(Memory { now: field("VmRSS:").unwrap_or_default(), peak: field("VmHWM:").unwrap_or_default() })
    }

    /// CPU seconds used so far, user and system.
    pub(crate) fn cpu(&self) -> anyhow::Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.pid))?;
        // The name in parentheses may contain spaces; the following fields do not.
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let ticks = |i: usize| fields.get(i).and_then(|f| f.parse::<f64>().ok()).unwrap_or_default();
        // 100 ticks per second on Linux.
        Ok((ticks(11) + ticks(12)) / 100.0)
    }

    /// Sends SIGTERM; returns the time and the status of the exit.
    pub(crate) async fn terminate(mut self) -> anyhow::Result<(Instant, ExitStatus)> {
        let signalled = Command::new("sh").args(["-c", r#"kill -s TERM "$0""#, &self.pid.to_string()]).status().await?;
        anyhow::ensure!(signalled.success(), "cannot send SIGTERM: {signalled}");
        let status = self.child.wait().await?;
        Ok((Instant::now(), status))
    }

    pub(crate) async fn stop(mut self) -> anyhow::Result<()> {
        // Killed: a measured process needs no graceful shutdown.
        self.child.kill().await?;
        Ok(())
    }
}

//! A real Prometheus, asked through its promtool.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use serde::Deserialize;
use serde_json::json;

use super::panels::Panel;
use super::scene::{Process, Scene, free_port, write};
use crate::metadata::output_of;

/// Between two scrapes.
const INTERVAL: &str = "2s";
/// A minute of the alerts takes so many seconds here.
const MINUTE: u64 = 2;
/// As Grafana computes it: four times the interval, and more on a slow machine.
const RATE_INTERVAL: &str = "16s";
/// For each step. The machine may be slow; without load a step takes seconds, the longest one a minute.
const PATIENCE: Duration = Duration::from_secs(300);

pub(super) struct Prometheus {
    process: Process,
    promtool: PathBuf,
    url: String,
}

/// One sample of the answer to a query.
#[derive(Deserialize)]
struct Sample {
    #[serde(default)]
    metric: serde_json::Map<String, serde_json::Value>,
    value: (f64, String),
}

impl Prometheus {
    pub(super) fn start(root: &Path, folder: &Path, alerts: &str, port: u16) -> anyhow::Result<Self> {
        let programs = output_of(&mut Command::new(root.join("hack/prometheus.sh")))?;
        let programs = Path::new(programs.trim());
        write(folder, "alerts.yaml", &faster(alerts))?;
        let job = json!({"job_name": "cloud-controller-manager", "scheme": "https",
            "tls_config": {"insecure_skip_verify": true},
            "static_configs": [{"targets": [format!("127.0.0.1:{port}")]}]});
        let config = json!({"global": {"scrape_interval": INTERVAL, "scrape_timeout": INTERVAL, "evaluation_interval": INTERVAL},
            "rule_files": ["alerts.yaml"], "scrape_configs": [job]});
        write(folder, "prometheus.yaml", &config.to_string())?;
        let address = format!("127.0.0.1:{}", free_port()?);
        let mut command = Command::new(programs.join("prometheus"));
        command.arg(format!("--web.listen-address={address}")).arg("--config.file=prometheus.yaml");
        command.arg("--storage.tsdb.path=data").current_dir(folder);
        let process = Process::start("prometheus", command, folder)?;
        Ok(Self { process, promtool: programs.join("promtool"), url: format!("http://{address}") })
    }

    /// Waits until a query has an answer.
    pub(super) fn until(&mut self, scene: &mut Scene, what: &str, query: &str) -> anyhow::Result<()> {
        let began = Instant::now();
        loop {
            scene.check()?;
            self.process.check()?;
            // At the start nothing listens yet.
            if self.ask(query).is_ok_and(|samples| !samples.is_empty()) {
                println!("dashboard: {what} ({:.0} s)", began.elapsed().as_secs_f64());
                return Ok(());
            }
            if began.elapsed() > PATIENCE {
                let seconds = PATIENCE.as_secs();
                bail!("not seen within {seconds} s: {what}: {query}\n{}\n{}", self.state(), scene.last_lines());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
    }

    /// What a failure is to be understood by.
    fn state(&self) -> String {
        let found = self.ask("{__name__=~\"up|ccm_failing_objects|ccm_nodes_deletion_deferred|ALERTS\"}");
        let lines = found.map(|samples| {
            let line = |Sample { metric, value }: &Sample| format!("{} = {}", serde_json::json!(metric), value.1);
            samples.iter().map(line).collect::<Vec<_>>().join("\n")
        });
        lines.unwrap_or_else(|error| format!("{error:#}"))
    }

    /// The time of Prometheus.
    pub(super) fn now(&self) -> anyhow::Result<f64> {
        let samples = self.ask("vector(time())")?;
        Ok(samples.first().context("Prometheus has no time")?.value.0)
    }

    /// The alerts that have fired.
    pub(super) fn fired(&self) -> anyhow::Result<Vec<String>> {
        let samples = self.ask("count by (alertname) (max_over_time(ALERTS{alertstate=\"firing\"}[1h]))")?;
        let names = samples.iter().filter_map(|sample| sample.metric.get("alertname")?.as_str().map(str::to_owned));
        Ok(names.collect())
    }

    /// The series of each query of a panel.
    pub(super) fn fill(&self, panel: &mut Panel, from: f64, to: f64) -> anyhow::Result<()> {
        for target in &mut panel.targets {
            let query = target.query.replace("$__rate_interval", RATE_INTERVAL);
            let mut command = Command::new(&self.promtool);
            command.args(["query", "-o", "json", "range", "--step", INTERVAL]);
            command.arg(format!("--start={from:.0}")).arg(format!("--end={to:.0}")).args([&self.url, &query]);
            target.take(&output_of(&mut command)?).with_context(|| format!("{query} on {}", panel.title))?;
        }
        Ok(())
    }

    fn ask(&self, query: &str) -> anyhow::Result<Vec<Sample>> {
        let answer =
            Command::new(&self.promtool).args(["query", "-o", "json", "instant", &self.url, query]).output()?;
        if !answer.status.success() {
            bail!("promtool: {query}: {}", String::from_utf8_lossy(&answer.stderr));
        }
        serde_json::from_slice(&answer.stdout).with_context(|| format!("the answer to {query} is not as expected"))
    }
}

/// The alerts with short times, so that minutes need not pass: ranges, offsets, and how long a condition must hold. Limits in
/// seconds, such as the age of a failure, stay: those alerts do not fire here.
fn faster(alerts: &str) -> String {
    ["for: ", "[", "offset "].iter().fold(alerts.to_owned(), |text, before| {
        let mut parts = text.split(before);
        let first = parts.next().unwrap_or_default().to_owned();
        parts.fold(first, |text, rest| text + before + &shortened(rest).unwrap_or_else(|| rest.to_owned()))
    })
}

/// A text that begins with a duration, with a shorter one.
fn shortened(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = text.split_at_checked(digits)?;
    let minutes = number.parse::<u64>().ok()?;
    let (unit, rest) = rest.split_at_checked(1)?;
    let minutes = match unit {
        "m" => minutes,
        "h" => minutes * 60,
        _ => return None,
    };
    Some(format!("{}s{rest}", minutes * MINUTE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_alerts_are_shortened_and_nothing_else() {
        let alerts =
            "expr: rate(x{a=\"b\"}[10m]) > 1800 unless x offset 1h\nfor: 15m\ndescription: wait for: it [sic]\n";
        let expected =
            "expr: rate(x{a=\"b\"}[20s]) > 1800 unless x offset 120s\nfor: 30s\ndescription: wait for: it [sic]\n";
        assert_eq!(faster(alerts), expected);
    }
}

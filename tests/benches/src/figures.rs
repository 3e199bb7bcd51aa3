//! Output and waits of the benchmarks on simulated clouds.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::process::Manager;

/// Calls with their counts, as one line.
pub(crate) fn listed(calls: &BTreeMap<String, u64>) -> String {
    let calls: Vec<String> = calls.iter().map(|(call, count)| format!("{count} {call}")).collect();
    if calls.is_empty() { "none".to_owned() } else { calls.join(", ") }
}

/// Sum of the calls.
pub(crate) fn sum(calls: &BTreeMap<String, u64>) -> f64 {
    calls.values().fold(0.0, |sum, count| sum + u32::try_from(*count).map_or(f64::MAX, f64::from))
}

/// Sum of the calls whose names have this prefix.
pub(crate) fn of(calls: &BTreeMap<String, u64>, name: &str) -> f64 {
    let calls = calls.iter().filter(|(call, _)| call.starts_with(name));
    sum(&calls.map(|(call, count)| (call.clone(), *count)).collect())
}

/// Starts a table.
pub(crate) fn table(title: &str) {
    println!("\n{title}\n| figure | value | goal | |\n|---|---|---|---|");
}

/// A figure with its upper limit.
pub(crate) fn row(figure: &str, value: f64, unit: &str, goal: Option<f64>) {
    let digits = usize::from(value.fract() != 0.0) * 2;
    let (goal, kept) = match goal {
        Some(goal) => (format!("≤ {goal}{unit}"), if value <= goal { "kept" } else { "MISSED" }),
        None => (String::new(), ""),
    };
    println!("| {figure} | {value:.digits$}{unit} | {goal} | {kept} |");
}

/// Waits until the program has not written to the cloud or to the API server for a while. Periodic reads continue.
pub(crate) async fn rest(manager: &Manager, cloud: impl Fn() -> usize, quiet: Duration) -> anyhow::Result<()> {
    unchanged(async || Ok((cloud(), manager.writes().await?)), quiet).await.map(drop)
}

/// Waits until the observed value has been stable for a while. Returns the time of the last change.
pub(crate) async fn unchanged<T: PartialEq>(
    look: impl AsyncFn() -> anyhow::Result<T>,
    quiet: Duration,
) -> anyhow::Result<Instant> {
    let began = Instant::now();
    let (mut last, mut since) = (look().await?, Instant::now());
    while since.elapsed() < quiet {
        anyhow::ensure!(began.elapsed() < Duration::from_secs(1800), "no rest within 30 minutes");
        tokio::time::sleep(Duration::from_millis(200)).await;
        let now = look().await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(since)
}

//! What the benchmarks on simulated clouds print, and when they look.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

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

/// Sum of the calls whose names begin so.
pub(crate) fn of(calls: &BTreeMap<String, u64>, name: &str) -> f64 {
    let calls = calls.iter().filter(|(call, _)| call.starts_with(name));
    sum(&calls.map(|(call, count)| (call.clone(), *count)).collect())
}

/// Begins a table.
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

/// Waits until the program writes neither to the cloud, by the number of its writes, nor to the API server for a while. Refreshing
/// goes on at rest.
pub(crate) async fn rest(manager: &Manager, cloud: impl Fn() -> usize, quiet: Duration) -> anyhow::Result<()> {
    let deadline = Instant::now() + Duration::from_secs(1800);
    let look = async || -> anyhow::Result<_> { Ok((cloud(), manager.writes().await?)) };
    let (mut last, mut since) = (look().await?, Instant::now());
    while since.elapsed() < quiet {
        anyhow::ensure!(Instant::now() < deadline, "no rest within 30 minutes");
        tokio::time::sleep(Duration::from_millis(500)).await;
        let now = look().await?;
        if now != last {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(())
}

//! How long a request waits for others, so that they share one call.

use std::time::Duration;

use tokio::time::Instant;

/// A call within this time after the previous one is part of a burst.
const BURST: Duration = Duration::from_secs(2);

/// The width of a window: it doubles while calls follow each other closely, and returns to its minimum after a quiet
/// time. So a single request waits only briefly, and a burst of requests costs one call per `max`.
#[derive(Debug)]
pub struct Window {
    min: Duration,
    max: Duration,
    width: Duration,
    last_call: Option<Instant>,
}

impl Default for Window {
    fn default() -> Self {
        Self::new(Duration::from_millis(25), Duration::from_secs(1))
    }
}

impl Window {
    /// A window between these widths.
    pub const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, width: min, last_call: None }
    }

    /// The width of the next window.
    pub fn open(&mut self) -> Duration {
        let is_burst = self.last_call.is_some_and(|at| at.elapsed() < BURST);
        self.width = if is_burst { (self.width * 2).min(self.max) } else { self.min };
        self.width
    }

    /// Records the end of a call.
    pub fn called(&mut self) {
        self.last_call = Some(Instant::now());
    }
}

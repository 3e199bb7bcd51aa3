//! The share of recent calls that were throttled.

use std::time::Duration;

use tokio::time::Instant;

/// The counts decay after this time without a call.
const FADES_AFTER: Duration = Duration::from_secs(20);
/// The share of the counts that remains after each such time.
const REMAINS: f64 = 0.8;
/// The initial call count, so that the first throttled call does not mean a share of 1.
const START: f64 = 4.0;
/// Smaller shares are treated as 0.
const LEAST: f64 = 0.1;

/// The share of throttled calls, decaying over time. The Go provider of AWS waits 60 s times this share before each
/// call (`retry_handler.go`); here it slows the token bucket, because a pause with a probe ends sooner.
#[derive(Debug)]
pub(super) struct Pressure {
    throttled: f64,
    calls: f64,
    last: Instant,
}

impl Pressure {
    pub(super) fn new(now: Instant) -> Self {
        Self { throttled: 0.0, calls: START, last: now }
    }

    /// A call is about to be sent.
    pub(super) fn call(&mut self, now: Instant) {
        let idle = Duration::from_secs(now.saturating_duration_since(self.last).as_secs());
        if idle > FADES_AFTER {
            let factor = REMAINS.powf(idle.as_secs_f64() / FADES_AFTER.as_secs_f64());
            self.throttled *= factor;
            self.calls *= factor;
            self.last = now;
        }
        self.calls += 1.0;
    }

    /// A call was throttled.
    pub(super) fn throttled(&mut self) {
        self.throttled += 1.0;
    }

    /// The share, from 0 to 1.
    pub(super) fn share(&self) -> f64 {
        let share = if self.calls <= 0.5 { 0.0 } else { (self.throttled / self.calls).min(1.0) };
        if share < LEAST { 0.0 } else { share }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes one call every `seconds`, all with the same outcome.
    fn calls(pressure: &mut Pressure, now: &mut Instant, count: usize, seconds: u64, throttled: bool) -> Vec<f64> {
        let mut shares = Vec::new();
        for _ in 0..count {
            *now += Duration::from_secs(seconds);
            pressure.call(*now);
            shares.push(pressure.share());
            if throttled {
                pressure.throttled();
            }
        }
        shares
    }

    #[tokio::test]
    async fn upstreams_test_points_hold() {
        let mut now = Instant::now();
        let mut pressure = Pressure::new(now);
        let good = calls(&mut pressure, &mut now, 100, 1, false);
        assert!(good.iter().all(|share| *share == 0.0), "no pressure without throttling");

        let mut pressure = Pressure::new(now);
        let bad = calls(&mut pressure, &mut now, 100, 1, true);
        assert!(bad.last().is_some_and(|share| *share >= 0.95), "{:?}", bad.last());

        let after = calls(&mut pressure, &mut now, 100, 3, false);
        assert_eq!(after.last(), Some(&0.0));
    }
}

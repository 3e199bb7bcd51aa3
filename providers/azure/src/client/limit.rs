//! The rate limits of the configuration: `cloudProviderRateLimit*` and those of single types of objects.

use std::collections::BTreeMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The longest wait for a call's turn.
const LONGEST: Duration = Duration::from_secs(60);

/// The rate of calls of a type of objects.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rate {
    /// More than 0.
    pub(crate) per_second: f64,
    pub(crate) bucket: f64,
}

/// The rates of reads and writes.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rates {
    pub(crate) read: Rate,
    pub(crate) write: Rate,
}

/// The limits of all types of objects, by the prefix of their configuration key.
#[derive(Debug, Default)]
pub(crate) struct RateLimits {
    buckets: BTreeMap<(String, bool), Mutex<Bucket>>,
}

#[derive(Debug)]
struct Bucket {
    rate: Rate,
    /// Negative while calls wait.
    tokens: f64,
    filled: Instant,
}

/// The turn of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    Now,
    After(Duration),
    /// Not in time.
    Never,
}

impl RateLimits {
    pub(crate) fn new(rates: BTreeMap<String, Rates>) -> Self {
        let filled = Instant::now();
        let bucket = |rate: Rate| Mutex::new(Bucket { rate, tokens: rate.bucket, filled });
        let both = |(key, rates): (String, Rates)| {
            [((key.clone(), false), bucket(rates.read)), ((key, true), bucket(rates.write))]
        };
        Self { buckets: rates.into_iter().flat_map(both).collect() }
    }

    /// The turn of the next call, which is then taken unless it is never.
    pub(super) fn take(&self, key: &str, is_write: bool) -> Turn {
        let Some(bucket) = self.buckets.get(&(key.to_owned(), is_write)) else { return Turn::Now };
        bucket.lock().take(Instant::now())
    }
}

impl Bucket {
    fn take(&mut self, now: Instant) -> Turn {
        let passed = now.saturating_duration_since(self.filled).as_secs_f64();
        self.tokens = (self.tokens + passed * self.rate.per_second).min(self.rate.bucket.max(1.0));
        self.filled = now;
        let missing = 1.0 - self.tokens;
        if missing > self.rate.per_second * LONGEST.as_secs_f64() {
            return Turn::Never;
        }
        self.tokens -= 1.0;
        match missing > 0.0 {
            true => Turn::After(Duration::from_secs_f64(missing / self.rate.per_second)),
            false => Turn::Now,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limits(per_second: f64, bucket: f64) -> RateLimits {
        let rate = Rate { per_second, bucket };
        RateLimits::new(
            [("loadBalancer".to_owned(), Rates { read: Rate { per_second: 100.0, ..rate }, write: rate })].into(),
        )
    }

    #[tokio::test(start_paused = true)]
    async fn calls_wait_for_their_turn_and_reads_are_apart() {
        let limits = limits(0.5, 2.0);
        let takes = |count: usize| (0..count).map(|_| limits.take("loadBalancer", true)).collect::<Vec<_>>();
        let after = |seconds| Turn::After(Duration::from_secs(seconds));
        assert_eq!(takes(4), [Turn::Now, Turn::Now, after(2), after(4)]);
        assert_eq!(limits.take("loadBalancer", false), Turn::Now);
        assert_eq!(limits.take("securityGroup", true), Turn::Now, "without a limit");
        tokio::time::advance(Duration::from_secs(6)).await;
        assert_eq!(takes(2), [Turn::Now, after(2)]);
    }

    #[tokio::test(start_paused = true)]
    async fn no_call_waits_longer_than_a_minute() {
        let limits = limits(0.01, 1.0);
        assert_eq!(limits.take("loadBalancer", true), Turn::Now);
        assert_eq!(limits.take("loadBalancer", true), Turn::Never);
        tokio::time::advance(Duration::from_secs(100)).await;
        assert_eq!(limits.take("loadBalancer", true), Turn::Now);
    }
}

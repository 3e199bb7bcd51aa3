//! client-go's token bucket: `flowcontrol.NewTokenBucketRateLimiter`, for the requests of a client and for the retries
//! of a queue.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// `--kube-api-qps` and `--kube-api-burst`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Rate {
    /// Requests per second.
    pub qps: f64,
    /// Requests that may be sent at once after an idle time.
    pub burst: u32,
}

impl Rate {
    /// As `rest.Config` reads them: a negative rate is no limit, 0 means 5, and a burst of 0 means 10.
    pub fn new(qps: f32, burst: i32) -> Option<Self> {
        let qps = if qps == 0.0 { 5.0 } else { qps };
        let burst = if burst == 0 { 10 } else { u32::try_from(burst).unwrap_or(1) };
        (qps > 0.0).then_some(Self { qps: f64::from(qps), burst })
    }
}

#[derive(Debug)]
pub(crate) struct Limiter {
    rate: Rate,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    /// Negative if waiting requests have reserved tokens.
    tokens: f64,
    filled: Instant,
}

impl Limiter {
    pub(crate) fn new(rate: Rate, now: Instant) -> Self {
        Self { rate, state: Mutex::new(State { tokens: f64::from(rate.burst), filled: now }) }
    }

    /// Takes a token and returns the wait for it. `None`: the wait would be too long, and no token is taken.
    pub(crate) fn reserve(&self, now: Instant, at_most: Duration) -> Option<Duration> {
        let mut state = self.state.lock();
        let passed = now.saturating_duration_since(state.filled).as_secs_f64();
        let tokens = (state.tokens + passed * self.rate.qps).min(f64::from(self.rate.burst)) - 1.0;
        let wait = Duration::from_secs_f64((-tokens / self.rate.qps).clamp(0.0, 1e9));
        if wait > at_most {
            return None;
        }
        *state = State { tokens, filled: now.max(state.filled) };
        Some(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[test]
    fn a_burst_goes_at_once_and_then_the_rate_decides() {
        let start = Instant::now();
        let limiter = Limiter::new(Rate::new(10.0, 3).unwrap(), start);
        let waits: Vec<u128> = (0..6).map(|_| limiter.reserve(start, LONG).unwrap().as_millis()).collect();
        assert_eq!(waits, [0, 0, 0, 100, 200, 300]);
        // Reserved tokens are paid back first; then the bucket fills up to the burst.
        let later = start + Duration::from_millis(400);
        assert_eq!(limiter.reserve(later, LONG).unwrap().as_millis(), 0);
        let much_later = start + LONG;
        let free = (0..9).take_while(|_| limiter.reserve(much_later, LONG) == Some(Duration::ZERO)).count();
        assert_eq!(free, 3);
    }

    #[test]
    fn a_request_that_cannot_wait_takes_no_token() {
        let start = Instant::now();
        let limiter = Limiter::new(Rate::new(1.0, 1).unwrap(), start);
        assert_eq!(limiter.reserve(start, LONG), Some(Duration::ZERO));
        for _ in 0..5 {
            assert_eq!(limiter.reserve(start, Duration::from_millis(500)), None);
        }
        assert_eq!(limiter.reserve(start, LONG), Some(Duration::from_secs(1)));
    }

    #[test]
    fn zero_is_the_default_of_client_go_and_a_negative_rate_is_none() {
        assert_eq!(Rate::new(0.0, 0), Some(Rate { qps: 5.0, burst: 10 }));
        assert_eq!(Rate::new(-1.0, 30), None);
        assert_eq!(Rate::new(20.0, 30), Some(Rate { qps: 20.0, burst: 30 }));
    }

    #[test]
    fn a_stopped_or_reset_clock_gives_no_tokens() {
        let start = Instant::now() + LONG;
        let limiter = Limiter::new(Rate::new(1.0, 1).unwrap(), start);
        assert_eq!(limiter.reserve(start, LONG), Some(Duration::ZERO));
        assert_eq!(limiter.reserve(start - Duration::from_secs(60), LONG), Some(Duration::from_secs(1)));
        assert_eq!(limiter.reserve(start, LONG), Some(Duration::from_secs(2)));
    }
}

//! The virtual clock, which alone determines the states of a simulated cloud.

use super::lock;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The mode of the clock.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Follows the machine's clock, `scale` times as fast.
    Real {
        /// The speed: 1.0 is real time, with 60.0 a second counts as a minute; at 0 or less the clock is stopped.
        scale: f64,
    },
    /// Stopped until it is stepped.
    Stepped {
        /// The start time.
        start: Timestamp,
    },
}

impl Default for Mode {
    fn default() -> Self {
        Mode::Real { scale: 1.0 }
    }
}

#[derive(Debug)]
struct Inner {
    base: Timestamp,
    /// The start and the speed of a running clock. `None`: stepped.
    running: Option<(Instant, f64)>,
}

/// A shared virtual clock; clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Mutex<Inner>>);

impl Clock {
    /// A clock in the given mode.
    pub fn new(mode: Mode) -> Self {
        let inner = match mode {
            Mode::Real { scale } => Inner { base: Timestamp::now(), running: Some((Instant::now(), scale)) },
            Mode::Stepped { start } => Inner { base: start, running: None },
        };
        Clock(Arc::new(Mutex::new(inner)))
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        lock(&self.0).now()
    }

    /// The real time until a virtual time; `None` if the clock is stopped.
    pub fn real_time_until(&self, to: Timestamp) -> Option<Duration> {
        let inner = lock(&self.0);
        let (_, scale) = inner.running.filter(|(_, scale)| *scale > 0.0)?;
        let left = Duration::try_from(to.duration_since(inner.now())).unwrap_or_default();
        Some(Duration::try_from_secs_f64(left.as_secs_f64() / scale).unwrap_or(Duration::MAX))
    }

    /// Moves the clock forward by `by`, in any mode.
    pub fn step(&self, by: Duration) {
        let mut inner = lock(&self.0);
        inner.base = later(inner.base, by);
    }

    /// Sets the time, which may be in the past: loading a dump requires this.
    pub fn set(&self, to: Timestamp) {
        let mut inner = lock(&self.0);
        inner.base = to;
        if let Some((since, _)) = &mut inner.running {
            *since = Instant::now();
        }
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        match self.running {
            None => self.base,
            Some((since, scale)) => later(self.base, since.elapsed().mul_f64(scale.max(0.0))),
        }
    }
}

/// `from` plus `by`, at most the latest representable time.
pub fn later(from: Timestamp, by: Duration) -> Timestamp {
    SignedDuration::try_from(by).ok().and_then(|by| from.checked_add(by).ok()).unwrap_or(Timestamp::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stepped_clock_moves_only_when_stepped() {
        let clock = Clock::new(Mode::Stepped { start: Timestamp::UNIX_EPOCH });
        let twin = clock.clone();
        assert_eq!(clock.now(), Timestamp::UNIX_EPOCH);
        twin.step(Duration::from_secs(90));
        assert_eq!(clock.now().as_second(), 90);
    }

    #[test]
    fn a_scaled_clock_runs_faster_and_can_be_stepped_too() {
        let clock = Clock::new(Mode::Real { scale: 1_000_000.0 });
        let start = clock.now();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {}
        assert!(clock.now().duration_since(start) > SignedDuration::from_secs(1000));
        clock.set(Timestamp::UNIX_EPOCH);
        clock.step(Duration::from_secs(1_000_000_000));
        assert!(clock.now().as_second() >= 1_000_000_000);
    }
}

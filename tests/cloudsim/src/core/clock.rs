//! The virtual clock, which alone determines the states of a simulated cloud.
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The mode of the clock.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Follows the machine's clock.
    #[default]
    Real,
    /// Stopped until it is stepped.
    Stepped {
        /// The start time.
        start: Timestamp,
    },
}

#[derive(Debug)]
struct Inner {
    base: Timestamp,
    /// The start of a running clock. `None`: stepped.
    running: Option<Instant>,
}

/// A shared virtual clock; clones show the same time.
#[derive(Debug, Clone)]
pub struct Clock(Arc<Mutex<Inner>>);

impl Clock {
    /// A clock in the given mode.
    pub fn new(mode: Mode) -> Self {
        let inner = match mode {
            Mode::Real => Inner { base: Timestamp::now(), running: Some(Instant::now()) },
            Mode::Stepped { start } => Inner { base: start, running: None },
        };
        Clock(Arc::new(Mutex::new(inner)))
    }

    /// The virtual time.
    pub fn now(&self) -> Timestamp {
        self.0.lock().now()
    }

    /// The real time until a virtual time; `None` if the clock is stopped.
    pub fn real_time_until(&self, to: Timestamp) -> Option<Duration> {
        let inner = self.0.lock();
        inner.running?;
        Some(Duration::try_from(to.duration_since(inner.now())).unwrap_or_default())
    }

    /// Moves the clock forward by `by`, in any mode.
    pub fn step(&self, by: Duration) {
        let mut inner = self.0.lock();
        inner.base = later(inner.base, by);
    }

    /// Sets the time, which may be in the past: loading a dump requires this.
    pub fn set(&self, to: Timestamp) {
        let mut inner = self.0.lock();
        inner.base = to;
        if let Some(since) = &mut inner.running {
            *since = Instant::now();
        }
    }
}

impl Inner {
    fn now(&self) -> Timestamp {
        match self.running {
            None => self.base,
            Some(since) => later(self.base, since.elapsed()),
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
    fn a_running_clock_can_be_stepped_too() {
        let clock = Clock::new(Mode::Real);
        let start = clock.now();
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {}
        assert!(clock.now().duration_since(start) >= SignedDuration::from_millis(2));
        clock.set(Timestamp::UNIX_EPOCH);
        clock.step(Duration::from_secs(1_000_000_000));
        assert!(clock.now().as_second() >= 1_000_000_000);
    }
}

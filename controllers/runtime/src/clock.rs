//! Time of the process, and simulated time for tests.

use std::time::{Duration, Instant, SystemTime};

use ccm_provider::Clock;

/// The machine's clock. Its monotonic part is tokio's, so that tests can pause it.
///
/// It stands still while the machine is suspended, as in Go: a leader that resumes counts on its lease until a
/// renewal is answered, or until the rest of the lease has passed. Linux's `CLOCK_BOOTTIME` would count a suspension that
/// the kernel knows of, which servers do not have, but not the pause of a virtual machine; no clock shows that in time.
#[derive(Debug, Clone, Copy, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        SystemTime::now()
    }
}

/// The machine's clock of a process whose retries are spread.
#[derive(Debug, Clone, Copy, Default)]
pub struct JitteryClock;

impl Clock for JitteryClock {
    fn now(&self) -> Instant {
        SystemClock.now()
    }

    fn wall(&self) -> SystemTime {
        SystemClock.wall()
    }

    fn jitter(&self) -> f64 {
        rand::random()
    }
}

/// A time as the Kubernetes API writes it: UTC, whole seconds.
pub fn rfc3339(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A clock whose wall time starts at a fixed time and runs with tokio's (paused) time.
#[derive(Debug)]
pub struct SimulatedClock {
    start: Instant,
    epoch: SystemTime,
    skew: parking_lot::Mutex<i64>,
}

impl SimulatedClock {
    /// A clock that shows `epoch` now.
    pub fn new(epoch: SystemTime) -> Self {
        Self { start: tokio::time::Instant::now().into_std(), epoch, skew: parking_lot::Mutex::new(0) }
    }

    /// Moves the wall clock by seconds, forwards or backwards; the monotonic part is not affected.
    pub fn jump(&self, seconds: i64) {
        *self.skew.lock() += seconds;
    }
}

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        tokio::time::Instant::now().into_std()
    }

    fn wall(&self) -> SystemTime {
        let skew = *self.skew.lock();
        let by = Duration::from_secs(skew.unsigned_abs());
        let running = self.epoch + self.now().saturating_duration_since(self.start);
        if skew < 0 { running - by } else { running + by }
    }
}

/// A wall clock reading as Kubernetes writes it.
pub fn timestamp(at: SystemTime) -> jiff::Timestamp {
    jiff::Timestamp::try_from(at).unwrap_or(jiff::Timestamp::UNIX_EPOCH)
}

//! One manager process, from start to end, and its faults.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use ccm_provider::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The kinds of writes that count towards a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Requests to the API server that change something, except leases and events.
    Api,
    /// Changes in the cloud.
    Cloud,
}

/// The time at which a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// The kind of writes to count; `None` for both.
    pub target: Option<Target>,
    /// The number of such writes before the crash.
    pub skip: u64,
    /// Whether the last write takes effect.
    pub after: bool,
}

/// A process.
#[derive(Debug)]
pub struct Life {
    /// `m1`, `m2`, …; also its identity in the election.
    pub name: String,
    /// The clock of the process.
    pub clock: Arc<LifeClock>,
    dead: AtomicBool,
    hung: AtomicBool,
    // Wakes waiters in FIFO order, unlike tokio's watch.
    changed: Notify,
    cut_off: AtomicBool,
    crash: Mutex<Option<CrashPoint>>,
    writes: AtomicU64,
}

/// The time as seen by this process.
#[derive(Debug)]
pub struct LifeClock {
    began: tokio::time::Instant,
    epoch: SystemTime,
    // The milliseconds by which both clocks are ahead, and by which only the wall clock is.
    slept: AtomicU64,
    jumped: AtomicU64,
}

/// The start time of every simulation.
pub fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

impl LifeClock {
    /// A clock that shows the simulated time, which was zero at `began`.
    pub fn new(began: tokio::time::Instant) -> Self {
        Self { began, epoch: epoch(), slept: AtomicU64::new(0), jumped: AtomicU64::new(0) }
    }

    /// Suspends the process for this time without its noticing.
    pub fn leap(&self, by: Duration) {
        self.slept.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Moves the wall clock forward.
    pub fn jump(&self, by: Duration) {
        self.jumped.fetch_add(millis(by), Ordering::SeqCst);
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Clock for LifeClock {
    fn now(&self) -> Instant {
        let slept = Duration::from_millis(self.slept.load(Ordering::SeqCst));
        tokio::time::Instant::now().into_std() + slept
    }

    fn wall(&self) -> SystemTime {
        // The machine's clocks continue while a process is stopped; the simulated time is the wall clock of all
        // processes.
        let jumped = Duration::from_millis(self.jumped.load(Ordering::SeqCst));
        self.epoch + self.began.elapsed() + jumped
    }
}

/// The outcome of a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permit {
    /// It takes effect.
    Go,
    /// It takes effect, and its answer is lost.
    LastWrite,
    /// It does not take effect.
    Dead,
}

impl Life {
    /// A running process.
    pub fn new(name: String, began: tokio::time::Instant, crash: Option<CrashPoint>) -> Self {
        Self {
            name,
            clock: Arc::new(LifeClock::new(began)),
            dead: AtomicBool::new(false),
            hung: AtomicBool::new(false),
            changed: Notify::new(),
            cut_off: AtomicBool::new(false),
            crash: Mutex::new(crash),
            writes: AtomicU64::new(0),
        }
    }

    /// Whether the process has ended.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// Kills the process: none of its later actions has an effect.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits until the process is dead.
    pub async fn died(&self) {
        self.until(|| self.is_dead()).await;
    }

    async fn until(&self, wanted: impl Fn() -> bool) {
        loop {
            let changed = self.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            if wanted() {
                return;
            }
            changed.await;
        }
    }

    /// Suspends or resumes the communication of the process.
    pub fn set_hung(&self, hung: bool) {
        self.hung.store(hung, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits while the process is suspended. True if it was: then its current action is lost.
    pub async fn hang(&self) -> bool {
        let was = self.hung.load(Ordering::SeqCst);
        self.until(|| !self.hung.load(Ordering::SeqCst)).await;
        was
    }

    /// Disconnects the process from the API server, or reconnects it.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::SeqCst);
    }

    /// Whether the process is disconnected from the API server.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::SeqCst)
    }

    /// Sets the crash point.
    pub fn crash_at(&self, point: CrashPoint) {
        *self.crash.lock() = Some(point);
    }

    /// Removes the crash point.
    pub fn spare(&self) {
        *self.crash.lock() = None;
    }

    /// The number of counted writes that the process has begun.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Called before each write.
    pub fn permit(&self, target: Target) -> Permit {
        if self.is_dead() {
            return Permit::Dead;
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut crash = self.crash.lock();
        let Some(point) = crash.as_mut().filter(|point| point.target.is_none_or(|t| t == target)) else {
            return Permit::Go;
        };
        if point.skip > 0 {
            point.skip -= 1;
            return Permit::Go;
        }
        if point.after {
            return Permit::LastWrite;
        }
        self.die();
        Permit::Dead
    }
}

impl fmt::Display for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

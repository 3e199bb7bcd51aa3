//! One manager process, from start to end, and its faults.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use ccm_provider::Clock;
use tokio::sync::Notify;

/// Which writes count towards a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Target {
    /// Requests to the API server that change something, leases and events left out.
    Api,
    /// Changes in the cloud.
    Cloud,
}

/// When a process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CrashPoint {
    /// Writes of which kind are counted; `None` for both.
    pub target: Option<Target>,
    /// How many more such writes happen before.
    pub skip: u64,
    /// Whether the write takes effect.
    pub after: bool,
}

/// A process.
#[derive(Debug)]
pub struct Life {
    /// `m1`, `m2`, …; also its identity in the election.
    pub name: String,
    /// Its time.
    pub clock: Arc<LifeClock>,
    dead: AtomicBool,
    hung: AtomicBool,
    // Wakes waiters in FIFO order, unlike tokio's watch.
    changed: Notify,
    cut_off: AtomicBool,
    crash: Mutex<Option<CrashPoint>>,
    writes: AtomicU64,
}

/// Time as this process sees it.
#[derive(Debug)]
pub struct LifeClock {
    began: tokio::time::Instant,
    epoch: SystemTime,
    // Milliseconds that both clocks are ahead, and that only the wall clock is.
    slept: AtomicU64,
    jumped: AtomicU64,
}

/// The moment at which every simulation begins.
pub fn epoch() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_767_225_600)
}

impl LifeClock {
    /// A clock that shows the simulated time; `began` is when that was zero.
    pub fn new(began: tokio::time::Instant) -> Self {
        Self { began, epoch: epoch(), slept: AtomicU64::new(0), jumped: AtomicU64::new(0) }
    }

    /// The process was suspended for this long, and has not noticed it yet.
    pub fn leap(&self, by: Duration) {
        self.slept.fetch_add(millis(by), Ordering::SeqCst);
    }

    /// Sets the wall clock forward.
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
        // The machine's clocks run on while a process is stopped; the world's time is the wall clock of all.
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
    /// A process that runs.
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

    /// Whether it has ended.
    pub fn is_dead(&self) -> bool {
        self.dead.load(Ordering::SeqCst)
    }

    /// From now on nothing that it does has an effect.
    pub fn die(&self) {
        self.dead.store(true, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Returns when it has died.
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

    /// Suspends or resumes its communication.
    pub fn set_hung(&self, hung: bool) {
        self.hung.store(hung, Ordering::SeqCst);
        self.changed.notify_waiters();
    }

    /// Waits while it is stopped. True if it was: then its current action is lost.
    pub async fn hang(&self) -> bool {
        let was = self.hung.load(Ordering::SeqCst);
        self.until(|| !self.hung.load(Ordering::SeqCst)).await;
        was
    }

    /// Cuts it off the API server, or connects it again.
    pub fn set_cut_off(&self, cut_off: bool) {
        self.cut_off.store(cut_off, Ordering::SeqCst);
    }

    /// Whether it cannot reach the API server.
    pub fn is_cut_off(&self) -> bool {
        self.cut_off.load(Ordering::SeqCst)
    }

    /// Sets when it will die.
    pub fn crash_at(&self, point: CrashPoint) {
        *self.crash.lock().unwrap_or_else(PoisonError::into_inner) = Some(point);
    }

    /// It will not die by itself.
    pub fn spare(&self) {
        *self.crash.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// The number of counted writes that it has begun.
    pub fn writes(&self) -> u64 {
        self.writes.load(Ordering::SeqCst)
    }

    /// Called before each write.
    pub fn permit(&self, target: Target) -> Permit {
        if self.is_dead() {
            return Permit::Dead;
        }
        self.writes.fetch_add(1, Ordering::SeqCst);
        let mut crash = self.crash.lock().unwrap_or_else(PoisonError::into_inner);
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

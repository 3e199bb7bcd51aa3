//! The trace of a run, under simulated time.

use std::fmt;
use std::hash::{DefaultHasher, Hasher};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The record of a run, and its violations.
#[derive(Debug)]
pub struct Trace {
    began: Instant,
    lines: Mutex<Vec<String>>,
    found: Mutex<Vec<Violation>>,
}

/// A violated invariant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// The invariant.
    pub invariant: Invariant,
    /// The observation.
    pub details: String,
}

/// The invariants.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Invariant {
    /// A Node is deleted only if its instance is known to be gone, and only a limited number at once.
    NodeEvidence,
    /// No balancer loses its last host while that host should serve.
    Backends,
    /// Objects of other clusters, clouds or controllers remain unchanged.
    Foreign,
    /// After convergence, every balancer, route and finalizer has an owner that needs it.
    Orphans,
    /// Objects in the desired state are not written again.
    Quiet,
    /// Nodes, Services and routes converge in time.
    Convergence,
    /// Only the holder of the lease writes.
    OneWriter,
    /// The number of calls depends on time, not on the number of objects.
    Calls,
    /// Queues are empty after convergence.
    Baseline,
    /// The program neither panics nor exits without a reason.
    Alive,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.invariant, self.details)
    }
}

impl Default for Trace {
    fn default() -> Self {
        Self { began: Instant::now(), lines: Mutex::default(), found: Mutex::default() }
    }
}

impl Trace {
    /// Simulated time since the run began.
    pub fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Adds one line.
    pub fn say(&self, line: impl fmt::Display) {
        let now = self.now();
        self.lines.lock().push(format!("{:>5}.{:03} {line}", now.as_secs(), now.subsec_millis()));
    }

    /// Records a violation of an invariant.
    pub fn violated(&self, invariant: Invariant, details: impl fmt::Display) {
        let violation = Violation { invariant, details: details.to_string() };
        self.say(format_args!("VIOLATED {violation}"));
        self.found.lock().push(violation);
    }

    /// The first violation.
    pub fn first_violation(&self) -> Option<Violation> {
        self.found.lock().first().cloned()
    }

    /// The lines.
    pub fn lines(&self) -> Vec<String> {
        self.lines.lock().clone()
    }

    /// A digest of the run.
    pub fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for line in self.lines.lock().iter() {
            hasher.write(line.as_bytes());
        }
        hasher.finish()
    }
}

//! The time on objects. Replaceable, so that a simulation can repeat a run byte for byte.

use jiff::Timestamp;
use std::sync::Arc;

/// Where the server reads the time for `creationTimestamp` and `deletionTimestamp`.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that calls `now` each time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl Default for Clock {
    fn default() -> Clock {
        Clock::new(Timestamp::now)
    }
}

impl std::fmt::Debug for Clock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Clock")
    }
}

/// A time as `metav1.Time` writes it: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

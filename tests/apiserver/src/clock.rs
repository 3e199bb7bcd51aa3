//! The clock for time stamps of objects. Replaceable, so that a simulation can repeat a run byte for byte.

use jiff::Timestamp;
use std::sync::Arc;

/// The source of the time for `creationTimestamp` and `deletionTimestamp`.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// A clock that calls `now` each time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Clock {
        Clock(Arc::new(now))
    }

    /// The current time.
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

/// A time in the form of `metav1.Time`: whole seconds.
pub(crate) fn seconds(time: Timestamp) -> String {
    format!("{time:.0}")
}

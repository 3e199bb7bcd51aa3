//! A mutex without poison.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks what no panic can leave half changed: a lock that a panicking task held is taken as it is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

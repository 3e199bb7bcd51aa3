//! A mutex without poisoning.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks data that a panic cannot leave half changed: the lock of a panicked task is taken as it is.
pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

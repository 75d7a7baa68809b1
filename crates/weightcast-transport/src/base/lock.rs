//! How a mutex is locked here.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, and carries on after a panic elsewhere: no update under these locks can be half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

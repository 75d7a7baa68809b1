//! Values that a forked child does not share.

use std::process;
use std::sync::{Mutex, MutexGuard, OnceLock};

/// A value of one process. A forked child begins with a new value: its memory is a copy, and the lock
/// that it inherits may have been held at the fork.
pub(crate) struct PerProcess<T> {
    id: u32,
    value: Mutex<T>,
    child: OnceLock<Box<Self>>,
}

impl<T: Default> PerProcess<T> {
    fn new() -> Self {
        Self { id: process::id(), value: Mutex::default(), child: OnceLock::new() }
    }

    /// The value of this process. `first` holds the value of the first process; a child's value hangs
    /// below its parent's.
    pub(crate) fn lock(first: &'static OnceLock<Self>) -> MutexGuard<'static, T> {
        let mut own = first.get_or_init(Self::new);
        while own.id != process::id() {
            own = own.child.get_or_init(|| Box::new(Self::new()));
        }
        own.value.lock().expect("no panic while held")
    }
}

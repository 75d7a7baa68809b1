//! How a mutex is locked here, and for what a thread of a test sleeps.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks, and carries on after a panic elsewhere: no update under these locks can be half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The number by which the kernel knows the calling thread.
#[cfg(test)]
pub(crate) fn own_thread() -> String {
    let own = std::fs::read_link("/proc/thread-self").expect("Linux");
    own.file_name().expect("the last part is the number").to_str().expect("digits").to_owned()
}

/// Whether a thread of this process sleeps until this mutex or condition variable wakes it: the kernel
/// says which word a sleeping thread waits for.
#[cfg(test)]
pub(crate) fn sleeps_on<T>(thread: &str, what: &T) -> bool {
    let call = std::fs::read_to_string(format!("/proc/self/task/{thread}/syscall"));
    let call = call.unwrap_or_default();
    let first = call.split(' ').nth(1).and_then(|first| first.strip_prefix("0x"));
    let first = first.and_then(|first| usize::from_str_radix(first, 16).ok());
    let start = std::ptr::from_ref(what).addr();
    first.is_some_and(|word| (start..start + size_of::<T>()).contains(&word))
}

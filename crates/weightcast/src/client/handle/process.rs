//! What one process owns: a fork's copy of it is never touched.

use std::mem;
use std::process;

use crate::error::Error;

/// Something with threads and sockets behind it. After a fork only the process that made it may
/// use or drop it: the child has neither the threads nor a say about the sockets.
#[derive(Debug)]
pub struct Owned<T> {
    process: u32,
    value: Option<T>,
}

impl<T> Owned<T> {
    /// A value that belongs to this process.
    pub fn new(value: T) -> Self {
        Self { process: process::id(), value: Some(value) }
    }

    /// The value.
    ///
    /// # Errors
    /// [`CallError::Misuse`](crate::CallError::Misuse) in any other process.
    pub fn get(&self) -> Result<&T, Error> {
        match &self.value {
            Some(value) if self.process == process::id() => Ok(value),
            _ => Err(Error::misuse(format!(
                "this handle was opened by process {}; open one in this process",
                self.process
            ))),
        }
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if self.process != process::id() {
            // A copy that a fork made: its threads cannot be joined, its sockets are the parent's.
            mem::forget(self.value.take());
        }
    }
}

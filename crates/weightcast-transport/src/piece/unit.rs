//! One unit of memory that is being filled: how many of its bytes are still to come.
//!
//! Workers bring them in any order; a thread that sees the unit final sees all of their bytes.
//! `weightcast-loom` tries every order of this file.

use super::atomic::{AtomicU64, Ordering};

/// Bytes left of a unit that no transfer has been planned for.
const UNPLANNED: u64 = u64::MAX;

/// A unit's count of bytes.
#[derive(Debug)]
pub(crate) struct Unit(pub(crate) AtomicU64);

impl Unit {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(UNPLANNED))
    }

    /// So many bytes are to come, unless all have.
    pub(crate) fn plan(&self, bytes: u64) {
        if !self.is_final() {
            self.0.store(bytes, Ordering::Release);
        }
    }

    /// So many of them are there. True if they were the last.
    pub(crate) fn arrived(&self, bytes: u64) -> bool {
        // A thread that sees the unit final sees its bytes, whichever worker brought them.
        self.0.fetch_sub(bytes, Ordering::AcqRel) == bytes
    }

    /// Whether all are there.
    pub(crate) fn is_final(&self) -> bool {
        self.0.load(Ordering::Acquire) == 0
    }
}

//! The word that says whether an export is served: its id while it is, zero afterwards.
//!
//! The word moves once, from the id to zero, and ids are never used twice. If the word still holds the
//! id after a copy, the owner had not begun to change the bytes: a sequence lock with one turn. `weightcast-loom` tries every order of this file.

use super::atomic::{AtomicU64, Ordering, fence};

/// The word of an export that is no longer served.
pub(crate) const FENCED: u64 = 0;

/// A fence word. Its address can be given away: a reader in another process reads it there.
pub(crate) struct FenceWord(pub(crate) AtomicU64);

impl FenceWord {
    pub(crate) fn new(id: u64) -> Self {
        Self(AtomicU64::new(id))
    }

    /// True if all bytes that this thread read before the call were served.
    pub(crate) fn is(&self, id: u64) -> bool {
        // The reads before must not move behind the look at the word.
        fence(Ordering::SeqCst);
        self.0.load(Ordering::SeqCst) == id
    }

    /// Ends it; the memory may be changed afterwards.
    pub(crate) fn fence(&self) {
        self.0.store(FENCED, Ordering::SeqCst);
        // The owner's writes after must not move ahead of it.
        fence(Ordering::SeqCst);
    }
}

//! The notes of one export, and those who wait for one.

use crate::base::limits::TICK;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};

/// The notes of one export, each set at most once.
#[derive(Default)]
pub(crate) struct Notes {
    note: OnceLock<Arc<[u8]>>,
    early: OnceLock<Arc<[u8]>>,
    waiting: Mutex<()>,
    moved: Condvar,
}

impl Notes {
    /// The note.
    pub(crate) fn note(&self) -> Option<Arc<[u8]>> {
        self.note.get().cloned()
    }

    /// The note, or as long as there is none the early note.
    pub(crate) fn known(&self) -> Option<Arc<[u8]>> {
        self.note.get().or(self.early.get()).cloned()
    }

    /// [`Notes::known`], waiting for either. Looks each [`TICK`] whether it is still wanted.
    pub(crate) fn wait_known(&self, wanted: impl Fn() -> bool) -> Option<Arc<[u8]>> {
        loop {
            let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(note) = self.known() {
                return Some(note);
            }
            if !wanted() {
                return None;
            }
            drop(self.moved.wait_timeout(waiting, TICK));
        }
    }

    /// All who wait look again.
    pub(crate) fn wake(&self) {
        // Under the lock, so that no thread falls asleep between its look and this.
        let _waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        self.moved.notify_all();
    }

    /// Sets the note, or the early one.
    ///
    /// # Errors
    /// What was given, if there is one already.
    pub(crate) fn set(&self, early: bool, note: &[u8]) -> Result<(), Arc<[u8]>> {
        let place = if early { &self.early } else { &self.note };
        place.set(note.into())?;
        self.wake();
        Ok(())
    }
}

//! A fence word that readers of this host map: beside the one in the export, on a page of its own.
//!
//! It moves as the other does, once, from the export's id to zero, and its reader's check is the same: bytes
//! first, then the word.

use crate::base::id::ExportId;
use crate::export::fence_word::FENCED;
use crate::memory::shared::SharedAllocation;
use crate::memory::shared_view::SharedView;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering, fence};

/// The owner's end.
pub(super) struct SharedWord {
    page: SharedAllocation,
    /// The owner. A forked child has the page too, and must not end what its parent serves.
    process: u32,
}

impl SharedWord {
    pub(super) fn new(id: ExportId) -> io::Result<Self> {
        let (page, process) = (SharedAllocation::new(size_of::<u64>())?, std::process::id());
        let word = Self { page, process };
        word.word().store(id.0, Ordering::SeqCst);
        Ok(word)
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        self.page.file()
    }

    /// Ends it; the memory may be changed afterwards.
    pub(super) fn fence(&self) {
        if std::process::id() == self.process {
            self.word().store(FENCED, Ordering::SeqCst);
            // The owner's writes after must not move ahead of it.
            fence(Ordering::SeqCst);
        }
    }

    fn word(&self) -> &AtomicU64 {
        // SAFETY: a whole page of our own, aligned, that lives as long as the value; all access is atomic.
        unsafe { AtomicU64::from_ptr(self.page.address().cast()) }
    }
}

/// A reader's end.
pub(crate) struct WordView(SharedView);

impl WordView {
    /// `None` if the file is too short for a word.
    pub(crate) fn new(view: SharedView) -> Option<Self> {
        (view.len() >= size_of::<u64>()).then_some(Self(view))
    }

    /// True if all bytes that this thread read before the call were served.
    pub(crate) fn is(&self, id: ExportId) -> bool {
        // The reads before must not move behind the look at the word.
        fence(Ordering::SeqCst);
        // SAFETY: mapped as long as the view lives, at the beginning of a page; relaxed loads of memory that
        // may only be read are allowed.
        let word = unsafe { AtomicU64::from_ptr(self.0.address().cast_mut().cast()) };
        word.load(Ordering::Relaxed) == id.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_the_id_for_its_readers_until_the_fence() {
        let mut word = SharedWord::new(ExportId(5)).unwrap();
        let views = [(); 2].map(|()| WordView::new(SharedView::map(word.file()).unwrap()).unwrap());
        let is = |id| views.each_ref().map(|view| view.is(ExportId(id)));
        assert_eq!((is(5), is(6), is(0)), ([true; 2], [false; 2], [false; 2]));
        let owner = std::mem::replace(&mut word.process, 0);
        word.fence();
        assert_eq!(is(5), [true; 2], "a forked child fences nothing");
        word.process = owner;
        word.fence();
        assert_eq!(is(5), [false; 2]);
    }
}

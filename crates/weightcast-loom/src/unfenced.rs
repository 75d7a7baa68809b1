//! A fence word without fences: its own loads and stores stay as they are.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

    pub(super) fn fence(_: Ordering) {}
}

#[path = "../../weightcast-transport/src/export/fence_word.rs"]
pub(crate) mod fence_word;

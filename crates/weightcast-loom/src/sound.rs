//! The words as the transport has them.

mod atomic {
    pub(super) use loom::sync::atomic::{AtomicU64, Ordering, fence};
}

#[path = "../../weightcast-transport/src/export/fence_word.rs"]
pub(crate) mod fence_word;
#[path = "../../weightcast-transport/src/piece/unit.rs"]
pub(crate) mod unit;

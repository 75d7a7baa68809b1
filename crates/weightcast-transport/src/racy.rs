//! A copy that tolerates a racing writer.
//!
//! The safe accessors of a region may run beside each other. Relaxed atomics make that a matter
//! of stale bytes, never of undefined behaviour; on common hardware they are plain moves.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

/// Copies `len` bytes, front to back. Overlapping ranges are allowed only if `to` is not ahead
/// of `from`.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to` until the call returns.
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    let (mut from, mut to, mut left) = (from.cast_mut(), to, len);
    if from.addr() % 8 == to.addr() % 8 {
        let head = from.align_offset(8).min(left);
        // SAFETY: the first `head` bytes of both ranges.
        unsafe { copy_bytes(from, to, head) };
        let words = (left - head) / 8;
        for i in 0..words {
            // SAFETY: both are aligned to 8 here, and head + 8 * i + 8 <= len.
            unsafe {
                let word = AtomicU64::from_ptr(from.add(head + 8 * i).cast()).load(Relaxed);
                AtomicU64::from_ptr(to.add(head + 8 * i).cast()).store(word, Relaxed);
            }
        }
        // SAFETY: head + 8 * words <= len.
        (from, to) = unsafe { (from.add(head + 8 * words), to.add(head + 8 * words)) };
        left -= head + 8 * words;
    }
    // SAFETY: what is left of both ranges.
    unsafe { copy_bytes(from, to, left) };
}

/// # Safety
/// As [`copy`].
unsafe fn copy_bytes(from: *mut u8, to: *mut u8, len: usize) {
    for i in 0..len {
        // SAFETY: i < len.
        unsafe {
            AtomicU8::from_ptr(to.add(i))
                .store(AtomicU8::from_ptr(from.add(i)).load(Relaxed), Relaxed)
        };
    }
}

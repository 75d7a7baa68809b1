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

#[cfg(test)]
mod tests {
    use super::*;

    /// From and to every place of a word, with what lies beside.
    #[test]
    fn bytes_are_copied_and_none_beside() {
        let source: Vec<u8> = (1..=120).collect();
        for (from, to) in (0..9).flat_map(|from| (0..9).map(move |to| (from, to))) {
            for len in 0..64 {
                let mut target = [0_u8; 120];
                // SAFETY: both ranges lie in arrays that are longer.
                unsafe { copy(source[from..].as_ptr(), target[to..].as_mut_ptr(), len) };
                assert_eq!(target[to..to + len], source[from..from + len], "{from} {to} {len}");
                assert!(target[..to].iter().chain(&target[to + len..]).all(|byte| *byte == 0));
            }
        }
    }

    #[test]
    fn bytes_move_towards_the_front_over_themselves() {
        for distance in 0..20 {
            let mut bytes: Vec<u8> = (0..100).collect();
            let base = bytes.as_mut_ptr();
            // SAFETY: both ranges lie in the vector.
            unsafe { copy(base.add(distance), base, 80) };
            let expected: Vec<u8> = (0..80).map(|i| i + distance as u8).chain(80..100).collect();
            assert_eq!(bytes, expected, "by {distance}");
        }
    }
}

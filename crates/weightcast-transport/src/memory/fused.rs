//! A copy that digests as it goes: the source is read from memory once, and the target's stores pass the
//! cache by, so no byte is looked at a second time after the copy.
//!
//! Each byte of the source is read once, so that the digest is that of the bytes which were stored, whoever writes the
//! source meanwhile. Where the target lies as words of the tensor do, and the CPU has AVX2, each byte is digested from the
//! register in which it is copied. Elsewhere tile by tile, through a scratch that stays in the first cache. Both halves
//! have forms for each CPU, and all forms of the digest agree to the bit.

use crate::memory::digest::{Digest, STREAMED, WORD, copy_streamed, digest_raw};
use crate::memory::racy;
#[cfg(doc)]
use crate::memory::stream_copy::order_stores;
use crate::memory::stream_copy::stream_copy;
use std::mem::MaybeUninit;

/// Bytes that are taken into the scratch at a time.
const TILE: usize = 8 << 10;

/// Fewest bytes of a range whose stores pass the cache by. Of less, the lines at both ends, which are written in
/// parts, cost more than the others gain.
const LEAST_STREAMED: usize = 2 << 10;

/// Copies, and digests the bytes as lying `position` bytes into their logical tensor. Whoever changes the
/// source meanwhile makes both worthless, which the source's fence word tells; but the digest is that of the copy in any
/// case. `next` is where the caller reads afterwards, if anywhere: its memory is asked for, not read. [`order_stores`] has
/// to follow before another thread hears of the copy.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`; they do not overlap.
pub(crate) unsafe fn copy_digested(
    position: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    next: *const u8,
) -> Digest {
    if len < LEAST_STREAMED {
        // SAFETY: the caller's ranges.
        return unsafe { short(position, from, to, len) };
    }
    let head = to.align_offset(STREAMED).min(len);
    let tail = head + (len - head) / STREAMED * STREAMED;
    let at = |offset: usize| position.wrapping_add(offset as u64);
    let streamed = match at(head).is_multiple_of(WORD as u64) {
        // SAFETY: head <= tail <= len, and the target is aligned behind the head.
        true => unsafe { copy_streamed(at(head), from.add(head), to.add(head), tail - head, next) },
        false => None,
    };
    // SAFETY: the caller's ranges, and parts of them.
    unsafe {
        let Some(digest) = streamed else { return by_tiles(position, from, to, len) };
        let ends = short(position, from, to, head)
            + short(at(tail), from.add(tail), to.add(tail), len - tail);
        digest + ends
    }
}

/// Digests what was copied, which nobody else writes.
///
/// # Safety
/// As [`copy_digested`].
unsafe fn short(position: u64, from: *const u8, to: *mut u8, len: usize) -> Digest {
    // SAFETY: the caller's ranges.
    unsafe {
        racy::copy(from, to, len);
        digest_raw(position, to, len)
    }
}

/// # Safety
/// As [`copy_digested`].
unsafe fn by_tiles(position: u64, from: *const u8, to: *mut u8, len: usize) -> Digest {
    let mut scratch = MaybeUninit::<Scratch>::uninit();
    // SAFETY: the field of a value of our own, which is not read before it is written.
    let tile = unsafe { (&raw mut (*scratch.as_mut_ptr()).0).cast::<u8>() };
    let (mut digest, mut done) = (Digest::ZERO, 0);
    while done < len {
        let step = (len - done).min(TILE);
        // SAFETY: done + step <= len, and a step fits into the scratch.
        unsafe {
            std::ptr::copy_nonoverlapping(from.add(done), tile, step);
            digest += digest_raw(position.wrapping_add(done as u64), tile, step);
            copy(tile, to.add(done), step);
        }
        done += step;
    }
    digest
}

/// A tile, as it was read.
#[repr(align(64))]
struct Scratch([u8; TILE]);

/// Copies past the cache where that pays.
///
/// # Safety
/// As [`copy_digested`].
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len < LEAST_STREAMED {
        // SAFETY: the caller's ranges.
        true => unsafe { racy::copy(from, to, len) },
        // SAFETY: the caller's ranges.
        false => unsafe { stream_copy(from, to, len) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::digest::digest_at;
    use std::sync::atomic::Ordering::Relaxed;
    use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};

    /// Around every border of tiles and streams, from and to every place of a word, at every place of a
    /// tensor's word, whether or not the target lies as its place in the tensor does.
    #[test]
    fn bytes_are_copied_none_beside_and_all_are_digested() {
        const ROOM: usize = 3 * TILE;
        let mut source: Vec<u8> = (0..ROOM).map(|i| (i * 7 % 255) as u8 + 1).collect();
        let (least, tile) = (LEAST_STREAMED, TILE);
        let lens = (0..9).chain([60, 64, 65, 127, 1_000]).chain(least - 2..least + 3);
        let lens = lens.chain(tile - 3..tile + 4).chain([tile + 5_000, 2 * tile + 1]);
        let zeros = [0; ROOM + STREAMED];
        // Miri is slow.
        for len in lens.filter(|len| !cfg!(miri) || [65, least - 1, least + 2].contains(len)) {
            for (from, to, position) in [
                (0, 0, 0),
                (1, 0, 3),
                (0, 1, 5),
                (3, 2, 8_191),
                (5, 63, 3_192),
                (8, 32, 1 << 40),
                (0, 32, 8_160),
                (3, 5, 37),
                (1, 31, 24_575),
                (9, 16, 16),
                (0, 4, 8),
                (0, 16, 0),
                (0, 4, 4_092),
                (2, 28, 12),
                (0, 30, 2),
            ] {
                let mut target = vec![0_u8; ROOM + STREAMED];
                let to = target.as_ptr().align_offset(STREAMED) + to;
                // SAFETY: both ranges lie in vectors that are longer.
                let digest = unsafe {
                    // Atomics, which read the source here and there, want a pointer that may write.
                    let (from, to) = (source[from..].as_mut_ptr(), target[to..].as_mut_ptr());
                    copy_digested(position, from, to, len, from.wrapping_add(len))
                };
                let expected = &source[from..from + len];
                assert_eq!(digest, digest_at(position, expected), "{from} {to} {len}");
                assert!(target[to..to + len] == *expected, "{from} {to} {len}");
                let (before, behind) = (&target[..to], &target[to + len..]);
                assert!(before == &zeros[..to], "{from} {to} {len}");
                assert!(behind == &zeros[..behind.len()], "{from} {to} {len}");
            }
        }
    }

    /// Is raised at the end, a panic included.
    struct Raised<'a>(&'a AtomicBool);

    impl Drop for Raised<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }

    /// Of short ranges, of those that lie as words of their tensor do, and of those that do not.
    #[test]
    fn the_digest_is_that_of_the_copy_whoever_writes_the_source_meanwhile() {
        const LEN: usize = 64 << 10;
        let source: Vec<AtomicU64> = (0..LEN / 8).map(|_| AtomicU64::new(0)).collect();
        let (over, written) = (AtomicBool::new(false), AtomicUsize::new(0));
        let mut target = vec![0_u8; LEN + STREAMED];
        let to = target.as_ptr().align_offset(STREAMED);
        let mut copy = |len: usize, to: usize| {
            // SAFETY: both ranges lie in vectors that are longer.
            let digest = unsafe {
                let (from, to) = (source.as_ptr().cast(), target[to..].as_mut_ptr());
                copy_digested(0, from, to, len, from)
            };
            digest == digest_at(0, &target[to..to + len])
        };
        let wrong = std::thread::scope(|scope| {
            let _over = Raised(&over);
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    let value = written.fetch_add(1, Relaxed) as u64;
                    source.iter().for_each(|word| word.store(value, Relaxed));
                }
            });
            let mut wrong = [0; 3];
            for turn in 0_usize.. {
                let (len, beside) = [(LEN, 0), (LEAST_STREAMED - 8, 0), (LEN, 2)][turn % 3];
                wrong[turn % 3] += usize::from(!copy(len, to + beside));
                if turn >= 3_000 && written.load(Relaxed) >= 1_000 {
                    break;
                }
            }
            wrong
        });
        assert_eq!(wrong, [0; 3], "copies of which the digest is another's");
    }
}

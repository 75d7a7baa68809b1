//! A copy that digests as it goes: the source is read from memory once, and the target's stores pass the
//! cache by, so no byte is looked at a second time after the copy.
//!
//! Where the target lies as its place in the tensor does, to 32 bytes, and the CPU has AVX2, each byte is digested from
//! the register in which it is copied. Elsewhere tile by tile: a tile's digest brings the tile into the first cache, and
//! the copy takes it from there. Both halves have forms for each CPU, and all forms of the digest agree to the bit.

use crate::memory::digest::{Digest, STREAMED, copy_streamed, digest_raw};
use crate::memory::racy;
use crate::memory::stream_copy::stream_copy;

/// Bytes that are digested and then copied while they are in the first cache.
const TILE: u64 = 16 << 10;

/// Fewest bytes of a range whose stores pass the cache by. Of less, the lines at both ends, which are written in
/// parts, cost more than the others gain.
const LEAST_STREAMED: usize = 2 << 10;

/// Copies, and digests the bytes as lying `position` bytes into their logical tensor. Whoever changes the
/// source meanwhile makes both worthless, which the source's fence word tells.
///
/// # Safety
/// `len` bytes are readable at `from` and writable at `to`; they do not overlap.
pub(crate) unsafe fn copy_digested(
    position: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
) -> Digest {
    let head = to.align_offset(STREAMED).min(len);
    let tail = head + (len - head) / STREAMED * STREAMED;
    let at = |offset: usize| position.wrapping_add(offset as u64);
    let alike = at(head).is_multiple_of(STREAMED as u64);
    let streamed = match len >= LEAST_STREAMED && alike {
        // SAFETY: head <= tail <= len, and the target is aligned behind the head.
        true => unsafe { copy_streamed(at(head), from.add(head), to.add(head), tail - head) },
        false => None,
    };
    // SAFETY: the caller's ranges, and parts of them.
    unsafe {
        let Some(digest) = streamed else { return by_tiles(position, from, to, len) };
        let ends = by_tiles(position, from, to, head)
            + by_tiles(at(tail), from.add(tail), to.add(tail), len - tail);
        digest + ends
    }
}

/// # Safety
/// As [`copy_digested`].
unsafe fn by_tiles(position: u64, from: *const u8, to: *mut u8, len: usize) -> Digest {
    let (mut digest, mut done) = (Digest::ZERO, 0);
    while done < len {
        let at = position.wrapping_add(done as u64);
        // Tiles end where blocks of the digest do.
        let step = (len - done).min((TILE - at % TILE) as usize);
        // SAFETY: done + step <= len.
        unsafe {
            digest += digest_raw(at, from.add(done), step);
            copy(from.add(done), to.add(done), step);
        }
        done += step;
    }
    digest
}

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

    /// Around every border of tiles and streams, from and to every place of a word, at every place of a
    /// tensor's word, whether or not the target lies as its place in the tensor does.
    #[test]
    fn bytes_are_copied_none_beside_and_all_are_digested() {
        const ROOM: usize = 3 * TILE as usize;
        let source: Vec<u8> = (0..ROOM).map(|i| (i * 7 % 255) as u8 + 1).collect();
        let (least, tile) = (LEAST_STREAMED, TILE as usize);
        let lens = (0..9).chain([60, 64, 65, 127, 1_000]).chain(least - 2..least + 3);
        let lens = lens.chain(tile - 3..tile + 4).chain([tile + 5_000, 2 * tile + 1]);
        for len in lens {
            for (from, to, position) in [
                (0, 0, 0),
                (1, 0, 3),
                (0, 1, 5),
                (3, 2, TILE - 1),
                (5, 63, TILE - 5_000),
                (8, 32, 1 << 40),
                (0, 32, TILE - 32),
                (3, 5, 37),
                (1, 31, TILE * 3 - 1),
                (9, 16, 16),
                (0, 4, 8),
            ] {
                let mut target = vec![0_u8; ROOM + STREAMED];
                let to = target.as_ptr().align_offset(STREAMED) + to;
                // SAFETY: both ranges lie in vectors that are longer.
                let digest = unsafe {
                    let (from, to) = (source[from..].as_ptr(), target[to..].as_mut_ptr());
                    copy_digested(position, from, to, len)
                };
                let expected = &source[from..from + len];
                assert_eq!(digest, digest_at(position, expected), "{from} {to} {len}");
                assert!(target[to..to + len] == *expected, "{from} {to} {len}");
                let mut beside = target[..to].iter().chain(&target[to + len..]);
                assert!(beside.all(|byte| *byte == 0), "{from} {to} {len}");
            }
        }
    }
}

//! The portable kernel, and the edges that every kernel leaves to it.

use super::keys::{BLOCK_WORDS, WORD_KEYS, block_keys};

/// The contribution of one word at word index `index`.
#[inline]
pub(super) fn word(index: u64, value: u32) -> [u64; 2] {
    let multipliers = block_keys(index / BLOCK_WORDS as u64);
    let place = (index % BLOCK_WORDS as u64) as usize;
    [0, 1].map(|lane| {
        let keyed = u64::from(value) * u64::from(WORD_KEYS[lane].here[place]);
        multipliers[lane].wrapping_mul(keyed)
    })
}

/// The keyed sums, before the block's multiplier, of `words` words from place `place` of a block.
///
/// # Safety
/// `words * 4` bytes at `bytes` are readable, and `place + words <= BLOCK_WORDS`.
#[inline]
pub(super) unsafe fn run(place: usize, bytes: *const u8, words: usize) -> [u64; 2] {
    let mut sums = [0_u64; 2];
    for i in 0..words {
        // SAFETY: i < words, so the four bytes lie in the caller's range; no alignment is assumed.
        let value = u32::from_le(unsafe { bytes.add(i * 4).cast::<u32>().read_unaligned() });
        for (sum, keys) in sums.iter_mut().zip(WORD_KEYS) {
            *sum = sum.wrapping_add(u64::from(value) * u64::from(keys.here[place + i]));
        }
    }
    sums
}

/// The kernel: `words` whole words, the first at word index `index`.
///
/// # Safety
/// `words * 4` bytes at `bytes` are readable.
pub(super) unsafe fn words(index: u64, bytes: *const u8, words: usize) -> [u64; 2] {
    // SAFETY: the range is the caller's, each run stays inside one block.
    unsafe { super::by_block(index, bytes, words, |place, at, count| run(place, at, count)) }
}

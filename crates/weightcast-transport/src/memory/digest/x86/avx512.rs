//! Sixteen words at once.

use super::super::STREAMED;
use super::super::keys::{BLOCK_WORDS, LaneKeys, WORD_KEYS, block_keys, keys_apart_from};
use super::{ReadAhead, Step, copy_by_block};
use std::arch::x86_64::*;

// Miri knows no stores past the cache.
#[cfg(miri)]
use std::arch::x86_64::_mm512_store_si512 as _mm512_stream_si512;

/// The four running sums of one run: even and odd words of each lane.
type BlockSums = [__m512i; 4];

/// AVX-512 kernel: `words` whole words, the first at word index `index`.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `words * 4` bytes at `bytes` are readable.
#[target_feature(enable = "avx512f,avx512dq")]
pub(in super::super) unsafe fn words_avx512(
    mut index: u64,
    mut bytes: *const u8,
    mut words: usize,
) -> [u64; 2] {
    let mut totals = [_mm512_setzero_si512(); 2];
    while words > 0 {
        let block = index / BLOCK_WORDS as u64;
        let place = (index % BLOCK_WORDS as u64) as usize;
        let taken = words.min(BLOCK_WORDS - place);
        // SAFETY: `taken` words lie in the caller's range and in this block.
        settle(&mut totals, unsafe { run(place, bytes, taken) }, block);
        index += taken as u64;
        words -= taken;
        // SAFETY: `taken` words lie in the caller's range; one past its end is allowed.
        bytes = unsafe { bytes.add(taken * 4) };
    }
    totals.map(|total| _mm512_reduce_add_epi64(total) as u64)
}

/// Multiplies a run's sums by its block's keys and adds them up, still as vectors.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn settle(totals: &mut [__m512i; 2], sums: BlockSums, block: u64) {
    for (lane, multiplier) in block_keys(block).into_iter().enumerate() {
        let sum = _mm512_add_epi64(sums[2 * lane], sums[2 * lane + 1]);
        let keyed = _mm512_mullo_epi64(sum, _mm512_set1_epi64(multiplier as i64));
        totals[lane] = _mm512_add_epi64(totals[lane], keyed);
    }
}

#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn absorb(sums: &mut BlockSums, data: __m512i, keys: &BlockSums) {
    let odd = _mm512_srli_epi64::<32>(data);
    sums[0] = _mm512_add_epi64(sums[0], _mm512_mul_epu32(data, keys[0]));
    sums[1] = _mm512_add_epi64(sums[1], _mm512_mul_epu32(odd, keys[1]));
    sums[2] = _mm512_add_epi64(sums[2], _mm512_mul_epu32(data, keys[2]));
    sums[3] = _mm512_add_epi64(sums[3], _mm512_mul_epu32(odd, keys[3]));
}

/// The keys of 16 words from `place`, in the order of [`BlockSums`].
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
fn keys_at(keys: &LaneKeys, place: usize) -> BlockSums {
    debug_assert!(place < BLOCK_WORDS);
    let [first, second] = keys;
    [&first.here, &first.next, &second.here, &second.next].map(|table| {
        // SAFETY: place < BLOCK_WORDS (all callers), and the tables are padded by 16 words.
        unsafe { _mm512_loadu_si512(table.as_ptr().add(place).cast()) }
    })
}

/// # Safety
/// As `scalar::run`.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn run(place: usize, bytes: *const u8, words: usize) -> BlockSums {
    let mut sums = [_mm512_setzero_si512(); 4];
    let whole = words & !15;
    for i in (0..whole).step_by(16) {
        // SAFETY: i + 16 <= words.
        let data = unsafe { _mm512_loadu_si512(bytes.add(i * 4).cast()) };
        absorb(&mut sums, data, &keys_at(WORD_KEYS, place + i));
    }
    if whole < words {
        let mask = (1_u16 << (words - whole)) - 1;
        // SAFETY: masked lanes are not read; the others lie in the caller's range.
        let data = unsafe { _mm512_maskz_loadu_epi32(mask, bytes.add(whole * 4).cast()) };
        absorb(&mut sums, data, &keys_at(WORD_KEYS, place + whole));
    }
    sums
}

/// As [`copy_avx2`](super::copy_avx2).
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `len` bytes, a multiple of 64 as is `to`, are readable at `from` and writable at `to`;
/// they do not overlap.
#[target_feature(enable = "avx512f,avx512dq")]
pub(in super::super) unsafe fn copy_avx512(
    index: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    next: *const u8,
) -> [u64; 2] {
    let reading = ReadAhead { end: from.wrapping_add(len), next };
    // SAFETY: the caller's ranges, of which whole steps are passed on.
    unsafe {
        copy_by_block::<16>(
            index,
            from,
            to,
            len,
            |place, from, to, words| run_copied(place, from, to, words, &reading),
            |from, to| step_copied(from, to),
        )
    }
}

/// # Safety
/// As [`copy_avx512`], of one step.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn step_copied(from: *const u8, to: *mut u8) -> Step {
    let mut words = Step([0; STREAMED]);
    // SAFETY: the caller's ranges; the step is 64 bytes, aligned.
    unsafe {
        let data = _mm512_loadu_si512(from.cast());
        _mm512_stream_si512(to.cast(), data);
        _mm512_store_si512(words.0.as_mut_ptr().cast(), data);
    }
    words
}

/// # Safety
/// As [`copy_avx512`], of whole steps of one block, whose first word has place `place`.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn run_copied(
    place: usize,
    from: *const u8,
    to: *mut u8,
    words: usize,
    reading: &ReadAhead,
) -> [u64; 2] {
    let (mut sums, keys) = ([_mm512_setzero_si512(); 4], keys_apart_from(to, place));
    for i in (0..words).step_by(16) {
        reading.ask(from.wrapping_add(i * 4));
        // SAFETY: i + 16 <= words.
        unsafe {
            let data = _mm512_loadu_si512(from.add(i * 4).cast());
            _mm512_stream_si512(to.add(i * 4).cast(), data);
            absorb(&mut sums, data, &keys_at(keys, place + i));
        }
    }
    [0, 2].map(|lane| _mm512_reduce_add_epi64(_mm512_add_epi64(sums[lane], sums[lane + 1])) as u64)
}

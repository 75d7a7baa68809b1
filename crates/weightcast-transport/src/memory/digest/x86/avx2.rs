//! Eight words at once.

use super::super::keys::{BLOCK_WORDS, LaneKeys, WORD_KEYS, keys_apart_from};
use super::super::{STREAMED, by_block, scalar};
use super::{ReadAhead, Step, copy_by_block};
use std::arch::x86_64::*;

// Miri knows no stores past the cache.
#[cfg(miri)]
use std::arch::x86_64::_mm256_store_si256 as _mm256_stream_si256;

/// AVX2 kernel: `words` whole words, the first at word index `index`.
///
/// # Safety
/// The CPU has AVX2; `words * 4` bytes at `bytes` are readable.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn words_avx2(index: u64, bytes: *const u8, words: usize) -> [u64; 2] {
    // SAFETY: the range is the caller's, `by_block` keeps each run inside one block.
    unsafe { by_block(index, bytes, words, |place, at, count| run(place, at, count)) }
}

/// Copies past the cache, and digests each byte from the register in which it is copied: the words begin at word index
/// `index`. `next` is where the caller reads afterwards: that memory is asked for. The stores are not ordered yet: the
/// caller's is the fence.
///
/// # Safety
/// The CPU has AVX2; `len` bytes, a multiple of 32 as is `to`, are readable at `from` and writable at `to`; they do not
/// overlap.
#[target_feature(enable = "avx2")]
pub(in super::super) unsafe fn copy_avx2(
    index: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    next: *const u8,
) -> [u64; 2] {
    let reading = ReadAhead { end: from.wrapping_add(len), next };
    // SAFETY: the caller's ranges, of which whole steps are passed on.
    unsafe {
        copy_by_block::<8>(
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
/// As [`copy_avx2`], of one step.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn step_copied(from: *const u8, to: *mut u8) -> Step {
    let mut words = Step([0; STREAMED]);
    // SAFETY: the caller's ranges; the step is 32 bytes at least, aligned.
    unsafe {
        let data = _mm256_loadu_si256(from.cast());
        _mm256_stream_si256(to.cast(), data);
        _mm256_store_si256(words.0.as_mut_ptr().cast(), data);
    }
    words
}

/// # Safety
/// As [`copy_avx2`], of whole steps of one block, whose first word has place `place`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn run_copied(
    place: usize,
    from: *const u8,
    to: *mut u8,
    words: usize,
    reading: &ReadAhead,
) -> [u64; 2] {
    let (mut sums, keys) = ([_mm256_setzero_si256(); 4], keys_apart_from(to, place));
    let whole = words & !15;
    for i in (0..whole).step_by(16) {
        reading.ask(from.wrapping_add(i * 4));
        // SAFETY: i + 16 <= words.
        unsafe {
            // The whole line is read before any of it is written: see `keys_apart_from`, here of the source.
            let line = [load(from, i), load(from, i + 8)];
            for (step, data) in line.into_iter().enumerate() {
                _mm256_stream_si256(to.add((i + 8 * step) * 4).cast(), data);
            }
            for (step, data) in line.into_iter().enumerate() {
                absorb(&mut sums, data, &keys_at(keys, place + i + 8 * step));
            }
        }
    }
    if whole < words {
        // SAFETY: whole + 8 <= words.
        unsafe {
            let data = load(from, whole);
            _mm256_stream_si256(to.add(whole * 4).cast(), data);
            absorb(&mut sums, data, &keys_at(keys, place + whole));
        }
    }
    horizontals(sums)
}

/// # Safety
/// Word `word` and the seven behind are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn load(from: *const u8, word: usize) -> __m256i {
    // SAFETY: the caller's.
    unsafe { _mm256_loadu_si256(from.add(word * 4).cast()) }
}

/// # Safety
/// As `scalar::run`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn run(place: usize, bytes: *const u8, words: usize) -> [u64; 2] {
    let mut sums = [_mm256_setzero_si256(); 4];
    let whole = words & !7;
    for i in (0..whole).step_by(8) {
        // SAFETY: i + 8 <= words.
        let data = unsafe { load(bytes, i) };
        absorb(&mut sums, data, &keys_at(WORD_KEYS, place + i));
    }
    // SAFETY: what is left of the caller's range.
    let rest = unsafe { scalar::run(place + whole, bytes.add(whole * 4), words - whole) };
    let sums = horizontals(sums);
    [rest[0].wrapping_add(sums[0]), rest[1].wrapping_add(sums[1])]
}

/// The keys of 8 words from `place`, in the order of the four running sums.
#[target_feature(enable = "avx2")]
#[inline]
fn keys_at(keys: &LaneKeys, place: usize) -> [__m256i; 4] {
    debug_assert!(place < BLOCK_WORDS);
    let [first, second] = keys;
    [&first.here, &first.next, &second.here, &second.next].map(|table| {
        // SAFETY: place < BLOCK_WORDS (all callers), and the tables are padded by 16 words.
        unsafe { _mm256_loadu_si256(table.as_ptr().add(place).cast()) }
    })
}

#[target_feature(enable = "avx2")]
#[inline]
fn absorb(sums: &mut [__m256i; 4], data: __m256i, keys: &[__m256i; 4]) {
    let odd = _mm256_srli_epi64::<32>(data);
    sums[0] = _mm256_add_epi64(sums[0], _mm256_mul_epu32(data, keys[0]));
    sums[1] = _mm256_add_epi64(sums[1], _mm256_mul_epu32(odd, keys[1]));
    sums[2] = _mm256_add_epi64(sums[2], _mm256_mul_epu32(data, keys[2]));
    sums[3] = _mm256_add_epi64(sums[3], _mm256_mul_epu32(odd, keys[3]));
}

/// Both lanes' sums of a run.
#[target_feature(enable = "avx2")]
#[inline]
fn horizontals(sums: [__m256i; 4]) -> [u64; 2] {
    [horizontal(_mm256_add_epi64(sums[0], sums[1])), horizontal(_mm256_add_epi64(sums[2], sums[3]))]
}

#[target_feature(enable = "avx2")]
#[inline]
fn horizontal(sum: __m256i) -> u64 {
    let half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    (_mm_extract_epi64::<0>(half) as u64).wrapping_add(_mm_extract_epi64::<1>(half) as u64)
}

//! Vector kernels for x86-64.
//!
//! `vpmuludq` multiplies the low halves of 64-bit lanes: even words as loaded, odd words after a
//! shift. Products are full 64-bit numbers, so nothing is lost before the wrapping sum.

use super::keys::{BLOCK_WORDS, WORD_KEYS, block_keys};
use super::scalar;
use std::arch::x86_64::*;

/// AVX2 kernel: `words` whole words, the first at word index `index`.
///
/// # Safety
/// The CPU has AVX2; `words * 4` bytes at `bytes` are readable.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn words_avx2(index: u64, bytes: *const u8, words: usize) -> [u64; 2] {
    // SAFETY: the range is the caller's, `by_block` keeps each run inside one block.
    unsafe { super::by_block(index, bytes, words, |place, at, count| run_avx2(place, at, count)) }
}

/// How far before a load its line is asked for: the stores, which pass the cache by, keep the processor from running ahead.
/// Of 512, 1,024 and 4,096 bytes the fastest on an AMD EPYC, by little.
const AHEAD: usize = 1024;

/// Copies whole steps of 32 bytes past the cache, and digests them from the registers in which they are copied: their
/// words begin at word index `index`. `next` is where the caller reads afterwards: that memory is asked for. The stores
/// are not ordered yet: the caller's is the fence.
///
/// # Safety
/// The CPU has AVX2; `steps * 32` bytes are readable at `from` and writable at `to`, which is a multiple of 32; they do
/// not overlap.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn copy_avx2(
    index: u64,
    from: *const u8,
    to: *mut u8,
    steps: usize,
    next: *const u8,
) -> [u64; 2] {
    let reading = ReadAhead { end: from.wrapping_add(32 * steps), next };
    let (mut totals, mut done) = ([0_u64; 2], 0);
    while done < steps {
        let at = index + 8 * done as u64;
        let place = (at % BLOCK_WORDS as u64) as usize;
        let whole = ((BLOCK_WORDS - place) / 8).min(steps - done);
        // SAFETY: done + whole <= steps.
        let sums = unsafe {
            run_copied_avx2(place, from.add(32 * done), to.add(32 * done), 8 * whole, &reading)
        };
        add(&mut totals, settled(sums, at / BLOCK_WORDS as u64));
        done += whole;
        if done < steps && !place.is_multiple_of(8) {
            // SAFETY: done < steps. The step is one that two blocks share.
            let words = unsafe { step_copied_avx2(from.add(32 * done), to.add(32 * done)) };
            // SAFETY: eight words of our own.
            add(&mut totals, unsafe { scalar::words(at + 8 * whole as u64, words.0.as_ptr(), 8) });
            done += 1;
        }
    }
    totals
}

/// Where a copy's reads end, and where they go on.
struct ReadAhead {
    end: *const u8,
    next: *const u8,
}

impl ReadAhead {
    /// Asks for the memory that will be read so far behind `from`. Nothing is read there, wherever that is.
    #[inline(always)]
    fn ask(&self, from: *const u8) {
        let ahead = from.wrapping_add(AHEAD);
        let ahead = match ahead < self.end {
            true => ahead,
            false => self.next.wrapping_add(ahead.addr() - self.end.addr()),
        };
        // SAFETY: asking for memory cannot fault.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(ahead.cast()) };
    }
}

fn add(totals: &mut [u64; 2], sums: [u64; 2]) {
    totals.iter_mut().zip(sums).for_each(|(total, sum)| *total = total.wrapping_add(sum));
}

/// A run's sums by the multipliers of its block.
fn settled(sums: [u64; 2], block: u64) -> [u64; 2] {
    let [first, second] = block_keys(block);
    [sums[0].wrapping_mul(first), sums[1].wrapping_mul(second)]
}

/// Eight words, as they were copied.
#[repr(align(32))]
struct Step([u8; 32]);

/// # Safety
/// As [`copy_avx2`], of one step.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn step_copied_avx2(from: *const u8, to: *mut u8) -> Step {
    let mut words = Step([0; 32]);
    // SAFETY: the caller's ranges; the step is 32 bytes, aligned.
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
unsafe fn run_copied_avx2(
    place: usize,
    from: *const u8,
    to: *mut u8,
    words: usize,
    reading: &ReadAhead,
) -> [u64; 2] {
    let mut sums = [_mm256_setzero_si256(); 4];
    let mut step = |i: usize| {
        // SAFETY: i + 8 <= words.
        unsafe {
            let data = _mm256_loadu_si256(from.add(i * 4).cast());
            _mm256_stream_si256(to.add(i * 4).cast(), data);
            absorb_avx2(&mut sums, data, &keys_at_avx2(place + i));
        }
    };
    let whole = words & !15;
    for i in (0..whole).step_by(16) {
        reading.ask(from.wrapping_add(i * 4));
        step(i);
        step(i + 8);
    }
    if whole < words {
        step(whole);
    }
    horizontals_avx2(sums)
}

/// # Safety
/// As `scalar::run`.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn run_avx2(place: usize, bytes: *const u8, words: usize) -> [u64; 2] {
    let mut sums = [_mm256_setzero_si256(); 4];
    let whole = words & !7;
    for i in (0..whole).step_by(8) {
        // SAFETY: i + 8 <= words.
        let data = unsafe { _mm256_loadu_si256(bytes.add(i * 4).cast()) };
        absorb_avx2(&mut sums, data, &keys_at_avx2(place + i));
    }
    // SAFETY: what is left of the caller's range.
    let rest = unsafe { scalar::run(place + whole, bytes.add(whole * 4), words - whole) };
    let sums = horizontals_avx2(sums);
    [rest[0].wrapping_add(sums[0]), rest[1].wrapping_add(sums[1])]
}

/// The keys of 8 words from `place`, in the order of the four running sums.
#[target_feature(enable = "avx2")]
#[inline]
fn keys_at_avx2(place: usize) -> [__m256i; 4] {
    debug_assert!(place < BLOCK_WORDS);
    let [first, second] = &WORD_KEYS;
    [&first.here, &first.next, &second.here, &second.next].map(|table| {
        // SAFETY: place < BLOCK_WORDS (all callers), and the tables are padded by 16 words.
        unsafe { _mm256_loadu_si256(table.as_ptr().add(place).cast()) }
    })
}

#[target_feature(enable = "avx2")]
#[inline]
fn absorb_avx2(sums: &mut [__m256i; 4], data: __m256i, keys: &[__m256i; 4]) {
    let odd = _mm256_srli_epi64::<32>(data);
    sums[0] = _mm256_add_epi64(sums[0], _mm256_mul_epu32(data, keys[0]));
    sums[1] = _mm256_add_epi64(sums[1], _mm256_mul_epu32(odd, keys[1]));
    sums[2] = _mm256_add_epi64(sums[2], _mm256_mul_epu32(data, keys[2]));
    sums[3] = _mm256_add_epi64(sums[3], _mm256_mul_epu32(odd, keys[3]));
}

/// Both lanes' sums of a run.
#[target_feature(enable = "avx2")]
#[inline]
fn horizontals_avx2(sums: [__m256i; 4]) -> [u64; 2] {
    [
        horizontal_avx2(_mm256_add_epi64(sums[0], sums[1])),
        horizontal_avx2(_mm256_add_epi64(sums[2], sums[3])),
    ]
}

#[target_feature(enable = "avx2")]
#[inline]
fn horizontal_avx2(sum: __m256i) -> u64 {
    let half = _mm_add_epi64(_mm256_castsi256_si128(sum), _mm256_extracti128_si256::<1>(sum));
    (_mm_extract_epi64::<0>(half) as u64).wrapping_add(_mm_extract_epi64::<1>(half) as u64)
}

/// The four running sums of one run: even and odd words of each lane.
type BlockSums = [__m512i; 4];

/// AVX-512 kernel: `words` whole words, the first at word index `index`.
///
/// # Safety
/// The CPU has AVX-512 F and DQ; `words * 4` bytes at `bytes` are readable.
#[target_feature(enable = "avx512f,avx512dq")]
pub(super) unsafe fn words_avx512(
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
        settle(&mut totals, unsafe { run_avx512(place, bytes, taken) }, block);
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
fn keys_at(place: usize) -> BlockSums {
    debug_assert!(place < BLOCK_WORDS);
    let [first, second] = &WORD_KEYS;
    [&first.here, &first.next, &second.here, &second.next].map(|table| {
        // SAFETY: place < BLOCK_WORDS (all callers), and the tables are padded by 16 words.
        unsafe { _mm512_loadu_si512(table.as_ptr().add(place).cast()) }
    })
}

/// # Safety
/// As `scalar::run`.
#[target_feature(enable = "avx512f,avx512dq")]
#[inline]
unsafe fn run_avx512(place: usize, bytes: *const u8, words: usize) -> BlockSums {
    let mut sums = [_mm512_setzero_si512(); 4];
    let whole = words & !15;
    for i in (0..whole).step_by(16) {
        // SAFETY: i + 16 <= words.
        let data = unsafe { _mm512_loadu_si512(bytes.add(i * 4).cast()) };
        absorb(&mut sums, data, &keys_at(place + i));
    }
    if whole < words {
        let mask = (1_u16 << (words - whole)) - 1;
        // SAFETY: masked lanes are not read; the others lie in the caller's range.
        let data = unsafe { _mm512_maskz_loadu_epi32(mask, bytes.add(whole * 4).cast()) };
        absorb(&mut sums, data, &keys_at(place + whole));
    }
    sums
}

//! Vector kernels for x86-64.
//!
//! `vpmuludq` multiplies the low halves of 64-bit lanes: even words as loaded, odd words after a
//! shift. Products are full 64-bit numbers, so nothing is lost before the wrapping sum.

mod avx2;
mod avx512;

pub(super) use avx2::{copy_avx2, words_avx2};
pub(super) use avx512::{copy_avx512, words_avx512};

use super::keys::{BLOCK_WORDS, block_keys};
use super::{STREAMED, WORD, scalar};
use std::arch::x86_64::*;

/// How far before a load its line is asked for: the stores, which pass the cache by, keep the processor from running ahead.
/// Of 512, 1,024 and 4,096 bytes the fastest on an AMD EPYC, by little.
const AHEAD: usize = 1024;

/// Copies and digests steps of `WORDS` words. `run` does so with whole steps of one block: it is given the first one's
/// place, where it reads and writes, and how many words there are. A step that two blocks share is copied by `step`, and
/// then digested word by word. Each leaves as it was what it is not given.
///
/// # Safety
/// `len` bytes, whole steps, are readable at `from` and writable at `to`.
#[inline(always)]
unsafe fn copy_by_block<const WORDS: usize>(
    index: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    run: impl Fn(usize, *const u8, *mut u8, usize) -> [u64; 2],
    step: impl Fn(*const u8, *mut u8) -> Step,
) -> [u64; 2] {
    let (mut totals, mut done, steps) = ([0_u64; 2], 0, len / (WORD * WORDS));
    // SAFETY: called with done < steps.
    let at = |done: usize| unsafe { (from.add(WORD * WORDS * done), to.add(WORD * WORDS * done)) };
    while done < steps {
        let first = index + (WORDS * done) as u64;
        let place = (first % BLOCK_WORDS as u64) as usize;
        let whole = ((BLOCK_WORDS - place) / WORDS).min(steps - done);
        let (source, target) = at(done);
        let sums = run(place, source, target, WORDS * whole);
        add(&mut totals, settled(sums, first / BLOCK_WORDS as u64));
        done += whole;
        if done < steps && !place.is_multiple_of(WORDS) {
            let (source, target) = at(done);
            let words = step(source, target);
            let first = first + (WORDS * whole) as u64;
            // SAFETY: words of our own, at least as many.
            add(&mut totals, unsafe { scalar::words(first, words.0.as_ptr(), WORDS) });
            done += 1;
        }
    }
    totals
}

/// The words of a step, as they were copied, from the front.
#[repr(align(64))]
struct Step([u8; STREAMED]);

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

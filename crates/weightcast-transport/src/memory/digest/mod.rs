//! The additive, position-keyed digest that rides on every copy.
//!
//! A logical tensor is read as 32-bit little-endian words `w[i]` in its global row-major order.
//! Lane `L` of its digest is, modulo 2^64, the sum over blocks `b` of 1,024 words of
//! `M_L(b) * (sum over i in b of w[i] * K_L[i mod 1024])`, with odd keys `K_L` and odd
//! multipliers `M_L(b)`. Bytes at an unaligned edge enter masked into their word. So:
//!
//! - every part of a tensor, cut at any byte, contributes a number, and the numbers of any
//!   disjoint cover add up to the same digest, whatever the layout;
//! - a change of any single word is always seen (odd keys are invertible), and so is a swap of
//!   two different words of a block (keys of a block are distinct). Other accidents are missed
//!   with a chance near 2^-128.
//!
//! The digest finds accidents, not adversaries: the keys are public, so digests can be forged.

mod keys;
mod scalar;
#[cfg(target_arch = "x86_64")]
mod x86;

use keys::BLOCK_WORDS;
use std::iter::Sum;
use std::ops::{Add, AddAssign};
use std::sync::OnceLock;

/// A digest, or a part of one: two lanes of 64 bits that add modulo 2^64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest(pub [u64; 2]);

impl Digest {
    /// The digest of no bytes, or of zeros.
    pub const ZERO: Self = Self([0; 2]);

    /// Multiplies both lanes by `factor`, modulo 2^64.
    pub fn scale(self, factor: u64) -> Self {
        self.mul([factor; 2])
    }

    /// Multiplies lane by lane, modulo 2^64. With odd keys no information is lost.
    #[allow(clippy::should_implement_trait)] // a ring action, not a product of two digests
    pub fn mul(self, key: [u64; 2]) -> Self {
        Self([self.0[0].wrapping_mul(key[0]), self.0[1].wrapping_mul(key[1])])
    }

    /// Sixteen bytes, little-endian, first lane first.
    pub fn to_bytes(self) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.0[0].to_le_bytes());
        bytes[8..].copy_from_slice(&self.0[1].to_le_bytes());
        bytes
    }

    /// The inverse of [`Digest::to_bytes`].
    pub fn from_bytes(bytes: [u8; 16]) -> Self {
        let number = u128::from_le_bytes(bytes);
        Self([number as u64, (number >> 64) as u64])
    }
}

impl Add for Digest {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self([self.0[0].wrapping_add(other.0[0]), self.0[1].wrapping_add(other.0[1])])
    }
}

impl AddAssign for Digest {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Sum for Digest {
    fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
        parts.fold(Self::ZERO, Add::add)
    }
}

/// The part that `bytes`, lying `position` bytes into a logical tensor, contribute to its digest.
pub fn digest_at(position: u64, bytes: &[u8]) -> Digest {
    // SAFETY: the slice is readable for its length.
    unsafe { digest_raw(position, bytes.as_ptr(), bytes.len()) }
}

/// [`digest_at`] for memory that somebody else may be changing: the caller discards the result
/// if the source's fence word moved. No reference to the bytes is ever formed.
///
/// # Safety
/// `len` bytes at `bytes` are readable until the call returns.
pub(crate) unsafe fn digest_raw(position: u64, bytes: *const u8, len: usize) -> Digest {
    // SAFETY: the caller's.
    unsafe { digest_by(form().words, position, bytes, len) }
}

/// Bytes that [`copy_streamed`] takes at a time, and of which its target's address is a multiple: a line of the cache.
pub(crate) const STREAMED: usize = 64;

/// Bytes of a word: [`copy_streamed`] begins at one.
pub(crate) const WORD: usize = 4;

/// Copies past the cache and digests in one pass, where this CPU can: else, nothing is done. Each byte is read once, so
/// the digest is that of the bytes which were written, whatever becomes of the source. `next` is where the caller will
/// read afterwards, if anywhere: its memory is asked for, not read.
/// [`order_stores`](crate::memory::stream_copy::order_stores) has to follow before another thread hears of the copy.
///
/// # Safety
/// `len` bytes, a multiple of [`STREAMED`] as is `to`, are readable at `from` and writable at `to`; they do not overlap.
/// `position` is a multiple of [`WORD`].
pub(crate) unsafe fn copy_streamed(
    position: u64,
    from: *const u8,
    to: *mut u8,
    len: usize,
    next: *const u8,
) -> Option<Digest> {
    debug_assert!([to.addr(), len].iter().all(|of| of.is_multiple_of(STREAMED)));
    debug_assert!(position.is_multiple_of(WORD as u64));
    let copy = form().copy?;
    // SAFETY: the CPU runs the form; the ranges are the caller's.
    Some(Digest(unsafe { copy(position / WORD as u64, from, to, len, next) }))
}

/// A kernel: whole words at a word index to the two lanes.
type Kernel = unsafe fn(u64, *const u8, usize) -> [u64; 2];

/// A kernel that copies, as [`copy_streamed`] does: from a word index on, from and to addresses, so many bytes.
type CopyKernel = unsafe fn(u64, *const u8, *mut u8, usize, *const u8) -> [u64; 2];

/// The kernels for one set of instructions.
#[derive(Clone, Copy)]
struct DigestForm {
    words: Kernel,
    copy: Option<CopyKernel>,
}

/// The widest form this CPU runs, looked up once.
fn form() -> DigestForm {
    static CHOSEN: OnceLock<DigestForm> = OnceLock::new();
    *CHOSEN.get_or_init(|| forms().last().expect("the scalar form is always there").1)
}

/// The forms this CPU runs, slowest first.
fn forms() -> Vec<(&'static str, DigestForm)> {
    #[allow(unused_mut)]
    let mut usable: Vec<(&'static str, DigestForm)> =
        vec![("scalar", DigestForm { words: scalar::words, copy: None })];
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx2") {
            let (words, copy) = (x86::words_avx2, Some(x86::copy_avx2 as CopyKernel));
            usable.push(("avx2", DigestForm { words, copy }));
        }
        if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512dq") {
            let (words, copy) = (x86::words_avx512, Some(x86::copy_avx512 as CopyKernel));
            usable.push(("avx512", DigestForm { words, copy }));
        }
    }
    usable
}

/// Splits a byte range into a masked head, whole words and a masked tail.
///
/// # Safety
/// `len` bytes at `bytes` are readable, and this CPU runs `kernel`.
unsafe fn digest_by(kernel: Kernel, position: u64, bytes: *const u8, len: usize) -> Digest {
    let shift = (position % 4) as usize;
    let head = if shift == 0 { 0 } else { len.min(4 - shift) };
    let words = (len - head) / 4;
    let tail = len - head - words * 4;
    let mut digest = Digest::ZERO;
    if head > 0 {
        // SAFETY: head <= len.
        let value = unsafe { masked_word(bytes, head) } << (8 * shift);
        digest += Digest(scalar::word(position / 4, value));
    }
    let index = (position + head as u64) / 4;
    if words > 0 {
        // SAFETY: head + words * 4 <= len; the CPU runs the kernel.
        digest += Digest(unsafe { kernel(index, bytes.add(head), words) });
    }
    if tail > 0 {
        // SAFETY: the last `tail` bytes of the range.
        let value = unsafe { masked_word(bytes.add(len - tail), tail) };
        digest += Digest(scalar::word(index + words as u64, value));
    }
    digest
}

/// One to three bytes as the low bytes of a word.
///
/// # Safety
/// `count` bytes at `bytes` are readable.
unsafe fn masked_word(bytes: *const u8, count: usize) -> u32 {
    // SAFETY: i < count.
    (0..count).fold(0, |word, i| word | u32::from(unsafe { bytes.add(i).read() }) << (8 * i))
}

/// Walks a run of words block by block and settles each with its multipliers.
///
/// # Safety
/// `words * 4` bytes at `bytes` are readable.
#[inline(always)]
unsafe fn by_block(
    mut index: u64,
    mut bytes: *const u8,
    mut words: usize,
    mut run: impl FnMut(usize, *const u8, usize) -> [u64; 2],
) -> [u64; 2] {
    let mut totals = [0_u64; 2];
    while words > 0 {
        let place = (index % BLOCK_WORDS as u64) as usize;
        let count = words.min(BLOCK_WORDS - place);
        let sums = run(place, bytes, count);
        for (lane, multiplier) in keys::block_keys(index / BLOCK_WORDS as u64).iter().enumerate() {
            totals[lane] = totals[lane].wrapping_add(multiplier.wrapping_mul(sums[lane]));
        }
        index += count as u64;
        words -= count;
        // SAFETY: `count` words lie in the caller's range; one past its end is allowed.
        bytes = unsafe { bytes.add(count * 4) };
    }
    totals
}

#[cfg(test)]
mod tests;

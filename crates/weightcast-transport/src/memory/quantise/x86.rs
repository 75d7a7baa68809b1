//! AVX2 kernels: eight elements at a time, the rest of a run in a padded block of eight.

use super::{Elements, Factor};
use std::arch::x86_64::*;

/// Elements of a vector.
const LANES: usize = 8;

/// Bits of the largest magnitude, as an F32; above infinity's if there is a NaN.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn amax_avx2(elements: Elements, data: &[u8]) -> u32 {
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let mut most = _mm256_setzero_si256();
    blocks(elements, data, |values| {
        // Magnitudes order as their bits do.
        most = _mm256_max_epu32(most, _mm256_and_si256(values, magnitude));
    });
    let mut lanes = [0u32; LANES];
    // SAFETY: eight lanes of four bytes.
    unsafe { _mm256_storeu_si256(lanes.as_mut_ptr().cast(), most) };
    lanes.into_iter().max().unwrap_or(0)
}

/// The codes of all elements.
///
/// # Safety
/// The CPU has AVX2; there is a code for each element.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn codes_avx2(elements: Elements, data: &[u8], factor: Factor, codes: &mut [u8]) {
    let step = LANES * elements.bytes();
    let (blocks, rest) = codes.as_chunks_mut::<LANES>();
    let (data, last) = data.split_at(blocks.len() * step);
    for (block, codes) in data.chunks_exact(step).zip(blocks) {
        // SAFETY: a whole block of elements.
        *codes = code(unsafe { widen(elements, block.as_ptr()) }, factor);
    }
    if !rest.is_empty() {
        rest.copy_from_slice(&code(widen_rest(elements, last), factor)[..rest.len()]);
    }
}

/// Calls `each` with eight elements at a time, widened to F32 bits; the last ones beside zeros.
#[target_feature(enable = "avx2")]
#[inline]
fn blocks(elements: Elements, data: &[u8], mut each: impl FnMut(__m256i)) {
    let step = LANES * elements.bytes();
    let mut whole = data.chunks_exact(step);
    for block in &mut whole {
        // SAFETY: a whole block of elements.
        each(unsafe { widen(elements, block.as_ptr()) });
    }
    if !whole.remainder().is_empty() {
        each(widen_rest(elements, whole.remainder()));
    }
}

/// Fewer than eight elements, beside zeros.
#[target_feature(enable = "avx2")]
fn widen_rest(elements: Elements, rest: &[u8]) -> __m256i {
    let mut block = [0u8; LANES * 4];
    block[..rest.len()].copy_from_slice(rest);
    // SAFETY: the block has room for eight elements of any type.
    unsafe { widen(elements, block.as_ptr()) }
}

/// # Safety
/// Eight elements at `data` are readable.
#[target_feature(enable = "avx2")]
#[inline]
unsafe fn widen(elements: Elements, data: *const u8) -> __m256i {
    match elements {
        Elements::BF16 => {
            // SAFETY: sixteen bytes are the caller's.
            let halves = unsafe { _mm_loadu_si128(data.cast()) };
            _mm256_slli_epi32::<16>(_mm256_cvtepu16_epi32(halves))
        }
        // SAFETY: 32 bytes are the caller's.
        Elements::F32 => unsafe { _mm256_loadu_si256(data.cast()) },
    }
}

/// Eight codes: nearest, ties to even, saturated; see `weightcast_plan::quantise::to_e4m3`.
#[target_feature(enable = "avx2")]
#[inline]
fn code(bits: __m256i, factor: Factor) -> [u8; LANES] {
    let value = _mm256_castsi256_ps(bits);
    let scaled = match factor {
        Factor::Times(number) => _mm256_mul_ps(value, _mm256_set1_ps(number)),
        Factor::Over(number) => _mm256_div_ps(value, _mm256_set1_ps(number)),
    };
    let scaled_bits = _mm256_castps_si256(scaled);
    let sign = _mm256_and_si256(_mm256_srli_epi32::<24>(scaled_bits), _mm256_set1_epi32(0x80));
    let magnitude = _mm256_and_si256(scaled_bits, _mm256_set1_epi32(0x7fff_ffff));
    let magnitude = _mm256_min_ps(_mm256_castsi256_ps(magnitude), _mm256_set1_ps(448.0));
    let bits_of = _mm256_castps_si256(magnitude);
    // Normal codes: round the mantissa to three bits, then rebase the exponent.
    let odd = _mm256_and_si256(_mm256_srli_epi32::<20>(bits_of), _mm256_set1_epi32(1));
    let rounded = _mm256_add_epi32(_mm256_add_epi32(bits_of, _mm256_set1_epi32(0x7_ffff)), odd);
    let normal = _mm256_sub_epi32(_mm256_srli_epi32::<20>(rounded), _mm256_set1_epi32(120 << 3));
    // Subnormal ones: multiples of 2^-9, rounded by adding 2^23.
    let small =
        _mm256_add_ps(_mm256_mul_ps(magnitude, _mm256_set1_ps(512.0)), _mm256_set1_ps(8_388_608.0));
    let small = _mm256_and_si256(_mm256_castps_si256(small), _mm256_set1_epi32(0xff));
    let is_small = _mm256_cmp_ps::<_CMP_LT_OQ>(magnitude, _mm256_set1_ps(0.015_625));
    let number = _mm256_blendv_epi8(normal, small, _mm256_castps_si256(is_small));
    let number = _mm256_or_si256(number, sign);
    let is_nan = _mm256_cmp_ps::<_CMP_UNORD_Q>(scaled, scaled);
    if _mm256_movemask_ps(is_nan) == 0 {
        return narrow(number);
    }
    // NaN: of the element, by its sign; made by the factor, the negative one.
    let is_nan = _mm256_castps_si256(is_nan);
    let was_nan = _mm256_castps_si256(_mm256_cmp_ps::<_CMP_UNORD_Q>(value, value));
    let own = _mm256_and_si256(_mm256_srli_epi32::<24>(bits), _mm256_set1_epi32(0x80));
    let own = _mm256_or_si256(own, _mm256_set1_epi32(0x7f));
    let nan = _mm256_blendv_epi8(_mm256_set1_epi32(0xff), own, was_nan);
    narrow(_mm256_blendv_epi8(number, nan, is_nan))
}

/// The low bytes of eight lanes.
#[target_feature(enable = "avx2")]
#[inline]
fn narrow(lanes: __m256i) -> [u8; LANES] {
    let (low, high) = (_mm256_castsi256_si128(lanes), _mm256_extracti128_si256::<1>(lanes));
    let words = _mm_packus_epi32(low, high);
    let bytes = _mm_packus_epi16(words, words);
    _mm_cvtsi128_si64(bytes).to_le_bytes()
}

//! AVX2 kernel of magnitudes: a vector at a time, the rest of a run in a padded one.

use super::Elements;
use std::arch::x86_64::*;

/// Bytes of a vector.
const VECTOR: usize = 32;

/// Bits of the largest magnitude, as an F32; above infinity's if there is a NaN.
///
/// # Safety
/// The CPU has AVX2.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn amax_avx2(elements: Elements, data: &[u8]) -> u32 {
    // Magnitudes order as their bits do.
    match elements {
        Elements::BF16 => {
            let magnitude = _mm256_set1_epi16(0x7fff);
            let two = largest(data, |a, b| _mm256_max_epu16(a, _mm256_and_si256(b, magnitude)));
            (two << 16).max(two & 0xffff_0000)
        }
        Elements::F32 => {
            let magnitude = _mm256_set1_epi32(0x7fff_ffff);
            largest(data, |a, b| _mm256_max_epu32(a, _mm256_and_si256(b, magnitude)))
        }
    }
}

/// What is largest of all fours of bytes, found vector by vector; the last bytes beside zeros.
#[target_feature(enable = "avx2")]
#[inline]
fn largest(data: &[u8], larger: impl Fn(__m256i, __m256i) -> __m256i) -> u32 {
    let (vectors, rest) = data.as_chunks::<VECTOR>();
    // SAFETY: a vector's bytes.
    let load = |vector: &[u8; VECTOR]| unsafe { _mm256_loadu_si256(vector.as_ptr().cast()) };
    let mut most = _mm256_setzero_si256();
    for vector in vectors {
        most = larger(most, load(vector));
    }
    if !rest.is_empty() {
        let mut last = [0; VECTOR];
        last[..rest.len()].copy_from_slice(rest);
        most = larger(most, load(&last));
    }
    most = larger(most, _mm256_permute4x64_epi64::<0b01_00_11_10>(most));
    most = larger(most, _mm256_shuffle_epi32::<0b01_00_11_10>(most));
    most = larger(most, _mm256_shuffle_epi32::<0b10_11_00_01>(most));
    _mm256_extract_epi32::<0>(most).cast_unsigned()
}

//! AVX2 kernel of codes: 32 at a time, the rest of a run in a padded block.

use super::{Elements, Factor};
use std::arch::x86_64::*;

/// Codes that are made together: a vector of bytes.
const BLOCK: usize = 32;
/// F32s of a block.
type Lanes = [__m256i; 4];

/// What is too much in a code that is made of the exponent of an F32 (its bias is 127, and a code's 7) and
/// of eighths of a power of two (eight of which are that power).
const REBASE: i16 = (127 - 7) * 8 + 8;

/// The codes of all elements.
///
/// # Safety
/// The CPU has AVX2; there is a code for each element.
#[target_feature(enable = "avx2")]
pub(super) unsafe fn codes_avx2(elements: Elements, data: &[u8], factor: Factor, codes: &mut [u8]) {
    let flip = match factor.number().is_sign_negative() {
        true => _mm256_set1_epi8(i8::MIN),
        false => _mm256_setzero_si256(),
    };
    let by = _mm256_set1_ps(factor.number().abs());
    let times = |lane| _mm256_castps_si256(_mm256_mul_ps(_mm256_castsi256_ps(lane), by));
    let over = |lane| _mm256_castps_si256(_mm256_div_ps(_mm256_castsi256_ps(lane), by));
    let odd_halves = |block: &_| with_nans(&widened(block), factor);
    let odd_floats = |block: &_| with_nans(block, factor);
    // A loop for each: what stays alike is not asked for each block.
    match (elements, factor) {
        (Elements::BF16, Factor::Times(_)) => {
            in_blocks(data, codes, |block| halves(block, flip, times), odd_halves);
        }
        (Elements::BF16, Factor::Over(_)) => {
            in_blocks(data, codes, |block| halves(block, flip, over), odd_halves);
        }
        (Elements::F32, Factor::Times(_)) => {
            in_blocks(data, codes, |block| floats(block, flip, times), odd_floats);
        }
        (Elements::F32, Factor::Over(_)) => {
            in_blocks(data, codes, |block| floats(block, flip, over), odd_floats);
        }
    }
}

/// Makes codes block by block: `plain` if none is NaN, else `odd`.
#[target_feature(enable = "avx2")]
#[inline]
fn in_blocks<const BYTES: usize>(
    data: &[u8],
    codes: &mut [u8],
    plain: impl Fn(&[u8; BYTES]) -> Option<__m256i>,
    odd: impl Fn(&[u8; BYTES]) -> [u8; BLOCK],
) {
    let (blocks, last) = data.as_chunks();
    let (codes, rest) = codes.as_chunks_mut::<BLOCK>();
    for (block, codes) in blocks.iter().zip(codes) {
        match plain(block) {
            // SAFETY: a block of codes.
            Some(made) => unsafe { _mm256_storeu_si256(codes.as_mut_ptr().cast(), made) },
            None => *codes = odd(block),
        }
    }
    if !rest.is_empty() {
        let mut block = [0; BYTES];
        block[..last.len()].copy_from_slice(last);
        rest.copy_from_slice(&odd(&block)[..rest.len()]);
    }
}

/// The codes of 32 BF16s, or none if one is NaN. Even elements and odd ones are worked on apart.
#[target_feature(enable = "avx2")]
#[inline]
fn halves(
    block: &[u8; 2 * BLOCK],
    flip: __m256i,
    scale: impl Fn(__m256i) -> __m256i,
) -> Option<__m256i> {
    // SAFETY: within the block.
    let at = |n| unsafe { _mm256_loadu_si256(block.as_ptr().cast::<__m256i>().add(n)) };
    let (low, high) = (at(0), at(1));
    let magnitude = _mm256_set1_epi32(0x7fff_0000);
    let even = |pairs| _mm256_and_si256(_mm256_slli_epi32::<16>(pairs), magnitude);
    let odd = |pairs| _mm256_and_si256(pairs, magnitude);
    let [a, b, c, d] = numbers([even(low), odd(low), even(high), odd(high)].map(scale))?;
    let join = |even, odd| _mm256_blend_epi16::<0xaa>(even, _mm256_slli_epi32::<16>(odd));
    let bytes = with_signs(join(a, b), join(c, d), low, high, flip);
    Some(_mm256_permute4x64_epi64::<0b11_01_10_00>(bytes))
}

/// The codes of 32 F32s, or none if one is NaN.
#[target_feature(enable = "avx2")]
#[inline]
fn floats(
    block: &[u8; 4 * BLOCK],
    flip: __m256i,
    scale: impl Fn(__m256i) -> __m256i,
) -> Option<__m256i> {
    // SAFETY: within the block.
    let at = |n| unsafe { _mm256_loadu_si256(block.as_ptr().cast::<__m256i>().add(n)) };
    let bits = [at(0), at(1), at(2), at(3)];
    let magnitude = _mm256_set1_epi32(0x7fff_ffff);
    let scaled = bits.map(|bits| scale(_mm256_and_si256(bits, magnitude)));
    let [a, b, c, d] = numbers(scaled)?;
    let word = |lane| _mm256_and_si256(lane, _mm256_set1_epi32(0xffff));
    let bytes = with_signs(
        _mm256_packus_epi32(word(a), word(b)),
        _mm256_packus_epi32(word(c), word(d)),
        _mm256_packs_epi32(bits[0], bits[1]),
        _mm256_packs_epi32(bits[2], bits[3]),
        flip,
    );
    Some(_mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7)))
}

/// Codes of magnitudes, plus [`REBASE`], in the low word of each lane: nearest, ties to even, saturated; see
/// `weightcast_plan::quantise::to_e4m3`. None if one is NaN.
#[target_feature(enable = "avx2")]
#[inline]
fn numbers(scaled: Lanes) -> Option<Lanes> {
    let [a, b, c, d] = scaled;
    let most = _mm256_max_epu32(_mm256_max_epu32(a, b), _mm256_max_epu32(c, d));
    let least_nan = _mm256_set1_epi32(0x7f80_0001);
    let is_nan = _mm256_cmpeq_epi32(_mm256_max_epu32(most, least_nan), most);
    (_mm256_movemask_epi8(is_nan) == 0).then(|| scaled.map(|lane| number(lane)))
}

#[target_feature(enable = "avx2")]
#[inline]
fn number(scaled: __m256i) -> __m256i {
    let magnitude = _mm256_min_ps(_mm256_castsi256_ps(scaled), _mm256_set1_ps(448.0));
    // The exponent, and for what is below 2^-6 that of 2^-6: subnormal codes are as far from each other.
    let exponent = _mm256_and_si256(_mm256_castps_si256(magnitude), _mm256_set1_epi32(0x7f80_0000));
    let exponent = _mm256_max_epi32(exponent, _mm256_set1_epi32(121 << 23));
    // Beside a number 2^20 times as large, what is left of a magnitude is its eighths, rounded.
    let large = _mm256_add_epi32(exponent, _mm256_set1_epi32(20 << 23));
    let eighths = _mm256_castps_si256(_mm256_add_ps(magnitude, _mm256_castsi256_ps(large)));
    _mm256_add_epi32(_mm256_srli_epi32::<20>(exponent), eighths)
}

/// Bytes of words: codes plus [`REBASE`], with the signs of other words.
#[target_feature(enable = "avx2")]
#[inline]
fn with_signs(
    low: __m256i,
    high: __m256i,
    low_signs: __m256i,
    high_signs: __m256i,
    flip: __m256i,
) -> __m256i {
    let rebase = _mm256_set1_epi16(REBASE);
    let codes = _mm256_packus_epi16(_mm256_sub_epi16(low, rebase), _mm256_sub_epi16(high, rebase));
    // Narrowed with saturation, a number keeps its sign.
    let signs = _mm256_xor_si256(_mm256_packs_epi16(low_signs, high_signs), flip);
    _mm256_or_si256(codes, _mm256_and_si256(signs, _mm256_set1_epi8(i8::MIN)))
}

/// Codes of which some may be NaN: of the element, by its sign; made by the factor, the negative one.
#[target_feature(enable = "avx2")]
#[cold]
fn with_nans(block: &[u8; 4 * BLOCK], factor: Factor) -> [u8; BLOCK] {
    let (mut numbers, mut nans) = (*block, [None; BLOCK]);
    for (bytes, nan) in numbers.as_chunks_mut().0.iter_mut().zip(&mut nans) {
        let value = f32::from_le_bytes(*bytes);
        if factor.of(value).is_nan() {
            let sign = !value.is_nan() || value.is_sign_negative();
            *nan = Some(0x7f | u8::from(sign) << 7);
            // No factor makes NaN of it.
            *bytes = 1f32.to_le_bytes();
        }
    }
    let mut codes = [0; BLOCK];
    // SAFETY: the CPU has AVX2, as it had for this function; no code of the block is NaN.
    unsafe { codes_avx2(Elements::F32, &numbers, factor, &mut codes) };
    for (code, nan) in codes.iter_mut().zip(nans) {
        *code = nan.unwrap_or(*code);
    }
    codes
}

fn widened(block: &[u8; 2 * BLOCK]) -> [u8; 4 * BLOCK] {
    let mut wide = [0; 4 * BLOCK];
    for (wide, half) in wide.as_chunks_mut::<4>().0.iter_mut().zip(block.as_chunks::<2>().0) {
        wide[2..].copy_from_slice(half);
    }
    wide
}

//! Codes known by heart. Every value by every formula is compared with the reference in `weightcast`, which
//! depends on both.

use super::{Elements, Factor, amax, codes};

/// Less than a block of codes, more than a vector.
const VALUES: [(f32, u8); 11] = [
    (0.0, 0x00),
    (1.0, 0x38),
    (-2.0, 0xc0),
    (1.0625, 0x38),
    (1.1875, 0x3a),
    (448.0, 0x7e),
    (-1000.0, 0xfe),
    (f32::NAN, 0x7f),
    (f32::INFINITY, 0x7e),
    (0.001_953_125, 0x01),
    (0.5, 0x30),
];

fn bytes_of(elements: Elements, values: &[f32]) -> Vec<u8> {
    let of = |value: &f32| match elements {
        Elements::BF16 => value.to_le_bytes()[2..].to_vec(),
        Elements::F32 => value.to_le_bytes().to_vec(),
    };
    values.iter().flat_map(of).collect()
}

fn has_vector_code() -> bool {
    #[cfg(target_arch = "x86_64")]
    return std::arch::is_x86_feature_detected!("avx2");
    #[cfg(not(target_arch = "x86_64"))]
    false
}

#[test]
fn codes_are_made_where_there_is_vector_code() {
    let (values, wanted): (Vec<f32>, Vec<u8>) = VALUES.into_iter().unzip();
    for elements in [Elements::BF16, Elements::F32] {
        let data = bytes_of(elements, &values);
        for factor in [Factor::Times(1.0), Factor::Over(1.0)] {
            let mut found = vec![0xaa; values.len()];
            assert_eq!(codes(elements, &data, factor, &mut found), has_vector_code());
            let unwritten = vec![0xaa; values.len()];
            assert_eq!(found, if has_vector_code() { &wanted[..] } else { &unwritten[..] });
        }
        let mut found = vec![0; values.len()];
        assert_eq!(codes(elements, &data, Factor::Times(2.0), &mut found), has_vector_code());
        assert_eq!(found[1], if has_vector_code() { 0x40 } else { 0 });
        assert_eq!(codes(elements, &data, Factor::Over(2.0), &mut found), has_vector_code());
        assert_eq!(found[1], if has_vector_code() { 0x30 } else { 0 });
    }
}

#[test]
fn a_factor_that_is_nan_is_left_to_the_reference() {
    let mut found = [0xaa; 2];
    assert!(!codes(Elements::F32, &[0; 8], Factor::Over(f32::NAN), &mut found));
    assert_eq!(found, [0xaa; 2]);
}

#[test]
fn the_largest_magnitude_is_found_in_the_block_and_behind_it() {
    for elements in [Elements::BF16, Elements::F32] {
        for at in 0..VALUES.len() {
            let mut values = [1.5f32; VALUES.len()];
            values[at] = -3.0;
            let found = amax(elements, &bytes_of(elements, &values));
            assert_eq!(found, has_vector_code().then_some(3.0), "at {at}");
            values[at] = f32::NEG_INFINITY;
            let found = amax(elements, &bytes_of(elements, &values));
            assert_eq!(found, has_vector_code().then_some(f32::INFINITY), "at {at}");
            values[at] = f32::NAN;
            assert_eq!(amax(elements, &bytes_of(elements, &values)), None, "at {at}");
        }
    }
    assert_eq!(amax(Elements::F32, &[]), has_vector_code().then_some(0.0));
}

/// The magnitude that a code stands for.
fn magnitude(code: u8) -> f64 {
    let (exponent, mantissa) = (i32::from(code >> 3), f64::from(code & 7));
    match exponent {
        0 => mantissa * 2f64.powi(-9),
        _ => (1.0 + mantissa / 8.0) * 2f64.powi(exponent - 7),
    }
}

/// The nearest of all codes, the even one of two; saturated. Of an element that is NaN one of its sign;
/// of a NaN that the factor made the negative one.
fn nearest(value: f32, scaled: f32) -> u8 {
    let sign = |number: f32| u8::from(number.is_sign_negative()) << 7;
    if value.is_nan() {
        return 0x7f | sign(value);
    }
    if scaled.is_nan() {
        return 0xff;
    }
    let wanted = f64::from(scaled.abs()).min(448.0);
    let far = |code: &u8| (magnitude(*code) - wanted).abs();
    let order = |a: &u8, b: &u8| far(a).total_cmp(&far(b)).then((a % 2).cmp(&(b % 2)));
    (0..=0x7e).min_by(order).unwrap() | sign(scaled)
}

fn has_codes_of(elements: Elements, values: &[f32], factor: Factor) {
    let mut found = vec![0xaa; values.len()];
    assert!(codes(elements, &bytes_of(elements, values), factor, &mut found));
    for (value, found) in values.iter().zip(found) {
        let scaled = match factor {
            Factor::Times(number) => value * number,
            Factor::Over(number) => value / number,
        };
        let expected = nearest(*value, scaled);
        assert_eq!(found, expected, "{value:e} ({:#x}) {factor:?}", value.to_bits());
    }
}

/// As a BF16 holds it.
fn cut(value: f32) -> f32 {
    f32::from_bits(value.to_bits() >> 16 << 16)
}

#[test]
fn codes_are_the_nearest_of_all() {
    if !has_vector_code() {
        return;
    }
    // Every code, every middle of two, and their neighbours; then noise of all exponents.
    let mut values = Vec::new();
    for code in 0..=0x7e {
        let (here, next) = (magnitude(code), magnitude(code + 1).min(480.0));
        for value in [here as f32, ((here + next) / 2.0) as f32] {
            values.extend([value.next_down(), value, value.next_up(), -value]);
        }
    }
    let mut state = 88_172_645_463_325_252_u64;
    for _ in 0..4_000 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let near = (100 + (state >> 40) as u32 % 60) << 23;
        values.extend([
            f32::from_bits(state as u32),
            f32::from_bits(state as u32 & 0x807f_ffff | near),
        ]);
    }
    values.extend([
        0.0,
        -0.0,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-45,
    ]);
    let halves: Vec<f32> = values.iter().map(|value| cut(*value)).collect();
    for number in [1.0, -1.0, 0.0, 3.7, 1e-3, 1e30, f32::INFINITY, 448.0] {
        for factor in [Factor::Times(number), Factor::Over(number)] {
            has_codes_of(Elements::F32, &values, factor);
            has_codes_of(Elements::BF16, &halves, factor);
        }
    }
}

/// In each place of a vector, in the last block too, alone among numbers.
#[test]
fn a_nan_in_any_place_is_one_and_no_other_is() {
    if !has_vector_code() {
        return;
    }
    let negative = f32::from_bits(0xffc0_0000);
    for len in [1, 2, 7, 8, 9, 31, 32, 33, 64, 67] {
        for place in 0..len {
            for odd in [f32::NAN, negative, f32::INFINITY, f32::NEG_INFINITY] {
                let mut values = vec![1.5; len];
                values[place] = odd;
                for elements in [Elements::F32, Elements::BF16] {
                    // The last one makes NaN of infinity.
                    for factor in [Factor::Times(1.0), Factor::Times(-1.0), Factor::Times(0.0)] {
                        has_codes_of(elements, &values, factor);
                    }
                    let bytes = bytes_of(elements, &values);
                    let most = Some(f32::INFINITY).filter(|_| !odd.is_nan());
                    assert_eq!(amax(elements, &bytes), most, "{odd} at {place} of {len}");
                }
            }
        }
    }
}

#[test]
fn the_largest_magnitude_is_that_of_all() {
    assert_eq!([Elements::BF16, Elements::F32].map(Elements::bytes), [2, 4]);
    for len in [0, 1, 7, 8, 9, 24, 100] {
        for scale in [1e-40, 1.0, -3e38] {
            let values: Vec<f32> =
                (0..len).map(|i| cut(scale / (1 + (i * 7 + 3) % 101) as f32)).collect();
            let most = values.iter().fold(0.0, |most: f32, value| most.max(value.abs()));
            for elements in [Elements::BF16, Elements::F32] {
                let found = amax(elements, &bytes_of(elements, &values));
                assert_eq!(found, has_vector_code().then_some(most), "{len} of {scale}");
            }
        }
    }
}

#[test]
#[should_panic = "whole elements"]
fn half_an_element_has_no_magnitude() {
    amax(Elements::F32, &[0; 6]);
}

#[test]
#[should_panic = "a code for each element"]
fn there_is_a_code_for_each_element() {
    codes(Elements::BF16, &[0; 6], Factor::Times(1.0), &mut [0; 2]);
}

#[test]
fn what_no_factor_makes_a_number_of_is_left_alone() {
    for number in [f32::NAN, -f32::NAN] {
        for factor in [Factor::Times(number), Factor::Over(number)] {
            let mut found = [0xaa; 9];
            assert!(!codes(Elements::BF16, &[1; 18], factor, &mut found));
            assert_eq!(found, [0xaa; 9]);
        }
    }
}

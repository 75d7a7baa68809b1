//! Codes known by heart. Every value by every formula is compared with the reference in `weightcast`, which
//! depends on both.

use super::{Elements, Factor, amax, codes};

/// A block of eight and three more: both ways through the kernels.
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

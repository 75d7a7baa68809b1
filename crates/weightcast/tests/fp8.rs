//! The kernels are bit-equal to the reference: every BF16 value, random F32 ones, every formula.

use proptest::prelude::*;
use weightcast::fp8::{MatrixPart, amaxes, codes, scales};
use weightcast_plan::quantise::{Blocks, Formula, quantise};
use weightcast_transport::quantise::{Elements, Factor, codes as kernel_codes};

fn bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

#[test]
fn every_bf16_value_by_many_factors() {
    let data: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut found = vec![0u8; 65_536];
    for exponent in -140..=127 {
        let factor = 2f32.powi(exponent) * 1.37;
        for factor in [Factor::Times(factor), Factor::Over(factor)] {
            let (Factor::Times(number) | Factor::Over(number)) = factor;
            if !kernel_codes(Elements::BF16, &data, factor, &mut found) {
                return; // no vector code here: the reference is what runs
            }
            let mut at = Formula::DeepGemm.scale(1.0);
            at.divides = matches!(factor, Factor::Over(_));
            at.factor = number;
            for code in 0..=u16::MAX {
                let value = bf16(code);
                let wanted = at.code(value);
                assert_eq!(found[usize::from(code)], wanted, "{value} by {factor:?}");
            }
        }
    }
}

fn words() -> impl Strategy<Value = u32> {
    prop_oneof![
        any::<u32>(),
        (0x3000_0000u32..0x4800_0000),
        Just(0),
        Just(0x8000_0000),
        Just(0x7f80_0000),
        Just(0xff80_0000),
        Just(0x7fc0_0000),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn memory_is_quantised_as_the_reference_does(
        rows in 0..50u64, columns in 0..50u64, block in (1..20u64, 1..20u64),
        words in prop::collection::vec(words(), 2500), half in any::<bool>(),
        formula in 0..6usize, threads in 1..4usize, cut in 0..50u64,
    ) {
        let formula = Formula::all().nth(formula).expect("a formula");
        let blocks = Blocks { shape: (rows, columns), block };
        let words = &words[..(rows * columns) as usize];
        let (elements, values): (Elements, Vec<f32>) = match half {
            true => (Elements::BF16, words.iter().map(|w| bf16((w >> 16) as u16)).collect()),
            false => (Elements::F32, words.iter().map(|w| f32::from_bits(*w)).collect()),
        };
        let bytes: Vec<u8> = values.iter().flat_map(|value| {
            let bytes = value.to_le_bytes();
            bytes[4 - elements.bytes()..].to_vec()
        }).collect();
        let wanted = quantise(blocks, formula, &values).expect("a matrix");
        // Two ranks with some rows each.
        let cut = cut.min(rows);
        let at = (cut * columns) as usize * elements.bytes();
        let parts = [
            MatrixPart { elements, data: &bytes[..at], first: (0, 0), size: (cut, columns) },
            MatrixPart { elements, data: &bytes[at..], first: (cut, 0), size: (rows - cut, columns) },
        ];
        let seen = parts.map(|part| amaxes(blocks, formula, &part, threads).expect("a part"));
        let joined: Vec<f32> =
            seen[0].iter().zip(&seen[1]).map(|(&a, &b)| formula.larger(a, b)).collect();
        let bits = |scales: &[f32]| -> Vec<u32> {
            scales.iter().map(|s| if s.is_nan() { 1 } else { s.to_bits() }).collect()
        };
        prop_assert_eq!(bits(&scales(formula, &joined)), bits(&wanted.scales));
        let mut found = vec![0; values.len()];
        let (above, below) = found.split_at_mut((cut * columns) as usize);
        for (part, out) in parts.iter().zip([above, below]) {
            codes(blocks, formula, &joined, part, out, threads).expect("a part");
        }
        prop_assert_eq!(found, wanted.codes);
    }
}

//! Quantisation against the goldens: what the real kernels and converters make, bit for bit.

use proptest::prelude::*;
use serde_json::Value;
use weightcast_plan::quantise::{Amax, Blocks, Formula, from_e4m3, quantise, to_e4m3};

struct Golden {
    index: Value,
    bytes: Vec<u8>,
}

impl Golden {
    fn open() -> Golden {
        let index = serde_json::from_str(include_str!("data/golden.json")).expect("JSON");
        Golden { index, bytes: include_bytes!("data/golden.bin").to_vec() }
    }

    fn at(&self, place: &Value) -> &[u8] {
        let number = |n: usize| place[n].as_u64().expect("a number") as usize;
        &self.bytes[number(0)..number(0) + number(1)]
    }

    fn f32s(&self, place: &Value) -> Vec<f32> {
        let words = self.at(place).chunks_exact(4);
        words.map(|w| f32::from_le_bytes(w.try_into().expect("four bytes"))).collect()
    }
}

fn bf16(code: u16) -> f32 {
    f32::from_bits(u32::from(code) << 16)
}

const FORMULAS: [(&str, Formula); 6] = [
    ("v1_triton", Formula::Triton),
    ("v2_offline", Formula::Offline),
    ("v3_verl_torch", Formula::Reciprocal),
    ("v4_deepgemm_f32", Formula::DeepGemm),
    ("v4_deepgemm_ue8m0_bits", Formula::DeepGemmUe8m0Bits),
    ("v4_deepgemm_ue8m0_log2", Formula::DeepGemmUe8m0Log2),
];

#[test]
fn every_bf16_value_is_cast_as_torch_casts_it() {
    let golden = Golden::open();
    let table = golden.at(&golden.index["cast_table"]["q"]);
    assert_eq!(table.len(), 65_536);
    for (code, &wanted) in (0..=u16::MAX).zip(table) {
        assert_eq!(to_e4m3(bf16(code)), wanted, "bf16 {code:#06x} = {}", bf16(code));
    }
}

#[test]
fn every_code_has_its_value() {
    let golden = Golden::open();
    for (code, wanted) in golden.f32s(&golden.index["decode_table"]["f32"]).iter().enumerate() {
        let found = from_e4m3(code as u8);
        assert!(found == *wanted || found.is_nan() && wanted.is_nan(), "{code:#04x}: {found}");
        if !wanted.is_nan() {
            assert_eq!(to_e4m3(found), code as u8);
        }
    }
}

#[test]
fn a_formula_says_whether_all_its_scales_are_powers_of_two() {
    for formula in Formula::all() {
        let amaxes = (0..500).map(|n| 0.37 * 1.013f32.powi(n));
        let mut scales = amaxes.map(|amax| formula.scale(amax).stored);
        let powers = scales.all(|scale| scale.to_bits().trailing_zeros() >= 23);
        assert_eq!(formula.is_ue8m0(), powers, "{formula}");
    }
}

#[test]
fn every_formula_makes_the_golden_codes_and_scales() {
    let golden = Golden::open();
    let mut seen = 0;
    for case in golden.index["cases"].as_array().expect("cases") {
        let size = |n: usize| case["shape"][n].as_u64().expect("a size");
        let block = match &case["block"] {
            Value::Number(n) => (n.as_u64().expect("a size"), n.as_u64().expect("a size")),
            Value::Array(n) => (n[0].as_u64().expect("a size"), n[1].as_u64().expect("a size")),
            _ => (128, 128),
        };
        let blocks = Blocks { shape: (size(0), size(1)), block };
        let input = golden.at(&case["in_bf16"]).chunks_exact(2);
        let values: Vec<f32> = input.map(|w| bf16(u16::from_le_bytes([w[0], w[1]]))).collect();
        for (name, formula) in FORMULAS {
            let Some(wanted) = case["out"].get(name) else { continue };
            let at = format!("{} {formula}", case["name"]);
            let found = quantise(blocks, formula, &values).expect("a matrix");
            let scales = golden.f32s(&wanted["scale_f32"]);
            let bits = |s: &[f32]| s.iter().map(|s| s.to_bits()).collect::<Vec<_>>();
            let nan = scales.iter().any(|s| s.is_nan());
            assert!(
                nan || bits(&found.scales) == bits(&scales),
                "{at}: {:?} {scales:?}",
                found.scales
            );
            assert_eq!(nan, found.scales.iter().any(|s| s.is_nan()), "{at}");
            let codes = golden.at(&wanted["q"]);
            let differ = found.codes.iter().zip(codes).filter(|(a, b)| a != b).count();
            assert_eq!((differ, found.codes.len()), (0, codes.len()), "{at}");
            seen += 1;
        }
    }
    assert_eq!(seen, 109);
}

proptest! {
    #[test]
    fn parts_on_several_ranks_make_the_whole(
        rows in 1..40u64, columns in 1..20u64, block in (1..9u64, 1..9u64),
        cuts in (0..40u64, 0..20u64), seed in any::<u64>(), formula in 0..6usize,
    ) {
        let formula = FORMULAS[formula].1;
        let blocks = Blocks { shape: (rows, columns), block };
        let mut state = seed | 1;
        let mut random = || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            f32::from_bits(((state >> 33) as u32) & 0xbfff_ffff)
        };
        let values: Vec<f32> = (0..rows * columns).map(|_| random()).collect();
        let whole = quantise(blocks, formula, &values).expect("a matrix");
        let (row, column) = (cuts.0.min(rows), cuts.1.min(columns));
        let parts = [
            ((0, 0), (row, column)), ((0, column), (row, columns - column)),
            ((row, 0), (rows - row, column)), ((row, column), (rows - row, columns - column)),
        ];
        let part = |(first, size): ((u64, u64), (u64, u64))| -> Vec<f32> {
            (first.0..first.0 + size.0)
                .flat_map(|r| (first.1..first.1 + size.1).map(move |c| (r * columns + c) as usize))
                .map(|at| values[at])
                .collect()
        };
        let mut ranks: Vec<Amax> = Vec::new();
        for (first, size) in parts {
            let mut amax = Amax::new(blocks, formula);
            amax.see(first, size, &part((first, size))).expect("a part");
            ranks.push(amax);
        }
        let seen: Vec<Vec<f32>> = ranks.iter().map(|r| r.values().to_vec()).collect();
        for (mut amax, (first, size)) in ranks.into_iter().zip(parts) {
            for others in &seen {
                amax.join(others).expect("the same grid");
            }
            let codes = amax.codes(first, size, &part((first, size))).expect("a part");
            let mut codes = codes.into_iter();
            for r in first.0..first.0 + size.0 {
                for c in first.1..first.1 + size.1 {
                    prop_assert_eq!(codes.next(), Some(whole.codes[(r * columns + c) as usize]));
                }
            }
        }
    }
}

#[test]
fn bad_parts_are_refused() {
    let blocks = Blocks { shape: (4, 4), block: (2, 2) };
    let mut amax = Amax::new(blocks, Formula::Triton);
    assert!(amax.see((3, 0), (2, 4), &[0.0; 8]).is_err());
    assert!(amax.see((u64::MAX, 0), (2, 4), &[0.0; 8]).is_err());
    assert!(amax.see((0, 0), (2, 4), &[0.0; 7]).is_err());
    assert!(amax.join(&[0.0; 3]).is_err());
    let empty = Blocks { block: (0, 2), ..blocks };
    assert!(quantise(empty, Formula::Triton, &[0.0; 16]).is_err());
    assert!("fp7".parse::<Formula>().expect_err("no such").to_string().contains("deepgemm"));
}

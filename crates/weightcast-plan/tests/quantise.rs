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

/// By looking at all codes: the nearest, of two equally near ones the even one.
#[test]
fn every_f32_has_the_nearest_code_and_ties_are_even() {
    let magnitudes: Vec<f64> = (0..0x7f).map(|code| f64::from(from_e4m3(code))).collect();
    let nearest = |value: f32| -> u8 {
        // What is larger than the largest becomes the largest.
        let (sign, value) = (value.is_sign_negative(), f64::from(value.abs()).min(448.0));
        let off = |code: &u8| (magnitudes[usize::from(*code)] - value).abs();
        let mut codes = (0..0x7f)
            .filter(|code| off(code) <= (0..0x7f).map(|c| off(&c)).fold(f64::MAX, f64::min));
        let (first, second) = (codes.next().expect("one"), codes.next());
        let code = second.filter(|_| first % 2 == 1).unwrap_or(first);
        u8::from(sign) << 7 | code
    };
    let middles = magnitudes.windows(2).map(|pair| ((pair[0] + pair[1]) / 2.0) as f32);
    let near = middles.chain(magnitudes.iter().map(|&value| value as f32)).flat_map(|value| {
        let bits = value.to_bits();
        [bits.saturating_sub(1), bits, bits + 1].map(f32::from_bits)
    });
    let mut state = 1u32;
    let any = (0..2_000).map(|_| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        // Exponents around those of the codes.
        f32::from_bits((state >> 9 | (state % 21 + 115) << 23) & 0x7fff_ffff)
    });
    for value in near.chain(any).chain([f32::MAX, f32::INFINITY, f32::MIN_POSITIVE]) {
        for value in [value, -value] {
            assert_eq!(to_e4m3(value), nearest(value), "{value:e}");
        }
    }
    assert_eq!([f32::NAN, -f32::NAN].map(to_e4m3), [0x7f, 0xff]);
}

/// What each formula's description says, with numbers in F64.
#[test]
fn scales_of_tiny_huge_and_missing_magnitudes_are_as_described() {
    let amaxes = [0.0, 1e-13, 5e-13, 1e-11, 1e-9, 9e-5, 1.1e-4, 0.5, 448.0, 3e4, 1e38];
    for amax in amaxes.map(|amax: f64| amax as f32) {
        let at_least = |least: f64| f64::from(amax).max(least) / 448.0;
        let close = |formula: Formula, stored: f64, factor: f64| {
            let scale = formula.scale(amax);
            let near = |a: f32, b: f64| (f64::from(a) - b).abs() <= 3e-7 * b.abs();
            assert!(near(scale.stored, stored), "{formula} {amax:e}: {scale:?}, not {stored:e}");
            assert!(near(scale.factor, factor), "{formula} {amax:e}: {scale:?}, not {factor:e}");
            assert_eq!(scale.divides, formula == Formula::Offline);
        };
        close(Formula::Triton, at_least(1e-10), 1.0 / at_least(1e-10));
        close(Formula::DeepGemm, at_least(1e-4), 1.0 / at_least(1e-4));
        // The BF16 number next to 1e-12.
        let smallest = f64::from(bf16(0x2b8d));
        assert!((smallest - 1e-12).abs() < 4e-15);
        close(Formula::Offline, at_least(smallest), at_least(smallest));
        let inverse = if amax == 0.0 { 1.0 } else { 448.0 / f64::from(amax) };
        close(Formula::Reciprocal, 1.0 / inverse, inverse);
        for formula in [Formula::DeepGemmUe8m0Bits, Formula::DeepGemmUe8m0Log2] {
            let power = at_least(1e-4).log2().ceil().exp2();
            close(formula, power, 1.0 / power);
        }
    }
    let infinite = Formula::Reciprocal.scale(f32::INFINITY);
    assert_eq!((infinite.stored, infinite.factor), (1.0, 1.0));
    for formula in Formula::all() {
        // Whether no number counts as the largest; Triton's maximum passes it over.
        let passes = formula == Formula::Triton;
        for (a, b) in [(f32::NAN, 1.0), (1.0, f32::NAN)] {
            assert_eq!(formula.larger(a, b).is_nan(), !passes, "{formula}");
        }
        assert!(formula.larger(f32::NAN, f32::NAN).is_nan());
        assert_eq!((formula.larger(1.0, 2.0), formula.larger(2.0, 1.0)), (2.0, 2.0));
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
    // To the last row and column, and no further; nothing at all is a part of anything.
    assert!(amax.see((2, 1), (2, 3), &[0.0; 6]).is_ok());
    assert!(amax.see((2, 1), (2, 4), &[0.0; 8]).is_err());
    assert!(amax.see((2, 2), (3, 2), &[0.0; 6]).is_err());
    assert!(amax.see((4, 4), (0, 0), &[]).is_ok());
    assert!(amax.join(&[0.0; 4]).is_ok() && amax.join(&[0.0; 5]).is_err());
    assert!(blocks.check((0, 0), (4, 4)).is_ok() && blocks.check((0, 1), (4, 4)).is_err());
    for block in [(2, 0), (0, 0)] {
        assert!(Blocks { block, ..blocks }.check((0, 0), (1, 1)).is_err());
    }
    for formula in Formula::all() {
        assert_eq!(formula.to_string().parse::<Formula>(), Ok(formula));
    }
    assert!("fp7".parse::<Formula>().expect_err("no such").to_string().contains("deepgemm"));
}

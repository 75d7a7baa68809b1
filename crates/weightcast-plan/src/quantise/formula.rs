//! How a block's scale comes from its largest magnitude, and codes from the scale.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use super::e4m3::to_e4m3;

/// The largest code's value.
const MOST: f32 = 448.0;

/// A formula, named after where it is used.
///
/// They are not bit-equal on ordinary weights: an engine that requantises by another formula than
/// the trainer's serves other weights. Names: `triton`, `offline`, `reciprocal`, `deepgemm`,
/// `deepgemm-ue8m0-bits`, `deepgemm-ue8m0-log2`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Formula {
    /// slime, Miles, verl (Triton): `s = max(amax, 1e-10) / 448`, `q = x * (1 / s)`. NaNs do not
    /// count for the amax, which is what Triton's maximum does on a GPU; there `/` may differ by
    /// one unit in the last place.
    Triton,
    /// slime's offline converter: amax of at least 1e-12 in BF16, `q = x / s`.
    Offline,
    /// verl's torch fallback: `q = x * f` with `f = (1 / amax) * 448`, stored scale `1 / f`, and 1 where
    /// amax is 0 or infinite.
    Reciprocal,
    /// DeepGEMM, vLLM, SGLang: `s = max(amax, 1e-4) / 448`, `q = x * (1 / s)`.
    DeepGemm,
    /// The same with `s` rounded up to a power of two by its bits (SGLang).
    DeepGemmUe8m0Bits,
    /// The same with `s` rounded up as `2^ceil(log2(s))` (vLLM). The logarithm is rounded once, to
    /// F32; a platform's own may differ next to powers of two.
    DeepGemmUe8m0Log2,
}

const NAMES: [(Formula, &str); 6] = [
    (Formula::Triton, "triton"),
    (Formula::Offline, "offline"),
    (Formula::Reciprocal, "reciprocal"),
    (Formula::DeepGemm, "deepgemm"),
    (Formula::DeepGemmUe8m0Bits, "deepgemm-ue8m0-bits"),
    (Formula::DeepGemmUe8m0Log2, "deepgemm-ue8m0-log2"),
];

/// No formula has this name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("no formula {name:?}; there are {}", NAMES.map(|(_, name)| name).join(", "))]
pub struct UnknownFormula {
    /// The name.
    pub name: String,
}

/// A block's scale: what is stored, and what codes are made with.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scale {
    /// What a code is multiplied by to get its value back: `weight_scale_inv`.
    pub stored: f32,
    /// What a value is multiplied by to get its code, or divided by where `divides`.
    pub factor: f32,
    /// Whether values are divided.
    pub divides: bool,
}

impl Formula {
    /// All of them.
    pub fn all() -> impl Iterator<Item = Formula> {
        NAMES.iter().map(|row| row.0)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        NAMES[self as usize].1
    }

    /// Whether its scales are powers of two, which an exponent alone can hold.
    pub fn is_ue8m0(self) -> bool {
        matches!(self, Formula::DeepGemmUe8m0Bits | Formula::DeepGemmUe8m0Log2)
    }

    /// The larger of two magnitudes, as this formula takes the maximum: NaN wins, or does not
    /// count. Parts of a block that several ranks have are joined so, in any order.
    pub fn larger(self, a: f32, b: f32) -> f32 {
        match self {
            Formula::Triton => a.max(b),
            _ if a.is_nan() || b.is_nan() => f32::NAN,
            _ => a.max(b),
        }
    }

    /// The scale of a block with this largest magnitude (0 for an empty one).
    pub fn scale(self, amax: f32) -> Scale {
        let times = |stored: f32| Scale { stored, factor: 1.0 / stored, divides: false };
        match self {
            Formula::Triton => times(at_least(amax, 1e-10) / MOST),
            Formula::Offline => {
                let stored = at_least(amax, SMALLEST_OFFLINE) / MOST;
                Scale { stored, factor: stored, divides: true }
            }
            Formula::Reciprocal => {
                let factor = match amax == 0.0 || amax.is_infinite() {
                    true => 1.0,
                    // torch divides a number by a tensor so.
                    false => (1.0 / amax) * MOST,
                };
                Scale { stored: 1.0 / factor, factor, divides: false }
            }
            Formula::DeepGemm => times(at_least(amax, 1e-4) / MOST),
            Formula::DeepGemmUe8m0Bits => times(power_by_bits(at_least(amax, 1e-4) / MOST)),
            Formula::DeepGemmUe8m0Log2 => times(power_by_log2(at_least(amax, 1e-4) / MOST)),
        }
    }
}

/// 1e-12 in BF16.
const SMALLEST_OFFLINE: f32 = f32::from_bits(0x2b8d_0000);

/// The maximum in which NaN wins.
fn at_least(amax: f32, least: f32) -> f32 {
    if amax.is_nan() { amax } else { amax.max(least) }
}

/// The power of two not below, by the exponent bits; NaN and infinity become 2^127.
fn power_by_bits(scale: f32) -> f32 {
    let exponent = (u64::from(scale.abs().to_bits()) + 0x7f_ffff) >> 23;
    f32::from_bits((exponent.clamp(1, 254) as u32) << 23)
}

fn power_by_log2(scale: f32) -> f32 {
    (f64::from(scale.abs()).log2() as f32).ceil().exp2()
}

impl Scale {
    /// The code of a value. What is no number without being one before (infinity by a zero
    /// factor) is the negative NaN, as x86 has it; every value of a NaN scale is the positive one.
    pub fn code(self, value: f32) -> u8 {
        let scaled = if self.divides { value / self.factor } else { value * self.factor };
        match scaled.is_nan() {
            true if self.factor.is_nan() => 0x7f,
            true if !value.is_nan() => 0xff,
            _ => to_e4m3(if value.is_nan() { value } else { scaled }),
        }
    }
}

impl fmt::Display for Formula {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Formula {
    type Err = UnknownFormula;

    fn from_str(name: &str) -> Result<Formula, UnknownFormula> {
        let found = NAMES.iter().find(|row| row.1 == name).map(|row| row.0);
        found.ok_or_else(|| UnknownFormula { name: name.to_owned() })
    }
}

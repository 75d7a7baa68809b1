//! FP8 kernels: the largest magnitude of a run of elements, and its e4m3 codes.
//!
//! Vector code only: where a machine has none, or a scale is no plain number, these say so and the
//! caller takes the reference (`weightcast_plan::quantise`), to which they are bit-equal.

#[cfg(target_arch = "x86_64")]
mod codes;
#[cfg(target_arch = "x86_64")]
mod magnitude;
#[cfg(test)]
mod tests;

/// Type of the elements that are quantised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Elements {
    /// Two bytes each.
    BF16,
    /// Four bytes each.
    F32,
}

impl Elements {
    /// Bytes of an element.
    pub fn bytes(self) -> usize {
        match self {
            Self::BF16 => 2,
            Self::F32 => 4,
        }
    }
}

/// How a code is made of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Factor {
    /// The element times this.
    Times(f32),
    /// The element divided by this.
    Over(f32),
}

impl Factor {
    fn number(self) -> f32 {
        match self {
            Self::Times(number) | Self::Over(number) => number,
        }
    }

    /// The element of which the code is that of its nearest number.
    fn of(self, element: f32) -> f32 {
        match self {
            Self::Times(number) => element * number,
            Self::Over(number) => element / number,
        }
    }
}

/// The largest magnitude of `data`, little-endian elements: `None` if one of them is NaN (formulas
/// differ there), or without vector code.
pub fn amax(elements: Elements, data: &[u8]) -> Option<f32> {
    assert!(data.len().is_multiple_of(elements.bytes()), "whole elements");
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2.
        let bits = unsafe { magnitude::amax_avx2(elements, data) };
        let infinite = f32::INFINITY.to_bits();
        return (bits <= infinite).then(|| f32::from_bits(bits));
    }
    None
}

/// Writes the code of each element of `data`; false, with nothing written, without vector code or
/// by a factor that is NaN.
pub fn codes(elements: Elements, data: &[u8], factor: Factor, codes: &mut [u8]) -> bool {
    assert_eq!(data.len(), codes.len() * elements.bytes(), "a code for each element");
    let number = factor.number();
    #[cfg(target_arch = "x86_64")]
    if !number.is_nan() && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the CPU has AVX2; lengths agree.
        unsafe { codes::codes_avx2(elements, data, factor, codes) };
        return true;
    }
    let _ = number;
    false
}

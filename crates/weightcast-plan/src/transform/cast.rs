//! Casts between F32, BF16 and F16: rounded to nearest, ties to even; too large is infinite.

use half::{bf16, f16};

use crate::dtype::DType;

/// Casts little-endian elements; `None` unless both types are F32, BF16 or F16 and the lengths agree.
///
/// Bit-equal to torch on all numbers and infinities. A NaN stays a NaN, with the payload that is
/// left of it.
pub fn cast(from: DType, elements: &[u8], to: DType, made: &mut [u8]) -> Option<()> {
    let size = |dtype: DType| dtype.step_bytes() as usize;
    if elements.len() / size(from) != made.len() / size(to)
        || !elements.len().is_multiple_of(size(from))
        || !made.len().is_multiple_of(size(to))
    {
        return None;
    }
    match from {
        DType::F32 => {
            write(elements.as_chunks().0.iter().map(|b| f32::from_le_bytes(*b)), to, made)
        }
        DType::BF16 => {
            write(elements.as_chunks().0.iter().map(|b| bf16::from_le_bytes(*b).to_f32()), to, made)
        }
        DType::F16 => {
            write(elements.as_chunks().0.iter().map(|b| f16::from_le_bytes(*b).to_f32()), to, made)
        }
        _ => None,
    }
}

fn write(values: impl Iterator<Item = f32>, to: DType, made: &mut [u8]) -> Option<()> {
    match to {
        DType::F32 => put(values.map(f32::to_le_bytes), made),
        DType::BF16 => put(values.map(|value| bf16::from_f32(value).to_le_bytes()), made),
        DType::F16 => put(values.map(|value| f16::from_f32(value).to_le_bytes()), made),
        _ => return None,
    }
    Some(())
}

fn put<const N: usize>(values: impl Iterator<Item = [u8; N]>, made: &mut [u8]) {
    for (place, value) in made.as_chunks_mut::<N>().0.iter_mut().zip(values) {
        *place = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(from: DType, elements: &[u8], to: DType) -> Vec<u8> {
        let mut made =
            vec![0; elements.len() / from.step_bytes() as usize * to.step_bytes() as usize];
        cast(from, elements, to, &mut made).unwrap();
        made
    }

    /// Halves of the last place, ties both ways, the largest and the smallest.
    #[test]
    fn rounding() {
        let bf16_of = |bits: u32| {
            u16::from_le_bytes(
                one(DType::F32, &bits.to_le_bytes(), DType::BF16).try_into().unwrap(),
            )
        };
        assert_eq!(bf16_of(0x3f80_8000), 0x3f80);
        assert_eq!(bf16_of(0x3f80_8001), 0x3f81);
        assert_eq!(bf16_of(0x3f81_8000), 0x3f82);
        assert_eq!(bf16_of(0x7f7f_ffff), 0x7f80);
        assert_eq!(bf16_of(0x8000_0001), 0x8000);
        assert_eq!(bf16_of(0xff80_0000), 0xff80);
        let f16_of = |value: f32| {
            u16::from_le_bytes(
                one(DType::F32, &value.to_le_bytes(), DType::F16).try_into().unwrap(),
            )
        };
        assert_eq!((f16_of(65_519.996), f16_of(65_520.0)), (0x7bff, 0x7c00));
        assert_eq!((f16_of(f32::exp2(-25.0)), f16_of(f32::exp2(-24.0) * 1.5)), (0, 2));
    }

    #[test]
    fn widening_and_back_changes_nothing() {
        for narrow in [DType::BF16, DType::F16] {
            let all: Vec<u8> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
            let wide = one(narrow, &all, DType::F32);
            let back = one(DType::F32, &wide, narrow);
            for (a, b) in all.as_chunks::<2>().0.iter().zip(back.as_chunks::<2>().0) {
                let value = one(narrow, a, DType::F32);
                let nan = f32::from_le_bytes(value.try_into().unwrap()).is_nan();
                assert!(a == b || nan, "{narrow} {a:?} {b:?}");
            }
        }
    }

    #[test]
    fn what_cannot_be_cast_is_refused() {
        assert_eq!(cast(DType::F32, &[0; 8], DType::BF16, &mut [0; 3]), None);
        assert_eq!(cast(DType::F32, &[0; 7], DType::BF16, &mut [0; 2]), None);
        assert_eq!(cast(DType::I32, &[0; 4], DType::F32, &mut [0; 4]), None);
        assert_eq!(cast(DType::F32, &[0; 4], DType::I32, &mut [0; 4]), None);
    }
}

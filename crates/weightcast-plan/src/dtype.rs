//! Element types under the names that safetensors gives them.

use std::fmt;

/// The type of a tensor's elements.
///
/// Names and meanings are those of the safetensors format; `F4` is the 4-bit `e2m1` float, two
/// elements to a byte, packed along the last dimension.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs)] // the names are the documentation
pub enum DType {
    F64,
    F32,
    F16,
    BF16,
    F8E4M3,
    F8E5M2,
    F8E8M0,
    F4,
    I64,
    I32,
    I16,
    I8,
    U64,
    U32,
    U16,
    U8,
    BOOL,
}

/// Type, wire code, name, bits. The codes are part of digests and messages: never renumber.
const TABLE: [(DType, u8, &str, u64); 17] = [
    (DType::F64, 1, "F64", 64),
    (DType::F32, 2, "F32", 32),
    (DType::F16, 3, "F16", 16),
    (DType::BF16, 4, "BF16", 16),
    (DType::F8E4M3, 5, "F8_E4M3", 8),
    (DType::F8E5M2, 6, "F8_E5M2", 8),
    (DType::F8E8M0, 7, "F8_E8M0", 8),
    (DType::F4, 8, "F4", 4),
    (DType::I64, 9, "I64", 64),
    (DType::I32, 10, "I32", 32),
    (DType::I16, 11, "I16", 16),
    (DType::I8, 12, "I8", 8),
    (DType::U64, 13, "U64", 64),
    (DType::U32, 14, "U32", 32),
    (DType::U16, 15, "U16", 16),
    (DType::U8, 16, "U8", 8),
    (DType::BOOL, 17, "BOOL", 8),
];

impl DType {
    /// All types, in the order of their codes.
    pub fn all() -> impl Iterator<Item = DType> {
        TABLE.iter().map(|row| row.0)
    }

    /// The safetensors name, such as `BF16` or `F8_E4M3`.
    pub fn name(self) -> &'static str {
        self.row().2
    }

    /// The type with this safetensors name.
    pub fn from_name(name: &str) -> Option<DType> {
        TABLE.iter().find(|row| row.2 == name).map(|row| row.0)
    }

    /// Bits of one element: 4 to 64.
    pub fn bits(self) -> u64 {
        self.row().3
    }

    /// Bytes of the smallest addressable step: the element, or a whole byte for 4-bit types.
    pub fn step_bytes(self) -> u64 {
        self.bits().div_ceil(8)
    }

    /// Elements in one step: 1, or 2 for 4-bit types.
    pub fn step_elements(self) -> u64 {
        self.step_bytes() * 8 / self.bits()
    }

    /// A number for this type that never changes.
    pub fn code(self) -> u8 {
        self.row().1
    }

    /// The type with this code.
    pub fn from_code(code: u8) -> Option<DType> {
        TABLE.iter().find(|row| row.1 == code).map(|row| row.0)
    }

    fn row(self) -> &'static (DType, u8, &'static str, u64) {
        &TABLE[self as usize]
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_codes_round_trip() {
        for (at, dtype) in DType::all().enumerate() {
            assert_eq!(dtype as usize, at, "table order is enum order");
            assert_eq!(DType::from_name(dtype.name()), Some(dtype));
            assert_eq!(DType::from_code(dtype.code()), Some(dtype));
            assert_eq!(dtype.step_bytes() * 8, dtype.step_elements() * dtype.bits());
        }
        assert_eq!(DType::from_name("bf16"), None);
        assert_eq!(DType::from_code(0), None);
    }
}

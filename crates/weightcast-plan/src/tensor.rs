//! Logical tensors: what the published checkpoint calls a weight, wherever its bytes lie.

use std::collections::BTreeMap;
use std::fmt;

use thiserror::Error;

use crate::dtype::DType;
use crate::limits::{MAX_BYTES, MAX_DIMS, MAX_NAME_BYTES};

/// The logical tensors of a version, by name.
pub type Catalog = BTreeMap<String, Tensor>;

/// A logical tensor: name, element type and global shape. Only checked ones exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Tensor {
    name: Box<str>,
    dtype: DType,
    shape: Box<[u64]>,
}

/// Why a tensor cannot be.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[allow(missing_docs)] // fields are named in the message
pub enum TensorError {
    /// Empty, too long, or with characters that do not travel safely in paths and logs.
    #[error(
        "tensor name {name:?} is not usable: 1 to {MAX_NAME_BYTES} bytes of A-Z a-z 0-9 . _ / : -, \
         no \"..\", no leading \"/\""
    )]
    Name { name: String },
    /// More dimensions than [`MAX_DIMS`].
    #[error("tensor {name} has {dims} dimensions; at most {MAX_DIMS} are supported")]
    Dims { name: String, dims: usize },
    /// More bytes than [`MAX_BYTES`].
    #[error("tensor {name} {dtype} {shape:?} is larger than {MAX_BYTES} bytes")]
    Bytes { name: String, dtype: DType, shape: Vec<u64> },
    /// Rows of a sub-byte type that do not end on a byte.
    #[error("tensor {name} {dtype} {shape:?}: rows must fill whole bytes; store it as U8")]
    SubByte { name: String, dtype: DType, shape: Vec<u64> },
}

impl Tensor {
    /// Checks the name, the number of dimensions and the size.
    pub fn new(
        name: impl Into<String>,
        dtype: DType,
        shape: impl Into<Vec<u64>>,
    ) -> Result<Tensor, TensorError> {
        let (name, shape) = (name.into(), shape.into());
        if !usable(&name) {
            let name = name.chars().take(MAX_NAME_BYTES).collect();
            return Err(TensorError::Name { name });
        }
        if shape.len() > MAX_DIMS {
            return Err(TensorError::Dims { name, dims: shape.len() });
        }
        // A zero dimension must not hide an overflow of the others: strides are products too.
        let mut bits = Some(dtype.bits());
        for &size in &shape {
            bits = bits.and_then(|b| b.checked_mul(size.max(1)));
        }
        if bits.is_none_or(|b| b / 8 > MAX_BYTES) {
            return Err(TensorError::Bytes { name, dtype, shape });
        }
        if shape.last().copied().unwrap_or(1) % dtype.step_elements() != 0 {
            return Err(TensorError::SubByte { name, dtype, shape });
        }
        Ok(Tensor { name: name.into(), dtype, shape: shape.into() })
    }

    /// What the published checkpoint calls it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Element type.
    pub fn dtype(&self) -> DType {
        self.dtype
    }

    /// Global shape in elements; empty for a scalar.
    pub fn shape(&self) -> &[u64] {
        &self.shape
    }

    /// Bytes of the whole tensor.
    pub fn nbytes(&self) -> u64 {
        self.shape.iter().product::<u64>() * self.dtype.bits() / 8
    }

    /// Bytes that it takes in memory.
    pub(crate) fn footprint(&self) -> usize {
        size_of::<Tensor>() + self.name.len() + 8 * self.shape.len()
    }

    /// Two odd numbers, one per digest lane, drawn from name, type and shape. A tensor's digest
    /// times its key, summed over the tensors of a shard, is the one number that stands for the
    /// shard; odd factors lose no change.
    pub fn key(&self) -> [u64; 2] {
        let mut hasher = blake3::Hasher::new_derive_key("weightcast tensor key 1");
        self.encode(&mut hasher);
        let bytes = *hasher.finalize().as_bytes();
        let lane = |at: usize| {
            let mut eight = [0; 8];
            eight.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(eight) | 1
        };
        [lane(0), lane(8)]
    }

    /// Feeds the canonical encoding, field by field, every length before its items.
    pub(crate) fn encode(&self, hasher: &mut blake3::Hasher) {
        hasher.update(&(self.name.len() as u64).to_le_bytes());
        hasher.update(self.name.as_bytes());
        hasher.update(&[self.dtype.code()]);
        hasher.update(&(self.shape.len() as u64).to_le_bytes());
        for size in &*self.shape {
            hasher.update(&size.to_le_bytes());
        }
    }
}

impl fmt::Display for Tensor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {:?}", self.name, self.dtype, self.shape)
    }
}

/// Names a set of tensors, whatever their order: equal digests, equal catalogs.
pub fn catalog_digest(tensors: &[Tensor]) -> [u8; 16] {
    let mut sorted: Vec<&Tensor> = tensors.iter().collect();
    sorted.sort();
    let mut hasher = blake3::Hasher::new_derive_key("weightcast catalog 1");
    hasher.update(&(sorted.len() as u64).to_le_bytes());
    for tensor in sorted {
        tensor.encode(&mut hasher);
    }
    first_half(&hasher)
}

/// The first 16 bytes of a BLAKE3 digest.
pub(crate) fn first_half(hasher: &blake3::Hasher) -> [u8; 16] {
    let mut half = [0; 16];
    half.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    half
}

fn usable(name: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._/:-".contains(&b);
    !name.is_empty()
        && name.len() <= MAX_NAME_BYTES
        && name.bytes().all(plain)
        && !name.contains("..")
        && !name.starts_with('/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refuses_bad_names() {
        for bad in ["", "/a", "a..b", "a b", "a\0", "ä", &"x".repeat(513)] {
            assert!(Tensor::new(bad, DType::U8, [1]).is_err(), "{bad:?}");
        }
        assert!(Tensor::new("a.b_c/d:0-1", DType::U8, [1]).is_ok());
        assert!(Tensor::new("x".repeat(512), DType::U8, [1]).is_ok());
    }

    #[test]
    fn refuses_what_overflows() {
        assert!(Tensor::new("a", DType::U8, [1; 9]).is_err());
        assert!(Tensor::new("a", DType::U8, [1; 8]).is_ok());
        assert!(Tensor::new("a", DType::F64, [u64::MAX, 2]).is_err());
        assert!(Tensor::new("a", DType::U8, [0, u64::MAX, u64::MAX]).is_err());
        assert!(Tensor::new("a", DType::U8, [MAX_BYTES]).is_ok());
        assert!(Tensor::new("a", DType::U8, [MAX_BYTES + 1]).is_err());
    }

    #[test]
    fn counts_bytes() {
        assert_eq!(Tensor::new("a", DType::BF16, [3, 5]).unwrap().nbytes(), 30);
        assert_eq!(Tensor::new("a", DType::F32, []).unwrap().nbytes(), 4);
        assert_eq!(Tensor::new("a", DType::F4, [3, 6]).unwrap().nbytes(), 9);
        assert_eq!(Tensor::new("a", DType::F4, [0, 6]).unwrap().nbytes(), 0);
        assert!(Tensor::new("a", DType::F4, [6, 3]).is_err());
        assert!(Tensor::new("a", DType::F4, []).is_err());
    }

    #[test]
    fn keys_are_odd_and_depend_on_everything() {
        let base = Tensor::new("a", DType::BF16, [2, 3]).unwrap();
        let others = [
            Tensor::new("b", DType::BF16, [2, 3]).unwrap(),
            Tensor::new("a", DType::F16, [2, 3]).unwrap(),
            Tensor::new("a", DType::BF16, [3, 2]).unwrap(),
        ];
        assert!(base.key().iter().all(|k| k % 2 == 1));
        for other in &others {
            assert_ne!(base.key(), other.key());
        }
        let [lane, other] = base.key();
        assert_ne!(lane, other, "one for each lane");
        let (a, b) = (base, others[0].clone());
        let both = catalog_digest(&[a.clone(), b.clone()]);
        assert_eq!(both, catalog_digest(&[b.clone(), a.clone()]));
        for less in [vec![], vec![a.clone()], vec![b], vec![a.clone(), a]] {
            assert_ne!(both, catalog_digest(&less));
        }
    }
}

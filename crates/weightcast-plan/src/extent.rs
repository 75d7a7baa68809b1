//! Slices seen in bytes: the last dimension counts bytes instead of elements.
//!
//! After this step no one needs to know about element sizes: a step of 1 in the last dimension is
//! one byte in memory and one byte in the tensor's global row-major order. A scalar becomes one
//! dimension of its own bytes.

use crate::dtype::DType;
use crate::layout::Entry;
use crate::slice::Slice;
use crate::tensor::Tensor;

/// The slice with its last dimension in bytes. Sub-byte slices are on byte boundaries.
pub(crate) fn in_bytes(dtype: DType, slice: &Slice) -> Slice {
    if slice.ndim() == 0 {
        return Slice::new([0], [dtype.step_bytes()]);
    }
    let (mut scaled, last) = (slice.clone(), slice.ndim() - 1);
    scaled.start[last] = slice.start[last] * dtype.bits() / 8;
    scaled.len[last] = slice.len[last] * dtype.bits() / 8;
    scaled
}

/// The tensor's global shape with its last dimension in bytes.
pub(crate) fn shape_in_bytes(tensor: &Tensor) -> Vec<u64> {
    in_bytes(tensor.dtype(), &Slice::full(tensor.shape())).len
}

/// Byte distances of a packed row-major array of this byte shape; the last is 1.
pub(crate) fn packed(byte_shape: &[u64]) -> Vec<u64> {
    let mut strides = vec![1; byte_shape.len()];
    for d in (1..byte_shape.len()).rev() {
        strides[d - 1] = strides[d] * byte_shape[d].max(1);
    }
    strides
}

/// An entry's byte distances in memory, the last dimension stepping bytes.
pub(crate) fn strides_in_bytes(entry: &Entry) -> Vec<u64> {
    let mut strides = entry.strides.clone();
    match strides.last_mut() {
        Some(last) => *last = 1,
        None => strides.push(1),
    }
    strides
}

/// Distance from `origin` to `point` under these strides.
pub(crate) fn distance(origin: &[u64], point: &[u64], strides: &[u64]) -> u64 {
    (0..strides.len()).map(|d| (point[d] - origin[d]) * strides[d]).sum()
}

//! Entries: one slice of one tensor at one place in memory.

use crate::slice::Slice;

/// A slice and where it lies.
///
/// The element with index `i` of the slice (counted from its start) is at byte
/// `offset + sum(i[d] * strides[d])` of the buffer. Elements of the last dimension lie side by
/// side: its stride is the element's size (for 4-bit types 1, the step of a pair). Strides of
/// dimensions with one index, or of empty slices, mean nothing and are made canonical.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    /// Number of the logical tensor.
    pub tensor: u32,
    /// Which of its elements.
    pub slice: Slice,
    /// Number of the buffer.
    pub buffer: u32,
    /// Byte of the buffer where the first element is.
    pub offset: u64,
    /// Bytes from one index to the next, for each dimension.
    pub strides: Vec<u64>,
}

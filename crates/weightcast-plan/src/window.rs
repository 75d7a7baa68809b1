//! Windows: an entry's elements by their byte in the tensor's global order.
//!
//! The proof's own arithmetic: from a position to coordinates to an address, without the planner's
//! folding.

use crate::extent::{in_bytes, packed, shape_in_bytes, strides_in_bytes};
use crate::layout::Layout;
use crate::slice::Slice;

/// A box of a tensor, in bytes, and how it lies in a buffer.
pub(crate) struct Window {
    pub(crate) buffer: u32,
    bounds: Slice,
    base: u64,
    strides: Vec<u64>,
    global: Vec<u64>,
    /// From this dimension on, the box is contiguous both in memory and in global order.
    tail: usize,
}

impl Window {
    /// The part `slice` of entry number `entry`.
    pub(crate) fn new(layout: &Layout, entry: u32, slice: &Slice) -> Window {
        let tensor = layout.tensor_of(entry);
        let held = &layout.entries()[entry as usize];
        let whole = in_bytes(tensor.dtype(), &held.slice);
        let bounds = in_bytes(tensor.dtype(), slice);
        let shape = shape_in_bytes(tensor);
        let strides = strides_in_bytes(held);
        let shift = |d: usize| (bounds.start[d] - whole.start[d]) * strides[d];
        let base = held.offset + (0..strides.len()).map(shift).sum::<u64>();
        let mut tail = shape.len() - 1;
        let mut run = bounds.len[tail];
        while tail > 0 && bounds.len[tail] == shape[tail] {
            if bounds.len[tail - 1] != 1 && strides[tail - 1] != run {
                break;
            }
            tail -= 1;
            run *= bounds.len[tail];
        }
        Window { buffer: held.buffer, bounds, base, global: packed(&shape), strides, tail }
    }

    /// The box, in bytes.
    pub(crate) fn bounds(&self) -> &Slice {
        &self.bounds
    }

    /// The coordinates of a byte of the tensor, the last counting bytes.
    pub(crate) fn point(&self, position: u64) -> Slice {
        let mut rest = position;
        let start: Vec<u64> = self
            .global
            .iter()
            .map(|stride| {
                let at = rest / stride;
                rest %= stride;
                at
            })
            .collect();
        let len = vec![1; start.len()];
        Slice { start, len }
    }

    /// Where that byte lies in the buffer, and for how many bytes memory and global order go on
    /// side by side; `None` if it is not in the window.
    pub(crate) fn locate(&self, position: u64) -> Option<(u64, u64)> {
        let point = self.point(position);
        if !self.bounds.contains(&point) {
            return None;
        }
        let at = |d: usize| point.start[d] - self.bounds.start[d];
        let address =
            self.base + (0..self.strides.len()).map(|d| at(d) * self.strides[d]).sum::<u64>();
        let (mut run, mut passed) = (1, 0);
        for d in self.tail..self.strides.len() {
            passed = passed * self.bounds.len[d] + at(d);
            run *= self.bounds.len[d];
        }
        Some((address, run - passed))
    }

    /// Calls `each` with every contiguous piece of the window's memory: start and bytes.
    pub(crate) fn pieces(&self, mut each: impl FnMut(u64, u64)) {
        let run: u64 = self.bounds.len[self.tail..].iter().product();
        if self.bounds.is_empty() {
            return;
        }
        let outer = &self.bounds.len[..self.tail];
        let mut odometer = vec![0; outer.len()];
        loop {
            let shift = (0..outer.len()).map(|d| odometer[d] * self.strides[d]).sum::<u64>();
            each(self.base + shift, run);
            let Some(d) = (0..outer.len()).rev().find(|&d| odometer[d] + 1 < outer[d]) else {
                return;
            };
            odometer[d] += 1;
            odometer[d + 1..].fill(0);
        }
    }
}

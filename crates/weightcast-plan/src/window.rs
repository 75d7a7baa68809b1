//! Windows: an entry's elements by their byte in the tensor's global order.
//!
//! The proof's own arithmetic: from a position to coordinates to an address, without the planner's
//! folding.

use std::collections::BTreeMap;

use crate::extent::{in_bytes, packed, shape_in_bytes, strides_in_bytes};
use crate::index::BoxIndex;
use crate::layout::Layout;
use crate::slice::Slice;
use crate::tensor::Tensor;

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
        let start: Vec<u64> = coordinates(&self.global, position).collect();
        let len = vec![1; start.len()];
        Slice { start, len }
    }

    /// Where that byte lies in the buffer, and for how many bytes memory and global order go on
    /// side by side; `None` if it is not in the window.
    pub(crate) fn locate(&self, position: u64) -> Option<(u64, u64)> {
        let (mut address, mut run, mut passed) = (self.base, 1, 0);
        for (d, at) in coordinates(&self.global, position).enumerate() {
            let at = at.checked_sub(self.bounds.start[d]).filter(|&at| at < self.bounds.len[d])?;
            address += at * self.strides[d];
            if d >= self.tail {
                passed = passed * self.bounds.len[d] + at;
                run *= self.bounds.len[d];
            }
        }
        Some((address, run - passed))
    }

    /// For how many bytes from `position` on the elements lie from `offset` on in that buffer;
    /// `None` if they do not.
    pub(crate) fn holds(&self, buffer: u32, offset: u64, position: u64) -> Option<u64> {
        let (address, run) = self.locate(position)?;
        (buffer == self.buffer && offset == address).then_some(run)
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

/// The index in each dimension of a row-major position; the first may be outside the shape.
fn coordinates(global: &[u64], position: u64) -> impl Iterator<Item = u64> + '_ {
    global.iter().scan(position, |rest, stride| {
        let at = *rest / stride;
        *rest %= stride;
        Some(at)
    })
}

/// What the sources hold, tensor by tensor as it is asked for.
pub(crate) struct Held<'a> {
    sources: &'a [&'a Layout],
    known: BTreeMap<(u32, u32), Windows>,
}

/// A source's entries of one tensor, found by the elements they hold.
pub(crate) struct Windows {
    windows: Vec<Window>,
    index: BoxIndex,
}

impl<'a> Held<'a> {
    pub(crate) fn new(sources: &'a [&'a Layout]) -> Held<'a> {
        Held { sources, known: BTreeMap::new() }
    }

    /// That source's entries of the tensor, if it has the very same tensor.
    pub(crate) fn windows(&mut self, source: u32, tensor: &Tensor) -> Option<&Windows> {
        let layout = self.sources[source as usize];
        let number = layout.find(tensor.name())?;
        if layout.tensors()[number as usize] != *tensor {
            return None;
        }
        Some(self.known.entry((source, number)).or_insert_with(|| {
            let window = |e| Window::new(layout, e, &layout.entries()[e as usize].slice);
            let windows: Vec<Window> = layout.entries_of(number).map(window).collect();
            let index = BoxIndex::new(windows.iter().map(Window::bounds));
            Windows { windows, index }
        }))
    }
}

impl Windows {
    /// The one that holds byte `position` of the tensor.
    pub(crate) fn find(&self, position: u64) -> Option<&Window> {
        let point = self.windows.first()?.point(position);
        let mut near = self.index.near(&point).map(|at| &self.windows[at as usize]);
        near.find(|window| window.locate(position).is_some())
    }
}

//! Windows: an entry's elements by their byte in the tensor's global order.
//!
//! The proof's own arithmetic: from a position to coordinates to an address, without the planner's
//! folding.

use std::collections::BTreeMap;

use crate::extent::{in_bytes, packed, shape_in_bytes, strides_in_bytes};
use crate::index::BoxIndex;
use crate::layout::Layout;
use crate::plan::Run;
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
        let held = layout.entry(entry);
        let whole = in_bytes(tensor.dtype(), &held.slice);
        let bounds = in_bytes(tensor.dtype(), slice);
        let shape = shape_in_bytes(tensor);
        let strides = strides_in_bytes(&held);
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

    /// How many of these rows, from the first on, lie in the window each in one piece and where the
    /// run says; at least 1, or `None` if the first does not. Looks at the pitch once: rows that
    /// step along the same dimensions need not be looked at one by one.
    pub(crate) fn whole_rows(&self, run: &Run) -> Option<u64> {
        let piece = self.holds(run.buffer, run.offset, run.position)?;
        if piece < run.row_bytes {
            return None;
        }
        let (mut at, mut by) = (run.position, run.position_pitch);
        let (mut rows, mut pitch) = (run.rows, 0u64);
        for d in 0..self.tail {
            let stride = self.global[d];
            let room = self.bounds.end(d) - 1 - at / stride;
            rows = rows.min(room.checked_div(by / stride).unwrap_or(u64::MAX).saturating_add(1));
            pitch = pitch.saturating_add((by / stride).saturating_mul(self.strides[d]));
            (at, by) = (at % stride, by % stride);
        }
        // What is left of both is bytes of one contiguous piece.
        rows =
            rows.min((piece - run.row_bytes).checked_div(by).unwrap_or(u64::MAX).saturating_add(1));
        Some(if pitch.saturating_add(by) == run.pitch { rows } else { 1 })
    }

    /// Calls `each` with every contiguous piece of the window's memory: start and bytes.
    pub(crate) fn pieces(&self, mut each: impl FnMut(u64, u64)) {
        if self.bounds.is_empty() {
            return;
        }
        // Contiguous in memory is more than contiguous in global order as well.
        let lens = &self.bounds.len;
        let (mut outer, mut run) = (lens.len() - 1, lens[lens.len() - 1]);
        while outer > 0 && (lens[outer - 1] == 1 || self.strides[outer - 1] == run) {
            outer -= 1;
            run *= lens[outer];
        }
        let lens = &lens[..outer];
        let mut odometer = vec![0; lens.len()];
        loop {
            let shift = (0..lens.len()).map(|d| odometer[d] * self.strides[d]).sum::<u64>();
            each(self.base + shift, run);
            let Some(d) = (0..lens.len()).rev().find(|&d| odometer[d] + 1 < lens[d]) else {
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

/// Most windows kept at a time: copies come in the order of the target's memory, so that a tensor's
/// come together.
const KEPT: usize = 1 << 10;

/// What the sources hold, tensor by tensor as it is asked for.
pub(crate) struct Held<'a> {
    sources: &'a [&'a Layout],
    known: BTreeMap<(u32, u32), Windows>,
    /// The tensor's number in the last source, which is mostly its number in the next.
    number: u32,
}

/// A source's entries of one tensor, found by the elements they hold.
pub(crate) struct Windows {
    windows: Vec<Window>,
    /// Unless there is one alone.
    index: Option<BoxIndex>,
}

impl<'a> Held<'a> {
    pub(crate) fn new(sources: &'a [&'a Layout]) -> Held<'a> {
        Held { sources, known: BTreeMap::new(), number: 0 }
    }

    /// That source's entries of the tensor, if it has the very same tensor.
    pub(crate) fn windows(&mut self, source: u32, tensor: &Tensor) -> Option<&Windows> {
        let layout = self.sources[source as usize];
        if layout.tensors().get(self.number as usize) != Some(tensor) {
            self.number = layout.find(tensor.name())?;
        }
        let number = self.number;
        if layout.tensors()[number as usize] != *tensor {
            return None;
        }
        if self.known.len() == KEPT && !self.known.contains_key(&(source, number)) {
            self.known.clear();
        }
        Some(self.known.entry((source, number)).or_insert_with(|| {
            let window = |e| Window::new(layout, e, &layout.entry(e).slice);
            let windows: Vec<Window> = layout.entries_of(number).map(window).collect();
            let index = match windows.len() {
                1 => None,
                _ => Some(BoxIndex::new(windows.iter().map(Window::bounds))),
            };
            Windows { windows, index }
        }))
    }
}

impl Windows {
    /// The one that holds byte `position` of the tensor.
    pub(crate) fn find(&self, position: u64) -> Option<&Window> {
        let first = self.windows.first()?;
        let holds = |window: &&Window| window.locate(position).is_some();
        let Some(index) = &self.index else { return Some(first).filter(holds) };
        let point = first.point(position);
        index.near(&point).map(|at| &self.windows[at as usize]).find(holds)
    }
}

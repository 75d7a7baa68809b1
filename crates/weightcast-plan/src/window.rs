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
pub(crate) struct SourceWindows<'a> {
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

impl<'a> SourceWindows<'a> {
    pub(crate) fn new(sources: &'a [&'a Layout]) -> SourceWindows<'a> {
        SourceWindows { sources, known: BTreeMap::new(), number: 0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{DType, Entry};

    /// A box of a tensor of bytes, three-dimensional, with room between its rows.
    fn window(below: &mut impl FnMut(u64) -> u64) -> (Window, Vec<u64>) {
        let shape: Vec<u64> = (0..3).map(|_| 1 + below(5)).collect();
        let start: Vec<u64> =
            shape.iter().map(|&n| if below(2) == 0 { 0 } else { below(n) }).collect();
        let len: Vec<u64> = shape
            .iter()
            .zip(&start)
            .map(|(n, s)| if below(2) == 0 { n - s } else { 1 + below(n - s) })
            .collect();
        let inner = len[2] + if below(2) == 0 { 0 } else { below(3) };
        let outer = inner * len[1] + if below(2) == 0 { 0 } else { below(3) };
        let slice = Slice { start, len };
        let strides = vec![outer, inner, 1];
        let entry = Entry { tensor: 0, slice: slice.clone(), buffer: 0, offset: 7, strides };
        let tensor = Tensor::new("w", DType::U8, shape.as_slice()).unwrap();
        let layout = Layout::new(vec![1_000], vec![tensor], vec![entry]).unwrap();
        (Window::new(&layout, 0, &slice), shape)
    }

    /// Whether a row of bytes lies where it is said to, byte by byte, in one piece of memory.
    fn lies(window: &Window, offset: u64, position: u64, bytes: u64) -> bool {
        (0..bytes).all(|byte| {
            window.locate(position + byte).is_some_and(|(address, _)| address == offset + byte)
        })
    }

    #[test]
    fn rows_taken_together_are_those_that_lie_there_one_by_one() {
        let mut state = 3u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        let (mut together, mut wrong) = (0, 0);
        for _ in 0..20_000 {
            let (window, shape) = window(&mut below);
            let bounds = window.bounds().clone();
            let at: Vec<u64> = (0..3).map(|d| bounds.start[d] + below(bounds.len[d])).collect();
            let position = (at[0] * shape[1] + at[1]) * shape[2] + at[2];
            let (address, run) = window.locate(position).unwrap();
            // Along one dimension, or any way.
            let (d, step) = (below(3) as usize, 1 + below(2));
            let along = (step * window.global[d], step * window.strides[d]);
            let regular = below(3) > 0;
            let (position_pitch, pitch) = if regular { along } else { (below(9), below(9)) };
            let row_bytes = 1 + below(run);
            let rows = 1 + below(5);
            let spoiled = u64::from(below(8) == 0);
            let offset = address + spoiled;
            let run = Run {
                buffer: 0,
                offset,
                pitch,
                row_bytes,
                rows,
                cell: 0,
                position,
                position_pitch,
            };
            let true_rows = (0..rows)
                .take_while(|row| {
                    let (offset, position) =
                        (offset + row * pitch, position + row * position_pitch);
                    lies(&window, offset, position, row_bytes)
                })
                .count() as u64;
            let found = window.whole_rows(&run);
            assert_eq!(found.is_none(), true_rows == 0, "{run:?}");
            let found = found.unwrap_or(0);
            assert!(found <= true_rows, "{run:?}: {found} of {true_rows}");
            if regular && true_rows > 0 && d < window.tail {
                // All of them before the end of the box in that dimension.
                let room = (bounds.end(d) - 1 - at[d]) / step + 1;
                assert!(found >= true_rows.min(room), "{run:?}: {found} of {true_rows}");
                together += usize::from(found > 1);
            }
            wrong += usize::from(true_rows < rows);
        }
        assert!(together > 500 && wrong > 1_000, "{together} {wrong}");
    }

    #[test]
    fn pieces_are_the_memory_of_the_box() {
        let mut state = 4u64;
        let mut below = |n: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % n
        };
        for _ in 0..3_000 {
            let (window, shape) = window(&mut below);
            let positions = 0..shape.iter().product::<u64>();
            let mut expected: Vec<u64> =
                positions.filter_map(|position| Some(window.locate(position)?.0)).collect();
            let (mut found, mut pieces) = (Vec::new(), 0);
            window.pieces(|start, len| {
                found.extend(start..start + len);
                pieces += 1;
            });
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected);
            // Nothing that is one piece in memory is taken for several.
            let gaps = expected.windows(2).filter(|pair| pair[1] != pair[0] + 1).count();
            assert_eq!(pieces, gaps + 1);
        }
    }
}

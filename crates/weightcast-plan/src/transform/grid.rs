//! Grids: the blocks of one tensor that a shard touches, their table and their scales.

use crate::dtype::DType;
use crate::entry::Entry;
use crate::quantise::Formula;
use crate::slice::Slice;
use crate::tensor::{Tensor, TensorError};
use crate::transform::error::TransformError;
use crate::transform::rules::Fp8;

/// Largest side of a block.
const MOST: u64 = 1 << 20;

/// The blocks of one quantised tensor, as far as this shard touches them.
///
/// A grid is a tensor like the weight, with a block where that has its elements. The table of
/// largest magnitudes covers the smallest box of it that holds all that is touched.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grid {
    /// The weight's name.
    pub weight: String,
    /// The scales' name.
    pub name: String,
    /// How scales are made.
    pub formula: Formula,
    /// Elements of a block in each dimension; 1 in all but the last two.
    pub block: Vec<u64>,
    /// The whole grid's shape.
    pub shape: Vec<u64>,
    /// What of it the table covers.
    pub within: Slice,
    /// First entry in the tables.
    pub first: usize,
    /// Type of the scales.
    pub scales: DType,
    /// First byte in the scales' buffer.
    pub scales_at: u64,
}

impl Grid {
    /// The grid of a tensor with these entries; `before` is the one that comes before it.
    pub(super) fn new(
        tensor: &Tensor,
        entries: &[Entry],
        fp8: &Fp8,
        before: Option<&Grid>,
    ) -> Result<Self, TransformError> {
        check(tensor, fp8)?;
        let block = block(tensor.shape().len(), fp8);
        let shape = over(tensor.shape(), &block);
        let boxes: Vec<Slice> = entries.iter().filter_map(|e| touched(&e.slice, &block)).collect();
        Ok(Self {
            weight: tensor.name().to_owned(),
            name: fp8.scales_of(tensor.name()),
            formula: fp8.formula,
            within: around(&boxes, shape.len()),
            block,
            shape,
            first: before.map_or(0, |grid| grid.first + grid.within.volume() as usize),
            scales: fp8.scales,
            // Aligned, whatever came before.
            scales_at: before.map_or(0, |grid| grid.scales_end().next_multiple_of(8)),
        })
    }

    /// The byte behind its last scale.
    pub fn scales_end(&self) -> u64 {
        self.scales_at + self.within.volume() * self.scales.step_bytes()
    }

    /// The column of the table that an element's column has.
    pub fn column(&self, element: u64) -> u64 {
        let last = self.block.len() - 1;
        element / self.block[last] - self.within.start[last]
    }

    /// What the scales are called when they are published.
    pub(super) fn scales_tensor(&self, dtype: DType) -> Result<Tensor, TensorError> {
        Tensor::new(self.name.as_str(), dtype, self.shape.as_slice())
    }

    /// Entries of the scales of these elements, each scale once.
    pub(super) fn entries(&self, elements: &[Entry], tensor: u32) -> Vec<Entry> {
        let mut strides = vec![self.scales.step_bytes(); self.block.len()];
        for d in (1..strides.len()).rev() {
            strides[d - 1] = strides[d] * self.within.len[d];
        }
        let mut done: Vec<Slice> = Vec::new();
        for element in elements {
            let Some(touched) = touched(&element.slice, &self.block) else { continue };
            let near: Vec<&Slice> =
                done.iter().filter(|d| d.intersect(&touched).is_some()).collect();
            let rest = touched.subtract_all(near);
            done.extend(rest);
        }
        let entry = |slice: Slice| {
            let inner = slice.start.iter().zip(&self.within.start).zip(&strides);
            let offset =
                self.scales_at + inner.map(|((s, w), stride)| (s - w) * stride).sum::<u64>();
            Entry { tensor, slice, buffer: 0, offset, strides: strides.clone() }
        };
        done.into_iter().map(entry).collect()
    }
}

/// Elements of a block in each dimension of a tensor.
pub(super) fn block(dims: usize, fp8: &Fp8) -> Vec<u64> {
    let mut block = vec![1; dims];
    (block[dims - 2], block[dims - 1]) = fp8.block;
    block
}

/// The blocks that a box of elements touches; none if it is empty.
pub(super) fn touched(elements: &Slice, block: &[u64]) -> Option<Slice> {
    if elements.is_empty() {
        return None;
    }
    let start: Vec<u64> = elements.start.iter().zip(block).map(|(s, b)| s / b).collect();
    let end = (0..elements.ndim()).map(|d| elements.end(d).div_ceil(block[d]));
    let len: Vec<u64> = end.zip(&start).map(|(end, start)| end - start).collect();
    Some(Slice { start, len })
}

/// The blocks that a box of elements holds whole, in a tensor of this shape.
pub(super) fn whole(elements: &Slice, block: &[u64], shape: &[u64]) -> Slice {
    let start: Vec<u64> = elements.start.iter().zip(block).map(|(s, b)| s.div_ceil(*b)).collect();
    let end = |d: usize| match elements.end(d) == shape[d] {
        true => shape[d].div_ceil(block[d]),
        false => elements.end(d) / block[d],
    };
    let len = (0..elements.ndim()).map(|d| end(d).saturating_sub(start[d])).collect();
    Slice { start, len }
}

/// A tensor's shape in blocks.
fn over(shape: &[u64], block: &[u64]) -> Vec<u64> {
    shape.iter().zip(block).map(|(n, b)| n.div_ceil(*b)).collect()
}

/// The smallest box that holds all of these.
fn around(boxes: &[Slice], dims: usize) -> Slice {
    let Some((first, rest)) = boxes.split_first() else {
        return Slice::new(vec![0; dims], vec![0; dims]);
    };
    let mut all = first.clone();
    for one in rest {
        for d in 0..dims {
            let end = all.end(d).max(one.end(d));
            all.start[d] = all.start[d].min(one.start[d]);
            all.len[d] = end - all.start[d];
        }
    }
    all
}

fn check(tensor: &Tensor, fp8: &Fp8) -> Result<(), TransformError> {
    let dims = tensor.shape().len();
    if dims < 2 {
        return Err(TransformError::NoMatrix { tensor: tensor.name().to_owned(), dims });
    }
    let (rows, columns) = fp8.block;
    if !(1..=MOST).contains(&rows) || !(1..=MOST).contains(&columns) {
        return Err(TransformError::Block { rows, columns });
    }
    let exponents = fp8.formula.is_ue8m0() && fp8.scales == DType::F8E8M0;
    if fp8.scales != DType::F32 && !exponents {
        return Err(TransformError::Scales {
            formula: fp8.formula.name(),
            scales: fp8.scales,
            exponents: Formula::DeepGemmUe8m0Bits.name(),
        });
    }
    Ok(())
}

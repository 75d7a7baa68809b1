//! Pieces: one entry's elements, made one by one into packed bytes.

use crate::dtype::DType;
use crate::entry::Entry;
use crate::slice::Slice;
use crate::tensor::Tensor;
use crate::transform::error::TransformError;
use crate::transform::grid::Grid;

/// How an element is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// Rounded to another type.
    Cast(DType),
    /// Its FP8 code, by the scale of its block.
    Codes {
        /// Number of the tensor's grid.
        grid: u32,
    },
}

/// An entry of the source, and where its elements are made: packed, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TransformPiece {
    /// First byte in the made buffer.
    pub at: u64,
    /// Where the elements lie.
    pub source: Entry,
    /// What they are there.
    pub from: DType,
    /// What they become.
    pub to: DType,
    /// How.
    pub how: How,
}

/// One row of a piece: elements that lie side by side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Byte of the source's buffer where it begins.
    pub source: u64,
    /// Entry of the table of the block of its first element; with a cast, 0.
    pub table: usize,
}

impl TransformPiece {
    pub(super) fn new(
        tensor: &Tensor,
        entry: &Entry,
        at: u64,
        to: DType,
        how: How,
    ) -> Result<Self, TransformError> {
        let from = tensor.dtype();
        let float = |dtype| matches!(dtype, DType::F32 | DType::BF16 | DType::F16);
        let codes = matches!(how, How::Codes { .. });
        if !float(from) || !(codes || float(to)) {
            return Err(TransformError::Elements { tensor: tensor.name().to_owned(), from, to });
        }
        Ok(Self { at, source: entry.clone(), from, to, how })
    }

    /// Which elements of the tensor.
    pub fn slice(&self) -> &Slice {
        &self.source.slice
    }

    /// Elements of a row.
    pub fn width(&self) -> u64 {
        self.slice().len.last().copied().unwrap_or(1)
    }

    /// Number of rows.
    pub fn rows(&self) -> u64 {
        if self.width() == 0 { 0 } else { self.slice().volume() / self.width() }
    }

    /// Bytes of a row where it is made.
    pub fn row_bytes(&self) -> u64 {
        self.width() * self.to.step_bytes()
    }

    /// The byte behind its last one.
    pub fn end(&self) -> u64 {
        self.at + self.rows() * self.row_bytes()
    }

    /// Its rows in bands of equal blocks: each band's rows have their elements in the same blocks.
    pub fn bands(&self, grids: &[Grid]) -> impl Iterator<Item = std::ops::Range<u64>> {
        let (rows, ndim) = (self.rows(), self.slice().ndim());
        let (first, count, block) = match self.how {
            How::Cast(_) => (0, rows, rows.max(1)),
            How::Codes { grid } => {
                let dim = ndim - 2;
                (self.slice().start[dim], self.slice().len[dim], grids[grid as usize].block[dim])
            }
        };
        let mut next = 0;
        std::iter::from_fn(move || {
            let start = next;
            // To the end of the block, or of the matrix.
            let row = start % count.max(1);
            let left = (block - (first + row) % block).min(count - row);
            next = start + left;
            (start < rows).then_some(start..next)
        })
    }

    /// Where a row of it lies.
    pub fn row(&self, row: u64, grids: &[Grid]) -> Row {
        let slice = self.slice();
        let outer = slice.ndim().saturating_sub(1);
        let grid = match self.how {
            How::Codes { grid } => Some(&grids[grid as usize]),
            How::Cast(_) => None,
        };
        let (mut left, mut source) = (row, self.source.offset);
        let (mut table, mut pitch) = (0, 1);
        if let Some(grid) = grid {
            table = grid.column(slice.start[outer]);
            pitch = grid.within.len[outer];
        }
        for d in (0..outer).rev() {
            let index = left % slice.len[d];
            left /= slice.len[d];
            source += index * self.source.strides[d];
            if let Some(grid) = grid {
                let block = (slice.start[d] + index) / grid.block[d] - grid.within.start[d];
                table += block * pitch;
                pitch *= grid.within.len[d];
            }
        }
        Row { source, table: grid.map_or(0, |grid| grid.first) + table as usize }
    }

    /// The entry of what is made.
    pub(super) fn entry(&self, tensor: u32) -> Entry {
        let slice = self.slice().clone();
        let mut strides = vec![self.to.step_bytes(); slice.ndim()];
        for d in (1..slice.ndim()).rev() {
            strides[d - 1] = strides[d] * slice.len[d];
        }
        Entry { tensor, slice, buffer: 0, offset: self.at, strides }
    }
}

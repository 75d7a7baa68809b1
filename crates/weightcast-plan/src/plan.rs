//! Plans: copies without addresses.

use crate::codec::Codec;
use crate::extent::{distance, in_bytes, packed, shape_in_bytes, strides_in_bytes};
use crate::fold::{Block, fold, join_all};
use crate::group::Cell;
use crate::layout::{Entry, Layout};
use crate::slice::Slice;
use crate::tensor::Tensor;

/// Rows of bytes to copy from one buffer of one source shard to one buffer of the target.
///
/// Row `i` of `rows`: `row_bytes` bytes from `source_offset + i * source_pitch` to
/// `target_offset + i * target_pitch`. They are the bytes of the cell's tensor that begin at
/// `position + i * position_pitch` of its global row-major order. A single row has its own length
/// as every pitch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Copy {
    /// Number of the source shard.
    pub source: u32,
    /// Number of its buffer.
    pub source_buffer: u32,
    /// Byte of that buffer where the first row begins.
    pub source_offset: u64,
    /// Bytes from row to row in the source.
    pub source_pitch: u64,
    /// Number of the target's buffer.
    pub target_buffer: u32,
    /// Byte of that buffer where the first row goes.
    pub target_offset: u64,
    /// Bytes from row to row in the target.
    pub target_pitch: u64,
    /// Bytes of one row; at least 1.
    pub row_bytes: u64,
    /// Number of rows; at least 1.
    pub rows: u64,
    /// Number of the target's cell that the bytes belong to.
    pub cell: u32,
    /// Byte of the whole tensor, in global row-major order, where the first row begins.
    pub position: u64,
    /// Bytes of the whole tensor from row to row.
    pub position_pitch: u64,
}

/// Rows of bytes of one cell in a shard's memory: what to digest in place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// Number of the buffer.
    pub buffer: u32,
    /// Byte of the buffer where the first row begins.
    pub offset: u64,
    /// Bytes from row to row.
    pub pitch: u64,
    /// Bytes of one row; at least 1.
    pub row_bytes: u64,
    /// Number of rows; at least 1.
    pub rows: u64,
    /// Number of the cell that the bytes belong to.
    pub cell: u32,
    /// Byte of the whole tensor, in global row-major order, where the first row begins.
    pub position: u64,
    /// Bytes of the whole tensor from row to row.
    pub position_pitch: u64,
}

/// How the cells of a target get their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// What to copy, ascending by target address. Together they write every byte of the target's
    /// entries exactly once; padding is not touched.
    pub copies: Vec<Copy>,
    /// What to digest once the copies are done, without copying: the cells of tied weights'
    /// further names, whose bytes arrive under their first name.
    pub echoes: Vec<Run>,
    /// How the bytes of all copies are coded on their way.
    pub codec: Codec,
}

impl Copy {
    /// Bytes it moves.
    pub fn bytes(&self) -> u64 {
        self.row_bytes * self.rows
    }

    /// The rows where they come from.
    pub(crate) fn taken(&self) -> Run {
        let (buffer, offset, pitch) = (self.source_buffer, self.source_offset, self.source_pitch);
        Run { buffer, offset, pitch, ..self.landed() }
    }

    /// The rows where they go to.
    pub fn landed(&self) -> Run {
        Run {
            buffer: self.target_buffer,
            offset: self.target_offset,
            pitch: self.target_pitch,
            row_bytes: self.row_bytes,
            rows: self.rows,
            cell: self.cell,
            position: self.position,
            position_pitch: self.position_pitch,
        }
    }
}

impl Run {
    /// Without the first `rows` rows, of which there are more.
    pub(crate) fn after(&self, rows: u64) -> Run {
        Run {
            offset: self.offset + rows * self.pitch,
            position: self.position + rows * self.position_pitch,
            rows: self.rows - rows,
            ..*self
        }
    }

    /// Bytes it covers.
    pub fn bytes(&self) -> u64 {
        self.row_bytes * self.rows
    }
}

impl Plan {
    /// Bytes it moves.
    pub fn bytes(&self) -> u64 {
        self.copies.iter().map(Copy::bytes).sum()
    }

    /// Bytes it takes from each of `sources` shards.
    pub fn bytes_by_source(&self, sources: usize) -> Vec<u64> {
        let mut bytes = vec![0; sources];
        for copy in &self.copies {
            bytes[copy.source as usize] += copy.bytes();
        }
        bytes
    }
}

/// Where the bytes of the cells lie in the layout's own memory: what a publisher digests.
///
/// `cells` are this layout's, as [`crate::cells`] made them.
pub fn runs(layout: &Layout, cells: &[Cell]) -> Vec<Run> {
    (0..cells.len()).flat_map(|cell| runs_of(layout, cells, cell)).collect()
}

/// The runs of one cell.
pub(crate) fn runs_of(layout: &Layout, cells: &[Cell], cell: usize) -> Vec<Run> {
    let Cell { entry: number, slice, .. } = &cells[cell];
    let entry = layout.entry(*number);
    let tensor = layout.tensor_of(*number);
    let part = in_bytes(tensor.dtype(), slice);
    let global = packed(&shape_in_bytes(tensor));
    let strides = strides_in_bytes(&entry);
    let offset = entry.offset + inside(tensor, &entry, &part, &strides);
    let position = distance(&vec![0; part.ndim()], &part.start, &global);
    let blocks = fold(&part.len, [&strides, &global]).blocks([offset, position]);
    let run = |block: &Block<2>| Run {
        buffer: entry.buffer,
        offset: block.offset[0],
        pitch: block.pitch[0],
        row_bytes: block.row_bytes,
        rows: block.rows,
        cell: cell as u32,
        position: block.offset[1],
        position_pitch: block.pitch[1],
    };
    join_all(blocks).iter().map(run).collect()
}

/// Bytes from the beginning of an entry to the beginning of a part of it.
pub(crate) fn inside(tensor: &Tensor, entry: &Entry, part: &Slice, strides: &[u64]) -> u64 {
    let slice = in_bytes(tensor.dtype(), &entry.slice);
    distance(&slice.start, &part.start, strides)
}

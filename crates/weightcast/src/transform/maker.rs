//! Makes the bytes of a representation when they are read.

use std::sync::{Arc, PoisonError, RwLock};

use weightcast_plan::DType;
use weightcast_plan::quantise::Scale;
use weightcast_plan::transform::{Grid, How, Row, TransformPiece, cast};
use weightcast_transport::limits::CHUNK_BYTES;
use weightcast_transport::quantise::Elements;
use weightcast_transport::{Compute, Region};

use crate::fp8::write_codes;

/// Makes codes and casts from the weights, which stay where they are.
pub(super) struct Maker {
    pub(super) pieces: Vec<TransformPiece>,
    pub(super) grids: Vec<Grid>,
    pub(super) sources: Vec<Region>,
    scales: RwLock<Arc<Vec<Scale>>>,
}

impl Maker {
    pub(super) fn new(pieces: Vec<TransformPiece>, grids: Vec<Grid>, sources: Vec<Region>) -> Self {
        Self { pieces, grids, sources, scales: RwLock::default() }
    }

    pub(super) fn set_scales(&self, scales: Vec<Scale>) {
        *self.scales.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(scales);
    }

    /// Calls `each` with elements `first` up to `first + count` of a row, in chunks: how many came
    /// before, and the chunk's bytes, as F32 unless kernels take them as they are.
    pub(super) fn elements(
        &self,
        piece: &TransformPiece,
        row: Row,
        first: u64,
        count: u64,
        mut each: impl FnMut(usize, Elements, &[u8]),
    ) {
        let size = piece.from.step_bytes();
        let region = &self.sources[piece.source.buffer as usize];
        let offset = (row.source + first * size) as usize;
        let (mut done, mut wide) = (0, Vec::new());
        let taken = region.chunks(offset, (count * size) as usize, |bytes| {
            let number = bytes.len() / size as usize;
            match piece.from {
                DType::BF16 => each(done, Elements::BF16, bytes),
                DType::F32 => each(done, Elements::F32, bytes),
                _ => {
                    wide.resize(4 * number, 0);
                    cast(piece.from, bytes, DType::F32, &mut wide).expect("pieces are of floats");
                    each(done, Elements::F32, &wide);
                }
            }
            done += number;
            Ok(())
        });
        taken.expect("a layout lies within its regions");
    }

    /// Makes part of one row, from its byte number `byte` on.
    fn fill_row(
        &self,
        piece: &TransformPiece,
        row: u64,
        byte: u64,
        made: &mut [u8],
        scales: &[Scale],
    ) {
        let place = piece.row(row, &self.grids);
        match piece.how {
            How::Cast(to) => self.fill_cast(piece, place, byte, to, made),
            How::Codes { grid } => {
                let grid = &self.grids[grid as usize];
                let start = *piece.slice().start.last().expect("a matrix");
                let width = *grid.block.last().expect("a matrix");
                let (column, first) = (start + byte, (start / width) as usize);
                self.elements(piece, place, byte, made.len() as u64, |done, elements, bytes| {
                    let count = bytes.len() / elements.bytes();
                    let codes = &mut made[done..done + count];
                    for (block, at, len) in blocks(column + done as u64, count, width) {
                        let bytes = &bytes[at * elements.bytes()..][..len * elements.bytes()];
                        // Without scales nothing is published yet: what is read then never counts.
                        if let Some(scale) = scales.get(place.table + block - first) {
                            write_codes(*scale, elements, bytes, &mut codes[at..at + len]);
                        }
                    }
                });
            }
        }
    }

    /// Makes part of one row of a cast, whose elements may begin before the range and end behind
    /// it.
    fn fill_cast(&self, piece: &TransformPiece, place: Row, byte: u64, to: DType, made: &mut [u8]) {
        let size = to.step_bytes();
        let (first, end) = (byte / size, (byte + made.len() as u64).div_ceil(size));
        let skip = (byte - first * size) as usize;
        let from_size = piece.from.step_bytes() as usize;
        let region = &self.sources[piece.source.buffer as usize];
        let offset = place.source as usize + first as usize * from_size;
        let mut buffer = [0; 2 * CHUNK_BYTES];
        // Bytes from the first element's start.
        let mut done = 0;
        let taken = region.chunks(offset, (end - first) as usize * from_size, |bytes| {
            let cast_bytes = &mut buffer[..bytes.len() / from_size * size as usize];
            cast(piece.from, bytes, to, cast_bytes).expect("pieces are of floats");
            let from = skip.saturating_sub(done);
            let until = (skip + made.len() - done).min(cast_bytes.len());
            let target = done + from - skip;
            made[target..target + until - from].copy_from_slice(&cast_bytes[from..until]);
            done += cast_bytes.len();
            Ok(())
        });
        taken.expect("a layout lies within its regions");
    }
}

impl Compute for Maker {
    fn fill(&self, offset: usize, mut bytes: &mut [u8]) {
        let scales = Arc::clone(&self.scales.read().unwrap_or_else(PoisonError::into_inner));
        let mut at = offset as u64;
        let mut number = self.pieces.partition_point(|piece| piece.end() <= at);
        while !bytes.is_empty() {
            let Some(piece) = self.pieces.get(number) else { return };
            let row = (at - piece.at) / piece.row_bytes();
            let byte = (at - piece.at) % piece.row_bytes();
            let len = (piece.row_bytes() - byte).min(bytes.len() as u64);
            let (here, rest) = bytes.split_at_mut(len as usize);
            self.fill_row(piece, row, byte, here, &scales);
            (bytes, at) = (rest, at + len);
            number += usize::from(at == piece.end());
        }
    }
}

/// Cuts `count` columns from `first` on where blocks of a width end: the number of each block, where
/// its columns begin, and how many they are.
pub(super) fn blocks(
    first: u64,
    count: usize,
    width: u64,
) -> impl Iterator<Item = (usize, usize, usize)> {
    let (mut block, mut at) = ((first / width) as usize, 0);
    let mut end = (width - first % width) as usize;
    std::iter::from_fn(move || {
        let cut = (block, at, end.min(count) - at);
        (block, at, end) = (block + 1, end.min(count), end.saturating_add(width as usize));
        (cut.2 > 0).then_some(cut)
    })
}

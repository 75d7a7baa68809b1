//! The largest magnitude of each block that a shard holds: one look at all weights.

use std::ops::Range;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::thread;

use weightcast_plan::transform::{How, TransformPiece};

use super::maker::{Maker, blocks};
use crate::fp8::largest;

/// A piece, and rows of it that have their elements in the same blocks.
type Band<'a> = (&'a TransformPiece, Range<u64>);

/// The largest magnitude of each block of the grids, found on `threads` threads.
pub(super) fn table(maker: &Maker, threads: usize) -> Vec<f32> {
    let len = maker.grids.last().map_or(0, |g| g.first + g.within.volume() as usize);
    // As integers, the bits of magnitudes have the order of the floats; NaN, if it counts, is the
    // largest.
    let table: Vec<AtomicU32> = (0..len).map(|_| AtomicU32::new(0)).collect();
    let quantised = |piece: &&TransformPiece| matches!(piece.how, How::Codes { .. });
    let bands: Vec<Band<'_>> = maker
        .pieces
        .iter()
        .filter(quantised)
        .flat_map(|piece| piece.bands(&maker.grids).map(move |rows| (piece, rows)))
        .collect();
    let next = AtomicUsize::new(0);
    let work = || {
        while let Some((piece, rows)) = bands.get(next.fetch_add(1, Ordering::Relaxed)) {
            look(maker, piece, rows.clone(), &table);
        }
    };
    thread::scope(|scope| {
        (1..threads.min(bands.len())).for_each(|_| drop(scope.spawn(work)));
        work();
    });
    table.into_iter().map(|bits| f32::from_bits(bits.into_inner())).collect()
}

fn look(maker: &Maker, piece: &TransformPiece, rows: Range<u64>, table: &[AtomicU32]) {
    let How::Codes { grid } = piece.how else { return };
    let grid = &maker.grids[grid as usize];
    let column = *piece.slice().start.last().expect("a matrix");
    let width = *grid.block.last().expect("a matrix");
    let first = (column / width) as usize;
    let mut seen = vec![0.0_f32; ((column + piece.width()).div_ceil(width) as usize) - first];
    let mut place = None;
    for row in rows {
        let at = piece.row(row, &maker.grids);
        place = Some(at.table);
        maker.elements(piece, at, 0, piece.width(), |done, elements, bytes| {
            let start = column + done as u64;
            for (block, at, len) in blocks(start, bytes.len() / elements.bytes(), width) {
                let bytes = &bytes[at * elements.bytes()..][..len * elements.bytes()];
                let amax = &mut seen[block - first];
                *amax = grid.formula.larger(*amax, largest(grid.formula, elements, bytes));
            }
        });
    }
    for (entry, amax) in table[place.unwrap_or(0)..].iter().zip(seen) {
        // All NaNs become the same: the exchange compares bits.
        let amax = if amax.is_nan() { f32::NAN } else { amax };
        entry.fetch_max(amax.to_bits(), Ordering::Relaxed);
    }
}

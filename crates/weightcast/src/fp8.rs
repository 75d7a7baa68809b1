//! FP8 quantisation of memory: vector kernels where there are any, the reference elsewhere.
//!
//! Two passes, because a scale needs all of its block: [`amaxes`] over what a rank holds, joined with
//! those of the ranks that share its blocks ([`Formula::larger`]); then [`codes`].

use std::ops::Range;

use weightcast_plan::quantise::{Blocks, Formula, QuantiseError, Scale};
use weightcast_transport::quantise::{self as kernel, Elements, Factor};

/// A part of a matrix as a rank holds it: packed rows of little-endian elements.
#[derive(Clone, Copy, Debug)]
pub struct MatrixPart<'a> {
    /// Type of the elements.
    pub elements: Elements,
    /// The bytes, row by row.
    pub data: &'a [u8],
    /// First row and column of the part in the matrix.
    pub first: (u64, u64),
    /// Rows and columns of the part.
    pub size: (u64, u64),
}

/// The largest magnitude of each block of the matrix, over the part; 0 for a block of which the
/// part has nothing.
pub fn amaxes(
    blocks: Blocks,
    formula: Formula,
    part: &MatrixPart<'_>,
    threads: usize,
) -> Result<Vec<f32>, QuantiseError> {
    part.check(blocks)?;
    let (rows, columns) = blocks.grid();
    let mut grid = vec![0.0f32; (rows * columns) as usize];
    let bands = part.bands(blocks, threads);
    let found = in_threads(bands, |band| {
        let mut grid = vec![
            0.0f32;
            ((band.end - band.start).div_ceil(blocks.block.0) + 1) as usize
                * columns as usize
        ];
        let first = band.start / blocks.block.0;
        for row in band.clone() {
            let at = ((row / blocks.block.0 - first) * columns) as usize;
            for (column, bytes) in part.runs(blocks, row) {
                let amax = &mut grid[at + column];
                *amax = formula.larger(*amax, largest(formula, part.elements, bytes));
            }
        }
        (first, grid)
    });
    for (first, band) in found {
        let rest = &mut grid[(first * columns) as usize..];
        for (amax, seen) in rest.iter_mut().zip(band) {
            *amax = formula.larger(*amax, seen);
        }
    }
    Ok(grid)
}

/// The scales of a grid of largest magnitudes, as they are stored: `weight_scale_inv`.
pub fn scales(formula: Formula, amaxes: &[f32]) -> Vec<f32> {
    amaxes.iter().map(|&amax| formula.scale(amax).stored).collect()
}

/// Writes the code of each element of the part, by the largest magnitudes of all blocks.
pub fn codes(
    blocks: Blocks,
    formula: Formula,
    amaxes: &[f32],
    part: &MatrixPart<'_>,
    codes: &mut [u8],
    threads: usize,
) -> Result<(), QuantiseError> {
    part.check(blocks)?;
    let (rows, columns) = blocks.grid();
    let wanted = (rows * columns) as usize;
    if amaxes.len() != wanted {
        return Err(QuantiseError::Grid { found: amaxes.len(), wanted });
    }
    let elements = part.size.0 * part.size.1;
    if codes.len() as u64 != elements {
        return Err(QuantiseError::Values { found: codes.len(), wanted: elements });
    }
    let scales: Vec<Scale> = amaxes.iter().map(|&amax| formula.scale(amax)).collect();
    let mut left = codes;
    let mut work = Vec::new();
    for band in part.bands(blocks, threads) {
        let len = (band.end - band.start) * part.size.1;
        let (here, rest) = left.split_at_mut(len as usize);
        left = rest;
        work.push((band, here));
    }
    in_threads(work, |(band, codes)| {
        let mut left = codes;
        for row in band {
            let at = (row / blocks.block.0 * columns) as usize;
            for (column, bytes) in part.runs(blocks, row) {
                let count = bytes.len() / part.elements.bytes();
                let (here, rest) = left.split_at_mut(count);
                left = rest;
                write_codes(scales[at + column], part.elements, bytes, here);
            }
        }
    });
    Ok(())
}

impl<'a> MatrixPart<'a> {
    fn check(&self, blocks: Blocks) -> Result<(), QuantiseError> {
        blocks.check(self.first, self.size)?;
        let wanted = self.size.0.saturating_mul(self.size.1);
        let found = self.data.len() / self.elements.bytes();
        let whole = self.data.len().is_multiple_of(self.elements.bytes());
        if whole && found as u64 == wanted {
            return Ok(());
        }
        Err(QuantiseError::Values { found, wanted })
    }

    /// The rows of the part in bands for so many threads, each of whole blocks.
    fn bands(&self, blocks: Blocks, threads: usize) -> Vec<Range<u64>> {
        let (first, end) = (self.first.0, self.first.0 + self.size.0);
        let size = blocks.block.0;
        let (from, to) = (first / size, end.div_ceil(size));
        let threads = (threads.max(1) as u64).min((to - from).max(1));
        let cut = |n: u64| ((from + (to - from) * n / threads) * size).clamp(first, end);
        (0..threads).map(|n| cut(n)..cut(n + 1)).filter(|band| !band.is_empty()).collect()
    }

    /// A row, cut where blocks end: the column of each block and the bytes in it.
    fn runs(&self, blocks: Blocks, row: u64) -> impl Iterator<Item = (usize, &'a [u8])> + use<'a> {
        let bytes = self.elements.bytes();
        let width = self.size.1 as usize * bytes;
        let at = (row - self.first.0) as usize * width;
        let data = &self.data[at..at + width];
        let (first, end, size) = (self.first.1, self.first.1 + self.size.1, blocks.block.1);
        let columns = if first < end { first / size..end.div_ceil(size) } else { 0..0 };
        columns.map(move |column| {
            let from = (column * size).max(first) - first;
            let to = ((column + 1) * size).min(end) - first;
            (column as usize, &data[from as usize * bytes..to as usize * bytes])
        })
    }
}

pub(crate) fn largest(formula: Formula, elements: Elements, bytes: &[u8]) -> f32 {
    let slow =
        || values(elements, bytes).fold(0.0, |most, value| formula.larger(most, value.abs()));
    kernel::amax(elements, bytes).unwrap_or_else(slow)
}

pub(crate) fn write_codes(scale: Scale, elements: Elements, bytes: &[u8], codes: &mut [u8]) {
    let factor = match scale.divides {
        true => Factor::Over(scale.factor),
        false => Factor::Times(scale.factor),
    };
    if !kernel::codes(elements, bytes, factor, codes) {
        for (code, value) in codes.iter_mut().zip(values(elements, bytes)) {
            *code = scale.code(value);
        }
    }
}

fn values(elements: Elements, bytes: &[u8]) -> impl Iterator<Item = f32> + '_ {
    bytes.chunks_exact(elements.bytes()).map(|bytes| match *bytes {
        [a, b] => f32::from_bits(u32::from(u16::from_le_bytes([a, b])) << 16),
        [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
        _ => 0.0,
    })
}

/// Does the work on as many threads as there are pieces of it.
fn in_threads<W: Send, R: Send>(work: Vec<W>, each: impl Fn(W) -> R + Sync) -> Vec<R> {
    if work.len() < 2 {
        return work.into_iter().map(each).collect();
    }
    let each = &each;
    std::thread::scope(|scope| {
        let threads: Vec<_> = work.into_iter().map(|w| scope.spawn(move || each(w))).collect();
        threads.into_iter().map(|t| t.join().expect("a kernel does not panic")).collect()
    })
}

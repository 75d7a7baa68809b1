//! How memory is cut into units of progress, and copies at their borders.

use crate::limits::{MAX_UNIT_BYTES, MIN_UNIT_BYTES, PIECE_BYTES, UNITS};
use std::ops::Range;

/// How memory is cut into units of progress: the same at both ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Units {
    pub(crate) bytes: u64,
    /// Where each region starts in the whole, and the end.
    starts: Vec<u64>,
}

impl Units {
    /// Of regions of these lengths, in bytes.
    pub fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let mut end = 0_u64;
        let mut starts = vec![0];
        for length in lengths {
            end = end.saturating_add(length);
            starts.push(end);
        }
        Self { bytes: (end / UNITS).clamp(MIN_UNIT_BYTES, MAX_UNIT_BYTES), starts }
    }

    pub(crate) fn count(&self) -> usize {
        let total = self.starts.last().expect("never empty");
        total.div_ceil(self.bytes) as usize
    }

    /// Bytes of a piece that fills about one unit: a power of two, so that digests keep their
    /// blocks whole.
    pub(crate) fn piece(&self) -> usize {
        (1 << self.bytes.ilog2()).min(PIECE_BYTES)
    }

    /// The units that a range of a region touches.
    pub(crate) fn touched(&self, region: u32, offset: u64, len: u64) -> Range<usize> {
        let start = self.starts[region as usize] + offset;
        match len {
            0 => 0..0,
            _ => (start / self.bytes) as usize..((start + len - 1) / self.bytes) as usize + 1,
        }
    }

    /// A range of a region cut at the borders of units: unit, offset in the region, length.
    ///
    /// # Panics
    /// If there is no such region.
    pub fn cut(
        &self,
        region: u32,
        offset: u64,
        len: u64,
    ) -> impl Iterator<Item = (usize, u64, u64)> + use<> {
        let base = self.starts[region as usize];
        let (mut at, end, bytes) = (base + offset, base + offset + len, self.bytes);
        std::iter::from_fn(move || {
            let unit = at / bytes;
            let part = ((unit + 1) * bytes).min(end).checked_sub(at).filter(|part| *part > 0)?;
            at += part;
            Some((unit as usize, at - part - base, part))
        })
    }

    /// Rows cut at the borders of units. What `kind` says the same of is joined again: the next bytes
    /// of a row, or the same bytes of the next row. What it says nothing of is left out. It is asked
    /// of each cut: its unit and its length.
    pub fn parts<K: PartialEq>(
        &self,
        rows: Rows,
        mut kind: impl FnMut(usize, u64) -> Option<K>,
    ) -> Vec<(K, Part)> {
        let mut parts = Vec::new();
        let count = if rows.row_bytes == 0 { 0 } else { rows.rows };
        for row in 0..count {
            let start = rows.offset + row * rows.pitch;
            for (unit, at, len) in self.cut(rows.region, start, rows.row_bytes) {
                if let Some(kind) = kind(unit, len) {
                    join(&mut parts, kind, Part { row, rows: 1, from: at - start, len });
                }
            }
        }
        parts
    }
}

/// Rows of bytes in a region.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    /// The region.
    pub region: u32,
    /// First byte of the first row.
    pub offset: u64,
    /// Bytes from one row to the next.
    pub pitch: u64,
    /// Bytes of each row.
    pub row_bytes: u64,
    /// How many there are.
    pub rows: u64,
}

/// The same bytes of one row or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The first row.
    pub row: u64,
    /// How many rows.
    pub rows: u64,
    /// The first byte in each.
    pub from: u64,
    /// Bytes of each.
    pub len: u64,
}

impl Part {
    /// Where it begins if the rows begin at this offset and lie at this pitch.
    pub fn at(&self, offset: u64, pitch: u64) -> u64 {
        offset + self.row * pitch + self.from
    }
}

/// Adds a part to those before it, or to the last of them.
fn join<K: PartialEq>(parts: &mut Vec<(K, Part)>, kind: K, part: Part) {
    if let Some((last_kind, last)) = parts.last_mut()
        && *last_kind == kind
    {
        if (part.row, part.from, part.len) == (last.row + last.rows, last.from, last.len) {
            last.rows += 1;
            return;
        }
        if last.rows == 1 && (part.row, part.from) == (last.row, last.from + last.len) {
            last.len += part.len;
            return;
        }
    }
    parts.push((kind, part));
}

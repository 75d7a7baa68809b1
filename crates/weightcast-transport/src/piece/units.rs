//! How memory is cut into units of progress, and copies at their borders.

use crate::base::limits::{MAX_UNIT_BYTES, MIN_UNIT_BYTES, PIECE_BYTES, UNITS};
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
        kind: impl FnMut(usize, u64) -> Option<K>,
    ) -> Vec<(K, RowRange)> {
        let mut parts = Vec::new();
        self.parts_into(&mut parts, rows, kind);
        parts
    }

    /// [`Units::parts`] into an empty list: whoever cuts many rows uses one list for all.
    pub(crate) fn parts_into<K: PartialEq>(
        &self,
        parts: &mut Vec<(K, RowRange)>,
        rows: Rows,
        mut kind: impl FnMut(usize, u64) -> Option<K>,
    ) {
        let count = if rows.row_bytes == 0 { 0 } else { rows.rows };
        for row in 0..count {
            let start = rows.offset + row * rows.pitch;
            for (unit, at, len) in self.cut(rows.region, start, rows.row_bytes) {
                if let Some(kind) = kind(unit, len) {
                    join(parts, kind, RowRange { row, rows: 1, from: at - start, len });
                }
            }
        }
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
pub struct RowRange {
    /// The first row.
    pub row: u64,
    /// How many rows.
    pub rows: u64,
    /// The first byte in each.
    pub from: u64,
    /// Bytes of each.
    pub len: u64,
}

impl RowRange {
    /// Where it begins if the rows begin at this offset and lie at this pitch.
    pub fn at(&self, offset: u64, pitch: u64) -> u64 {
        offset + self.row * pitch + self.from
    }
}

/// Adds a part to those before it, or to the last of them.
fn join<K: PartialEq>(parts: &mut Vec<(K, RowRange)>, kind: K, part: RowRange) {
    if let Some((last_kind, last)) = parts.last_mut()
        && *last_kind == kind
    {
        if (part.row, part.from, part.len) == (last.row + last.rows, last.from, last.len) {
            last.rows += 1;
            return;
        }
        if (part.row, part.from) == (last.row, last.from + last.len) {
            last.len += part.len;
            return;
        }
    }
    parts.push((kind, part));
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regions of 5, 0, 7 and 1 bytes in units of four.
    const LENGTHS: [u64; 4] = [5, 0, 7, 1];

    fn small() -> Units {
        Units { bytes: 4, ..Units::new(LENGTHS.into_iter()) }
    }

    /// Every range of every region: region, offset, length, and where it begins in the whole.
    fn ranges() -> impl Iterator<Item = (u32, u64, u64, u64)> {
        let starts = [0, 5, 5, 12];
        (0..4_usize).flat_map(move |region| {
            (0..=LENGTHS[region]).flat_map(move |offset| {
                (0..=LENGTHS[region] - offset)
                    .map(move |len| (region as u32, offset, len, starts[region] + offset))
            })
        })
    }

    #[test]
    fn a_unit_is_a_256th_of_the_whole_within_bounds() {
        let of = |lengths: &[u64]| {
            let units = Units::new(lengths.iter().copied());
            (units.bytes, units.count(), units.piece())
        };
        let (least, most) = (MIN_UNIT_BYTES, MAX_UNIT_BYTES);
        let piece = |bytes: u64| bytes as usize;
        assert_eq!(of(&[]), (least, 0, piece(least)));
        assert_eq!(of(&[1]), (least, 1, piece(least)));
        assert_eq!(of(&[least, least]), (least, 2, piece(least)));
        assert_eq!(of(&[least, least + 1]), (least, 3, piece(least)));
        assert_eq!(of(&[UNITS * least - 1]), (least, 256, piece(least)));
        assert_eq!(of(&[UNITS * (least + 1)]), (least + 1, 256, piece(least)));
        assert_eq!(of(&[UNITS * 2 * least - 1]), (2 * least - 1, 257, piece(least)));
        assert_eq!(of(&[UNITS * least, UNITS * least]), (2 * least, 256, piece(2 * least)));
        assert_eq!(of(&[UNITS * 16 * least]), (16 * least, 256, PIECE_BYTES));
        assert_eq!(of(&[UNITS * most]), (most, 256, PIECE_BYTES));
        assert_eq!(of(&[UNITS * most + 1]), (most, 257, PIECE_BYTES));
        assert_eq!(of(&[UNITS * (most + 1)]).0, most);
    }

    #[test]
    fn cuts_lie_in_one_unit_each_and_leave_nothing_out() {
        for (region, offset, len, start) in ranges() {
            let units = small();
            let cuts: Vec<_> = units.cut(region, offset, len).collect();
            // By bytes: each with its unit, and where it lies in the region.
            let bytes: Vec<_> = (0..len).map(|i| ((start + i) / 4, offset + i)).collect();
            let cut: Vec<_> = cuts
                .iter()
                .flat_map(|(unit, at, len)| (0..*len).map(move |i| (*unit as u64, at + i)))
                .collect();
            assert_eq!(cut, bytes, "{len} at {offset} of {region}");
            assert!(cuts.windows(2).all(|pair| pair[0].0 + 1 == pair[1].0), "one cut a unit");
            let touched: Vec<_> = units.touched(region, offset, len).map(|u| u as u64).collect();
            let mut expected: Vec<_> = bytes.iter().map(|(unit, _)| *unit).collect();
            expected.dedup();
            assert_eq!(touched, expected, "{len} at {offset} of {region}");
        }
    }

    #[test]
    fn parts_are_all_bytes_that_are_wanted_in_order() {
        let units = Units { bytes: 4, ..Units::new([3, 60].into_iter()) };
        for (offset, pitch, row_bytes, rows) in (0..6).flat_map(|offset| {
            (1..11).flat_map(move |pitch| {
                (0..=pitch).flat_map(move |len| (0..5).map(move |rows| (offset, pitch, len, rows)))
            })
        }) {
            for wanted in [0xffff_u32, 0, 0b0110_1011_0101_1010, 0b1001_0100_1010_0101] {
                let of = Rows { region: 1, offset, pitch, row_bytes, rows };
                let mut asked = Vec::new();
                let parts = units.parts(of, |unit, len| {
                    asked.push((unit, len));
                    (wanted >> unit & 1 == 1).then_some(unit.is_multiple_of(3))
                });
                let mut expected = Vec::new();
                let mut runs = Vec::new();
                for row in 0..rows {
                    for from in 0..row_bytes {
                        let unit = ((3 + offset + row * pitch + from) / 4) as usize;
                        match runs.last_mut() {
                            Some((last, len, of)) if (*last, *of) == (unit, row) => *len += 1,
                            _ => runs.push((unit, 1, row)),
                        }
                        if wanted >> unit & 1 == 1 {
                            expected.push((unit.is_multiple_of(3), row, from));
                        }
                    }
                }
                let found: Vec<_> = parts
                    .iter()
                    .flat_map(|(kind, part)| {
                        (part.row..part.row + part.rows).flat_map(move |row| {
                            (part.from..part.from + part.len).map(move |from| (*kind, row, from))
                        })
                    })
                    .collect();
                let case = format!("{of:?}, {wanted:b}");
                assert_eq!(found, expected, "{case}");
                assert!(parts.iter().all(|(_, part)| part.rows > 0 && part.len > 0), "{case}");
                let runs: Vec<_> = runs.into_iter().map(|(unit, len, _)| (unit, len)).collect();
                assert_eq!(asked, runs, "{case}");
            }
        }
    }

    #[test]
    fn parts_that_go_on_are_joined() {
        let units = Units { bytes: 4, ..Units::new([100].into_iter()) };
        let part = |row, rows, from, len| RowRange { row, rows, from, len };
        let of =
            |offset, pitch, row_bytes, rows| Rows { region: 0, offset, pitch, row_bytes, rows };
        let all = |rows| units.parts(rows, |_, _| Some(()));
        let plain = |parts: &[RowRange]| parts.iter().map(|part| ((), *part)).collect::<Vec<_>>();
        assert_eq!(all(of(1, 50, 9, 1)), plain(&[part(0, 1, 0, 9)]), "bytes of a row");
        assert_eq!(all(of(1, 8, 2, 4)), plain(&[part(0, 4, 0, 2)]), "the same of each row");
        let rows = [0, 1, 2].map(|row| part(row, 1, 0, 8));
        assert_eq!(all(of(0, 8, 8, 3)), plain(&rows), "a row that was joined stays one");
        let even = |rows| units.parts(rows, |unit, _| (unit % 2 == 0).then_some(()));
        assert_eq!(even(of(0, 8, 8, 3)), plain(&[part(0, 3, 0, 4)]));
        let ends = [(0, 0), (0, 6), (1, 0), (1, 6)].map(|(row, from)| part(row, 1, from, 2));
        assert_eq!(even(of(2, 8, 8, 2)), plain(&ends), "other bytes of the next row");
        let kinds = units.parts(of(0, 4, 4, 5), |unit, _| Some(unit / 2));
        assert_eq!(kinds, [(0, part(0, 2, 0, 4)), (1, part(2, 2, 0, 4)), (2, part(4, 1, 0, 4))]);
        assert_eq!(part(3, 9, 5, 9).at(100, 20), 165);
    }

    #[test]
    fn rows_without_bytes_are_not_even_counted() {
        let rows = Rows { region: 0, offset: 0, pitch: 0, row_bytes: 0, rows: u64::MAX };
        assert_eq!(small().parts(rows, |_, _| Some(())), []);
    }
}

//! The unit of a plan: a strided copy from a source's region to one of ours.

use crate::base::error::{Bound, TransportError};
use crate::memory::region::Region;
use crate::piece::units::{RowRange, Rows};

/// A copy of `rows` runs of `row_bytes` bytes, and where its digest goes.
///
/// Rows must not overlap at the target. With no rows or no bytes it copies nothing and only its
/// offsets are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StridedCopy {
    /// Index of the region in the source's export.
    pub source_region: u32,
    /// First byte in the source's region.
    pub source_offset: u64,
    /// Bytes from one run to the next at the source.
    pub source_pitch: u64,
    /// Index into the targets.
    pub target_region: u32,
    /// First byte in the target region.
    pub target_offset: u64,
    /// Bytes from one run to the next at the target.
    pub target_pitch: u64,
    /// Bytes of each run.
    pub row_bytes: u64,
    /// Number of runs.
    pub rows: u64,
    /// The accumulator that the digest of these bytes is added to.
    pub slot: u32,
    /// Position of the first byte in its logical tensor.
    pub position: u64,
    /// Positions from one run to the next.
    pub position_pitch: u64,
}

impl StridedCopy {
    /// Where its runs go.
    pub(crate) fn rows_at_target(&self) -> Rows {
        Rows {
            region: self.target_region,
            offset: self.target_offset,
            pitch: self.target_pitch,
            row_bytes: self.row_bytes,
            rows: self.rows,
        }
    }

    /// A part of it.
    pub(crate) fn part(&self, part: RowRange) -> Self {
        Self {
            source_offset: part.at(self.source_offset, self.source_pitch),
            target_offset: part.at(self.target_offset, self.target_pitch),
            position: part.at(self.position, self.position_pitch),
            row_bytes: part.len,
            rows: part.rows,
            ..*self
        }
    }

    /// One run of `bytes` bytes into slot 0, whose position is its offset at the target.
    pub fn contiguous(
        source_region: u32,
        source_offset: u64,
        target_region: u32,
        target_offset: u64,
        bytes: u64,
    ) -> Self {
        Self {
            source_region,
            source_offset,
            source_pitch: bytes,
            target_region,
            target_offset,
            target_pitch: bytes,
            row_bytes: bytes,
            rows: 1,
            slot: 0,
            position: target_offset,
            position_pitch: bytes,
        }
    }

    /// Bytes that it moves. Only of use once checked.
    pub fn bytes(&self) -> u64 {
        self.row_bytes.wrapping_mul(self.rows)
    }

    /// Checks the copy of a read against both sides, before any byte moves.
    ///
    /// # Errors
    /// [`TransportError::OutOfBounds`], naming the copy by `index`; [`TransportError::ReadOnlyTarget`].
    pub(crate) fn check(
        &self,
        index: usize,
        source: impl Fn(u32) -> Option<u64>,
        targets: &[Region],
        slots: usize,
    ) -> Result<(), TransportError> {
        let target = |region: u32| targets.get(region as usize).map(|r| r.len() as u64);
        self.check_bounds(index, source, target, slots)?;
        let to = self.target_region as usize;
        if !targets[to].is_writable() {
            return Err(TransportError::ReadOnlyTarget { region: to });
        }
        Ok(())
    }

    /// Checks the copy against the bytes of regions on both sides.
    ///
    /// # Errors
    /// [`TransportError::OutOfBounds`], naming the copy by `index`.
    pub(crate) fn check_bounds(
        &self,
        index: usize,
        source: impl Fn(u32) -> Option<u64>,
        target: impl Fn(u32) -> Option<u64>,
        slots: usize,
    ) -> Result<(), TransportError> {
        let out = |what| TransportError::OutOfBounds { copy: index, what };
        let fits = |offset, pitch, len: Option<u64>| {
            let end = end(offset, self.row_bytes, self.rows, pitch);
            end.zip(len).is_some_and(|(end, len)| end <= len)
        };
        let [from, to] = [self.source_region, self.target_region];
        if !fits(self.source_offset, self.source_pitch, source(from)) {
            return Err(out(Bound::SourceRegion(from)));
        }
        // Rows on top of each other would write bytes twice, and without end.
        let overlapping = self.rows > 1 && self.target_pitch < self.row_bytes;
        if overlapping || !fits(self.target_offset, self.target_pitch, target(to)) {
            return Err(out(Bound::TargetRegion(to)));
        }
        let last = end(self.position, self.row_bytes, self.rows, self.position_pitch);
        if last.is_none() || self.slot as usize >= slots {
            return Err(out(Bound::Digest));
        }
        Ok(())
    }

    /// The same copy with as few rows as possible: dense on all sides, it is a single run.
    pub(crate) fn flattened(mut self) -> Self {
        let dense = [self.source_pitch, self.target_pitch, self.position_pitch]
            .iter()
            .all(|pitch| *pitch == self.row_bytes);
        if dense && self.rows > 1 {
            self.row_bytes *= self.rows;
            self.rows = 1;
        }
        self
    }
}

/// One past the last byte of strided runs, or `None` beyond 64 bits. Never less than `offset`.
pub(crate) fn end(offset: u64, row_bytes: u64, rows: u64, pitch: u64) -> Option<u64> {
    if rows == 0 || row_bytes == 0 {
        return Some(offset);
    }
    pitch.checked_mul(rows - 1)?.checked_add(offset)?.checked_add(row_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy() -> StridedCopy {
        StridedCopy {
            source_region: 0,
            source_offset: 0,
            source_pitch: 16,
            target_region: 0,
            target_offset: 0,
            target_pitch: 8,
            row_bytes: 8,
            rows: 4,
            slot: 0,
            position: 0,
            position_pitch: 16,
        }
    }

    fn check(copy: StridedCopy) -> Result<(), TransportError> {
        let targets = [Region::allocate(32).unwrap(), Region::allocate(32).unwrap().read_only()];
        copy.check(5, |region| (region == 0).then_some(56), &targets, 1)
    }

    #[test]
    fn every_side_is_checked() {
        let out = |what| Err(TransportError::OutOfBounds { copy: 5, what });
        let (source, target) = (out(Bound::SourceRegion(0)), out(Bound::TargetRegion(0)));
        assert_eq!(check(copy()), Ok(()));
        assert_eq!(check(StridedCopy { source_offset: 1, ..copy() }), source);
        assert_eq!(check(StridedCopy { source_pitch: u64::MAX, ..copy() }), source);
        assert_eq!(check(StridedCopy { source_region: 1, ..copy() }), out(Bound::SourceRegion(1)));
        assert_eq!(check(StridedCopy { target_pitch: 9, ..copy() }), target);
        assert_eq!(check(StridedCopy { target_pitch: 7, ..copy() }), target);
        assert_eq!(check(StridedCopy { target_region: 9, ..copy() }), out(Bound::TargetRegion(9)));
        assert_eq!(check(StridedCopy { position: u64::MAX, ..copy() }), out(Bound::Digest));
        assert_eq!(check(StridedCopy { slot: 1, ..copy() }), out(Bound::Digest));
        let fixed = Err(TransportError::ReadOnlyTarget { region: 1 });
        assert_eq!(check(StridedCopy { target_region: 1, ..copy() }), fixed);
    }

    #[test]
    fn empty_copies_may_lie_at_the_end_but_not_beyond() {
        let empty = StridedCopy { rows: 0, source_offset: 56, target_offset: 32, ..copy() };
        assert_eq!(check(empty), Ok(()));
        assert!(check(StridedCopy { source_offset: 57, ..empty }).is_err());
        assert!(check(StridedCopy { row_bytes: 0, rows: 9, target_offset: 33, ..empty }).is_err());
    }

    #[test]
    fn only_dense_copies_flatten() {
        assert_eq!(copy().flattened(), copy());
        let dense = StridedCopy { source_pitch: 8, position_pitch: 8, ..copy() };
        let flat = dense.flattened();
        assert_eq!((flat.row_bytes, flat.rows), (32, 1));
        // Gaps on one side are enough: in memory, or between the rows' places in the tensor.
        let source = StridedCopy { source_pitch: 9, ..dense };
        let target = StridedCopy { target_pitch: 9, ..dense };
        let position = StridedCopy { position_pitch: 9, ..dense };
        for gaps in [source, target, position] {
            assert_eq!(gaps.flattened(), gaps);
        }
    }

    #[test]
    fn an_end_is_one_past_the_last_byte() {
        const MAX: u64 = u64::MAX;
        for (offset, row_bytes, rows, pitch) in (0..4).flat_map(|offset| {
            (0..4).flat_map(move |len| {
                (0..4).flat_map(move |rows| (0..6).map(move |pitch| (offset, len, rows, pitch)))
            })
        }) {
            let last = (0..rows).map(|row| offset + row * pitch + row_bytes).max();
            let expected = last.filter(|_| row_bytes > 0).unwrap_or(offset);
            let case = format!("{offset} {row_bytes} {rows} {pitch}");
            assert_eq!(end(offset, row_bytes, rows, pitch), Some(expected), "{case}");
        }
        assert_eq!(end(MAX, 0, 9, 9), Some(MAX));
        assert_eq!(end(MAX - 3, 3, 1, MAX), Some(MAX));
        assert_eq!(end(MAX - 2, 3, 1, 0), None);
        assert_eq!(end(0, 1, 2, MAX), None);
        assert_eq!(end(0, 1, 2, MAX - 1), Some(MAX));
        assert_eq!(end(1, 1, 2, MAX - 1), None);
        assert_eq!(end(0, 1, 3, 1 << 63), None);
    }

    /// Each number of its own, so that none can stand for another.
    #[test]
    fn a_part_is_the_same_bytes_on_every_side() {
        let whole = StridedCopy {
            source_region: 2,
            source_offset: 1_000,
            source_pitch: 100,
            target_region: 3,
            target_offset: 20_000,
            target_pitch: 200,
            row_bytes: 70,
            rows: 9,
            slot: 4,
            position: 300_000,
            position_pitch: 300,
        };
        let part = RowRange { row: 5, rows: 3, from: 11, len: 17 };
        let expected = StridedCopy {
            source_offset: 1_511,
            target_offset: 21_011,
            position: 301_511,
            row_bytes: 17,
            rows: 3,
            ..whole
        };
        assert_eq!(whole.part(part), expected);
        assert_eq!((whole.bytes(), expected.bytes()), (630, 51));
        let Rows { region, offset, pitch, row_bytes, rows } = whole.rows_at_target();
        assert_eq!((region, offset, pitch, row_bytes, rows), (3, 20_000, 200, 70, 9));
        let run = StridedCopy::contiguous(1, 2, 3, 4, 5);
        let expected = StridedCopy {
            source_region: 1,
            source_offset: 2,
            source_pitch: 5,
            target_region: 3,
            target_offset: 4,
            target_pitch: 5,
            row_bytes: 5,
            rows: 1,
            slot: 0,
            position: 4,
            position_pitch: 5,
        };
        assert_eq!(run, expected);
        let dense = StridedCopy { rows: 7, ..run };
        assert_eq!(dense.flattened(), StridedCopy { row_bytes: 35, rows: 1, ..dense });
        let none = StridedCopy { rows: 0, ..run };
        assert_eq!((run.flattened(), none.flattened()), (run, none));
    }

    /// The last byte of each side may be used, and none behind it.
    #[test]
    fn every_side_is_used_to_its_last_byte() {
        let fits = |copy: StridedCopy| check(copy).is_ok();
        // 56 bytes there, 32 here, three rows of eight.
        let rows = StridedCopy { rows: 3, source_pitch: 16, target_pitch: 8, ..copy() };
        assert!(fits(StridedCopy { source_offset: 16, target_offset: 8, ..rows }));
        assert!(!fits(StridedCopy { source_offset: 17, target_offset: 8, ..rows }));
        assert!(!fits(StridedCopy { source_offset: 16, target_offset: 9, ..rows }));
        let one = StridedCopy { rows: 1, target_pitch: 0, source_pitch: 0, ..copy() };
        assert!(
            fits(StridedCopy { source_offset: 48, target_offset: 24, ..one }),
            "a pitch of nothing"
        );
        assert!(fits(StridedCopy { rows: 2, target_pitch: 8, ..one }), "the same bytes twice");
        assert!(!fits(StridedCopy { rows: 2, target_pitch: 7, ..one }));
        let last = StridedCopy { position: u64::MAX - 8, position_pitch: 0, ..one };
        assert!(fits(last) && !fits(StridedCopy { position: u64::MAX - 7, ..last }));
    }
}

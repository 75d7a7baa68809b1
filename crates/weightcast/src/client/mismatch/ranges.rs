//! Ranges of a tensor's bytes: cut into smaller ones, asked for, and seen as boxes of its elements.

use std::ops::Range;

use weightcast_plan::{Copy, Run, Slice, Tensor};
use weightcast_transport::limits::{MAX_DIGEST_ROWS, MAX_EXTENTS};
use weightcast_transport::{Extent, PlacedExtent};

/// Bytes of one question to a source: a fraction of a second of its time.
pub(crate) const ASKED_BYTES: u64 = 256 << 20;

/// The same bytes in pieces of at most `limit` bytes each, and of as many rows as a source takes
/// in one question: whole rows, or parts of one.
pub(crate) fn split(copy: &Copy, limit: u64) -> impl Iterator<Item = Copy> + use<> {
    let copy = *copy;
    let width = copy.row_bytes.min(limit);
    let rows = (limit / copy.row_bytes).clamp(1, MAX_DIGEST_ROWS);
    (0..copy.rows).step_by(rows as usize).flat_map(move |row| {
        (0..copy.row_bytes).step_by(width as usize).map(move |byte| Copy {
            source_offset: copy.source_offset + row * copy.source_pitch + byte,
            target_offset: copy.target_offset + row * copy.target_pitch + byte,
            position: copy.position + row * copy.position_pitch + byte,
            row_bytes: width.min(copy.row_bytes - byte),
            rows: rows.min(copy.rows - row),
            ..copy
        })
    })
}

/// The smallest box that holds a range: its rows along the first dimension, whole in all others.
pub(crate) fn slice_of(tensor: &Tensor, range: &Copy) -> Slice {
    let mut slice = Slice::full(tensor.shape());
    let Some(&rows) = tensor.shape().first() else { return slice };
    // In bits: a row may be half a byte.
    let row = (u128::from(tensor.nbytes()) * 8 / u128::from(rows)).max(1);
    let end = range.position + (range.rows - 1) * range.position_pitch + range.row_bytes;
    let first = u128::from(range.position) * 8 / row;
    let last = (u128::from(end) * 8).div_ceil(row);
    slice.start[0] = first as u64;
    slice.len[0] = (last - first) as u64;
    slice
}

/// Cuts a list into questions that a source answers in a moment; `size` is a range's bytes and rows.
pub(crate) fn batches<T>(ranges: &[T], size: impl Fn(&T) -> (u64, u64)) -> Vec<Range<usize>> {
    let (mut batches, mut start, mut asked) = (Vec::new(), 0, (0, 0));
    for (at, range) in ranges.iter().enumerate() {
        let (bytes, rows) = size(range);
        let beyond = asked.0 + bytes > ASKED_BYTES || asked.1 + rows > MAX_DIGEST_ROWS;
        if at - start == MAX_EXTENTS || (at > start && beyond) {
            batches.push(start..at);
            (start, asked) = (at, (0, 0));
        }
        asked = (asked.0 + bytes, asked.1 + rows);
    }
    if start < ranges.len() {
        batches.push(start..ranges.len());
    }
    batches
}

/// What a copy reads, as an extent of the source.
pub(crate) fn at_the_source(copy: &Copy) -> PlacedExtent {
    let extent = Extent {
        region: copy.source_buffer,
        offset: copy.source_offset,
        row_bytes: copy.row_bytes,
        rows: copy.rows,
        pitch: copy.source_pitch,
    };
    PlacedExtent { extent, position: copy.position, position_pitch: copy.position_pitch }
}

/// A run, as an extent of its own memory.
pub(crate) fn placed(run: &Run) -> PlacedExtent {
    at_the_source(&as_copy(run))
}

/// What a copy writes, as a run of the target.
pub(crate) fn at_the_target(copy: &Copy) -> Run {
    Run {
        buffer: copy.target_buffer,
        offset: copy.target_offset,
        pitch: copy.target_pitch,
        row_bytes: copy.row_bytes,
        rows: copy.rows,
        cell: copy.cell,
        position: copy.position,
        position_pitch: copy.position_pitch,
    }
}

/// A run as a copy onto itself, so that it can be split like one.
pub(crate) fn as_copy(run: &Run) -> Copy {
    Copy {
        source: 0,
        source_buffer: run.buffer,
        source_offset: run.offset,
        source_pitch: run.pitch,
        target_buffer: run.buffer,
        target_offset: run.offset,
        target_pitch: run.pitch,
        row_bytes: run.row_bytes,
        rows: run.rows,
        cell: run.cell,
        position: run.position,
        position_pitch: run.position_pitch,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weightcast_plan::DType;

    fn copy(rows: u64, row_bytes: u64, pitch: u64) -> Copy {
        Copy {
            source: 0,
            source_buffer: 0,
            source_offset: 5,
            source_pitch: pitch,
            target_buffer: 0,
            target_offset: 7,
            target_pitch: row_bytes,
            row_bytes,
            rows,
            cell: 0,
            position: 64,
            position_pitch: pitch,
        }
    }

    /// Source offset, target offset and position of every byte, in order.
    fn bytes(copy: &Copy) -> Vec<[u64; 3]> {
        let place = |row: u64, byte: u64| {
            [
                copy.source_offset + row * copy.source_pitch + byte,
                copy.target_offset + row * copy.target_pitch + byte,
                copy.position + row * copy.position_pitch + byte,
            ]
        };
        (0..copy.rows).flat_map(|r| (0..copy.row_bytes).map(move |b| place(r, b))).collect()
    }

    #[test]
    fn pieces_are_the_whole_and_none_is_too_large() {
        for (rows, row_bytes, limit) in [(1, 100, 7), (9, 4, 10), (9, 10, 4), (3, 8, 1000)] {
            let whole = copy(rows, row_bytes, 32);
            let pieces: Vec<Copy> = split(&whole, limit).collect();
            assert!(pieces.iter().all(|piece| piece.bytes() <= limit));
            assert_eq!(pieces.iter().flat_map(bytes).collect::<Vec<_>>(), bytes(&whole));
        }
    }

    #[test]
    fn thin_rows_are_asked_for_in_several_questions() {
        let whole = copy(3 * MAX_DIGEST_ROWS + 5, 1, 32);
        let pieces: Vec<Copy> = split(&whole, u64::MAX).collect();
        assert_eq!(pieces.iter().map(|piece| piece.rows).sum::<u64>(), whole.rows);
        let batches = batches(&pieces, |piece| (piece.bytes(), piece.rows));
        assert_eq!(batches, [0..1, 1..2, 2..3, 3..4]);
        let halves = vec![copy(MAX_DIGEST_ROWS / 2, 1, 32); 5];
        let size = |piece: &Copy| (piece.bytes(), piece.rows);
        assert_eq!(super::batches(&halves, size), [0..2, 2..4, 4..5]);
    }

    #[test]
    fn rows_are_named() {
        let slice = |dtype, shape: &[u64], rows, row_bytes| {
            slice_of(&Tensor::new("w", dtype, shape).unwrap(), &copy(rows, row_bytes, 32))
        };
        // Positions 64 to 68 and 96 to 100, of rows of 32 bytes.
        assert_eq!(slice(DType::F32, &[9, 8], 2, 4), Slice::new([2, 0], [2, 8]));
        assert_eq!(slice(DType::F32, &[9, 8], 1, 33), Slice::new([2, 0], [2, 8]));
        assert_eq!(slice(DType::F32, &[99], 1, 8), Slice::new([16], [2]));
        assert_eq!(slice(DType::F4, &[400], 1, 1), Slice::new([128], [2]));
        assert_eq!(slice(DType::F64, &[], 1, 8), Slice::full(&[]));
    }

    /// Checks that ranges are asked in as few questions as possible: each question goes on until
    /// the next range would be too much.
    #[track_caller]
    fn fewest(sizes: &[(u64, u64)]) {
        let batches = batches(sizes, |size| *size);
        let sum = |of: &[(u64, u64)]| of.iter().fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
        let fits = |of: &[(u64, u64)]| {
            let (bytes, rows) = sum(of);
            of.len() <= MAX_EXTENTS && bytes <= ASKED_BYTES && rows <= MAX_DIGEST_ROWS
        };
        let mut next = 0;
        for batch in batches {
            assert!(batch.start == next && batch.end > batch.start, "{batch:?} after {next}");
            next = batch.end;
            assert!(batch.len() == 1 || fits(&sizes[batch.clone()]), "{batch:?} is too much");
            let one_more = sizes.get(batch.start..=batch.end);
            assert!(one_more.is_none_or(|more| !fits(more)), "{batch:?} has room for another");
        }
        assert_eq!(next, sizes.len());
    }

    #[test]
    fn a_question_has_as_many_ranges_as_fit() {
        let bytes = |of: &[u64]| of.iter().map(|bytes| (*bytes, 1)).collect::<Vec<_>>();
        let rows = |of: &[u64]| of.iter().map(|rows| (1, *rows)).collect::<Vec<_>>();
        for by in 0..3 {
            fewest(&bytes(&[1, ASKED_BYTES - 2 + by, 1, 1]));
            fewest(&bytes(&[ASKED_BYTES + by, ASKED_BYTES - by, by]));
            fewest(&rows(&[1, MAX_DIGEST_ROWS - 2 + by, 1, 1]));
            fewest(&rows(&[MAX_DIGEST_ROWS + by, MAX_DIGEST_ROWS - by, by]));
            fewest(&vec![(1, 1); MAX_EXTENTS - 1 + by as usize]);
        }
        fewest(&[]);
        let mut drawn = 7_u64;
        let mut draw = |below: u64| {
            drawn = drawn.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (drawn >> 33) % below
        };
        for _ in 0..200 {
            let most = (ASKED_BYTES >> draw(4), MAX_DIGEST_ROWS >> draw(4));
            let ranges = 1 + draw(60);
            fewest(&(0..ranges).map(|_| (draw(most.0), draw(most.1))).collect::<Vec<_>>());
        }
    }

    #[test]
    fn pieces_are_as_large_as_they_may_be() {
        let pieces = |rows, row_bytes, limit| -> Vec<(u64, u64)> {
            let whole = copy(rows, row_bytes, row_bytes);
            split(&whole, limit).map(|piece| (piece.rows, piece.row_bytes)).collect()
        };
        assert_eq!(pieces(5, 4, 7), [(1, 4); 5]);
        assert_eq!(pieces(5, 4, 8), [(2, 4), (2, 4), (1, 4)]);
        assert_eq!(pieces(2, 9, 8), [(1, 8), (1, 1), (1, 8), (1, 1)]);
        assert_eq!(pieces(1, 8, 8), [(1, 8)]);
        for (rows, expected) in [
            (MAX_DIGEST_ROWS - 1, vec![(MAX_DIGEST_ROWS - 1, 1)]),
            (MAX_DIGEST_ROWS, vec![(MAX_DIGEST_ROWS, 1)]),
            (MAX_DIGEST_ROWS + 1, vec![(MAX_DIGEST_ROWS, 1), (1, 1)]),
        ] {
            assert_eq!(pieces(rows, 1, u64::MAX), expected);
        }
    }

    #[test]
    fn a_range_is_named_by_the_rows_that_it_touches_and_no_others() {
        for (dtype, shape) in [
            (DType::U8, vec![7, 3]),
            (DType::F32, vec![5, 2, 2]),
            (DType::F4, vec![6, 2]),
            (DType::F4, vec![14]),
            (DType::BF16, vec![11]),
        ] {
            let tensor = Tensor::new("w", dtype, shape.as_slice()).unwrap();
            let row_bits = tensor.nbytes() * 8 / shape[0];
            for position in 0..tensor.nbytes() {
                for row_bytes in 1..=tensor.nbytes() - position {
                    let range = Copy { position, row_bytes, rows: 1, ..copy(1, 1, 0) };
                    let (first, end) = (position * 8, (position + row_bytes) * 8);
                    let touched = |row: &u64| row * row_bits < end && (row + 1) * row_bits > first;
                    let rows: Vec<u64> = (0..shape[0]).filter(touched).collect();
                    let slice = slice_of(&tensor, &range);
                    let said: Vec<u64> = (slice.start[0]..slice.end(0)).collect();
                    assert_eq!(said, rows, "{dtype:?} {shape:?} at {position}: {row_bytes}");
                    assert_eq!(
                        (&slice.start[1..], &slice.len[1..]),
                        (&vec![0; shape.len() - 1][..], &shape[1..])
                    );
                }
            }
        }
    }

    #[test]
    fn what_is_read_and_what_is_written_are_told_apart() {
        let copy = Copy {
            source: 1,
            source_buffer: 2,
            source_offset: 3,
            source_pitch: 4,
            target_buffer: 5,
            target_offset: 6,
            target_pitch: 7,
            row_bytes: 8,
            rows: 9,
            cell: 10,
            position: 11,
            position_pitch: 12,
        };
        let extent = Extent { region: 2, offset: 3, row_bytes: 8, rows: 9, pitch: 4 };
        assert_eq!(at_the_source(&copy), PlacedExtent { extent, position: 11, position_pitch: 12 });
        let run = at_the_target(&copy);
        let written = Run {
            buffer: 5,
            offset: 6,
            pitch: 7,
            row_bytes: 8,
            rows: 9,
            cell: 10,
            position: 11,
            position_pitch: 12,
        };
        assert_eq!(run, written);
        let extent = Extent { region: 5, offset: 6, row_bytes: 8, rows: 9, pitch: 7 };
        assert_eq!(placed(&run), PlacedExtent { extent, position: 11, position_pitch: 12 });
        assert_eq!(at_the_target(&as_copy(&run)), run);
    }
}

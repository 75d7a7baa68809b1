//! Copies and echoes as numbers, each with what it is likely to be.

use crate::plan::{Copy, Run};

/// A copy or an echo as the `K` numbers that are stored of it.
pub(super) trait AsNumbers<const K: usize>: Sized {
    /// What it is called in errors.
    const WHAT: &'static str;

    /// Its numbers, in the order in which they are stored.
    fn numbers(&self) -> [u64; K];

    /// What has these numbers; `None` if one has more bits than its field.
    fn of(numbers: &[u64; K]) -> Option<Self>;

    /// What number `at` is likely to be, by those before it in `now` and by the record before. Of
    /// any numbers: it wraps round.
    fn forecast(at: usize, now: &[u64; K], last: &[u64; K]) -> u64;
}

/// One past the last byte of rows.
fn end(offset: u64, pitch: u64, rows: u64, row_bytes: u64) -> u64 {
    let last = rows.wrapping_sub(1).wrapping_mul(pitch);
    offset.wrapping_add(last).wrapping_add(row_bytes)
}

impl AsNumbers<12> for Copy {
    const WHAT: &'static str = "copy";

    fn numbers(&self) -> [u64; 12] {
        [
            self.cell.into(),
            self.target_buffer.into(),
            self.target_offset,
            self.row_bytes,
            self.rows,
            self.source.into(),
            self.source_buffer.into(),
            self.source_offset,
            self.position,
            self.target_pitch,
            self.position_pitch,
            self.source_pitch,
        ]
    }

    fn of(numbers: &[u64; 12]) -> Option<Self> {
        let [cell, target_buffer, target_offset, row_bytes, rows, source, source_buffer, ..] =
            *numbers;
        let [.., source_offset, position, target_pitch, position_pitch, source_pitch] = *numbers;
        Some(Copy {
            source: source.try_into().ok()?,
            source_buffer: source_buffer.try_into().ok()?,
            source_offset,
            source_pitch,
            target_buffer: target_buffer.try_into().ok()?,
            target_offset,
            target_pitch,
            row_bytes,
            rows,
            cell: cell.try_into().ok()?,
            position,
            position_pitch,
        })
    }

    fn forecast(at: usize, now: &[u64; 12], last: &[u64; 12]) -> u64 {
        const CELL: usize = 0;
        const TARGET_BUFFER: usize = 1;
        const TARGET_OFFSET: usize = 2;
        const ROW_BYTES: usize = 3;
        const ROWS: usize = 4;
        const SOURCE: usize = 5;
        const SOURCE_BUFFER: usize = 6;
        const SOURCE_OFFSET: usize = 7;
        const POSITION: usize = 8;
        const TARGET_PITCH: usize = 9;
        const POSITION_PITCH: usize = 10;
        const SOURCE_PITCH: usize = 11;
        let same = |fields: &[usize]| fields.iter().all(|&field| now[field] == last[field]);
        let end = |offset: usize, pitch: usize| {
            end(last[offset], last[pitch], last[ROWS], last[ROW_BYTES])
        };
        match at {
            TARGET_OFFSET if same(&[TARGET_BUFFER]) => end(TARGET_OFFSET, TARGET_PITCH),
            TARGET_OFFSET => 0,
            // The parts of a cell come from one source after the other, which are mostly alike.
            SOURCE if same(&[CELL]) => last[SOURCE].wrapping_add(1),
            SOURCE_OFFSET if same(&[SOURCE, SOURCE_BUFFER]) => end(SOURCE_OFFSET, SOURCE_PITCH),
            SOURCE_OFFSET if same(&[CELL]) => last[SOURCE_OFFSET],
            SOURCE_OFFSET => 0,
            POSITION if same(&[CELL]) => end(POSITION, POSITION_PITCH),
            POSITION => 0,
            TARGET_PITCH => now[ROW_BYTES],
            POSITION_PITCH | SOURCE_PITCH if now[ROWS] == 1 => now[ROW_BYTES],
            SOURCE_PITCH => now[POSITION_PITCH],
            _ => last[at],
        }
    }
}

impl AsNumbers<8> for Run {
    const WHAT: &'static str = "echo";

    fn numbers(&self) -> [u64; 8] {
        [
            self.cell.into(),
            self.buffer.into(),
            self.offset,
            self.row_bytes,
            self.rows,
            self.position,
            self.pitch,
            self.position_pitch,
        ]
    }

    fn of(numbers: &[u64; 8]) -> Option<Self> {
        let [cell, buffer, offset, row_bytes, rows, position, pitch, position_pitch] = *numbers;
        Some(Run {
            buffer: buffer.try_into().ok()?,
            offset,
            pitch,
            row_bytes,
            rows,
            cell: cell.try_into().ok()?,
            position,
            position_pitch,
        })
    }

    fn forecast(at: usize, now: &[u64; 8], last: &[u64; 8]) -> u64 {
        const CELL: usize = 0;
        const BUFFER: usize = 1;
        const OFFSET: usize = 2;
        const ROW_BYTES: usize = 3;
        const ROWS: usize = 4;
        const POSITION: usize = 5;
        const PITCH: usize = 6;
        const POSITION_PITCH: usize = 7;
        let end = |offset: usize, pitch: usize| {
            end(last[offset], last[pitch], last[ROWS], last[ROW_BYTES])
        };
        match at {
            CELL => last[CELL].wrapping_add(1),
            OFFSET if now[BUFFER] == last[BUFFER] => end(OFFSET, PITCH),
            OFFSET => 0,
            POSITION if now[CELL] == last[CELL] => end(POSITION, POSITION_PITCH),
            POSITION => 0,
            PITCH => now[ROW_BYTES],
            POSITION_PITCH if now[ROWS] == 1 => now[ROW_BYTES],
            _ => last[at],
        }
    }
}

//! Digests for readers, a slice at a time: between two slices it is looked whether anybody still
//! wants them, and others have their turn.

use crate::base::limits::{DIGESTING, ROW_COST, SLICE_COST, TICK};
use crate::base::lock::lock;
use crate::export::served::Export;
use crate::memory::digest::Digest;
use crate::piece::extent::PlacedExtent;
use std::sync::{Condvar, Mutex, PoisonError};

/// How many threads of a port digest at once: the process has other things to do.
pub(crate) struct DigestTurns {
    free: Mutex<usize>,
    freed: Condvar,
}

impl DigestTurns {
    pub(crate) fn new() -> Self {
        Self { free: Mutex::new(DIGESTING), freed: Condvar::new() }
    }

    /// Waits for a turn, as long as it is wanted.
    fn take(&self, wanted: &impl Fn() -> bool) -> Option<DigestTurn<'_>> {
        let mut free = lock(&self.free);
        while *free == 0 {
            free = self.freed.wait_timeout(free, TICK).unwrap_or_else(PoisonError::into_inner).0;
            if *free == 0 && !wanted() {
                return None;
            }
        }
        *free -= 1;
        Some(DigestTurn(self))
    }
}

struct DigestTurn<'a>(&'a DigestTurns);

impl Drop for DigestTurn<'_> {
    fn drop(&mut self) {
        *lock(&self.0.free) += 1;
        self.0.freed.notify_one();
    }
}

/// The digests of checked extents; `None` once they are not wanted any more.
pub(crate) fn digests(
    export: &Export,
    extents: &[PlacedExtent],
    turns: &DigestTurns,
    wanted: impl Fn() -> bool,
) -> Option<Vec<Digest>> {
    let mut slices = DigestSlices { turns, wanted, turn: None, left: 0 };
    extents.iter().map(|placed| slices.digest(export, placed)).collect()
}

struct DigestSlices<'a, W> {
    turns: &'a DigestTurns,
    wanted: W,
    turn: Option<DigestTurn<'a>>,
    /// What is left of the slice.
    left: u64,
}

impl<W: Fn() -> bool> DigestSlices<'_, W> {
    fn digest(&mut self, export: &Export, placed: &PlacedExtent) -> Option<Digest> {
        let region = &export.regions()[placed.extent.region as usize];
        let mut sum = Digest::ZERO;
        for (row, offset) in (0_u64..).zip(placed.extent.runs()) {
            let position = placed.position + row * placed.position_pitch;
            for from in (0..placed.extent.row_bytes).step_by(SLICE_COST as usize) {
                let len = SLICE_COST.min(placed.extent.row_bytes - from);
                self.spend(len + ROW_COST)?;
                let digest = region.digest((offset + from) as usize, len as usize, position + from);
                sum += digest.expect("checked");
            }
        }
        Some(sum)
    }

    /// Takes so much of the slice, or begins another. `None` if that is not wanted.
    fn spend(&mut self, cost: u64) -> Option<()> {
        if self.left < cost {
            self.turn = None;
            if !(self.wanted)() {
                return None;
            }
            self.turn = Some(self.turns.take(&self.wanted)?);
            self.left = SLICE_COST + ROW_COST;
        }
        self.left -= cost;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::id::ExportId;
    use crate::export::table::ExportTable;
    use crate::memory::region::Region;
    use crate::piece::extent::Extent;
    use std::cell::Cell;

    fn placed(row_bytes: u64, rows: u64) -> PlacedExtent {
        let extent = Extent { region: 0, offset: 0, row_bytes, rows, pitch: 0 };
        PlacedExtent { extent, position: 0, position_pitch: 0 }
    }

    fn looks(placed: PlacedExtent, until: u64) -> (u64, bool) {
        let table = ExportTable::new();
        let region = Region::allocate(4 * SLICE_COST as usize).unwrap();
        let export: ExportId = table.expose(1, vec![region]);
        let (export, looks) = (table.get(export).unwrap(), Cell::new(0));
        let wanted = || {
            looks.set(looks.get() + 1);
            looks.get() <= until
        };
        let digests = digests(&export, &[placed], &DigestTurns::new(), wanted);
        (looks.get(), digests.is_some())
    }

    #[test]
    fn nobody_digests_for_long_without_a_look() {
        assert_eq!(looks(placed(4 * SLICE_COST, 1), u64::MAX), (4, true));
        let rows = 8 * SLICE_COST / ROW_COST;
        let (count, done) = looks(placed(1, rows), u64::MAX);
        assert!(done && (8..=10).contains(&count), "{count} looks");
        assert_eq!(looks(placed(0, u64::MAX), u64::MAX), (0, true));
    }

    #[test]
    fn what_is_not_wanted_any_more_ends() {
        assert_eq!(looks(placed(4 * SLICE_COST, 1 << 30), 2), (3, false));
        assert_eq!(looks(placed(1, 1 << 30), 0), (1, false));
    }

    /// Two that hold one and wait for another would wait for each other.
    #[test]
    fn nobody_has_a_turn_while_the_next_one_is_waited_for() {
        let table = ExportTable::new();
        let id = table.expose(1, vec![Region::allocate(4 * SLICE_COST as usize).unwrap()]);
        let (export, turns) = (table.get(id).unwrap(), DigestTurns::new());
        let free = Cell::new(Vec::new());
        let wanted = || {
            let mut seen = free.take();
            seen.push(*lock(&turns.free));
            free.set(seen);
            true
        };
        assert!(digests(&export, &[placed(4 * SLICE_COST, 1)], &turns, wanted).is_some());
        assert_eq!(free.take(), [DIGESTING; 4]);
    }

    #[test]
    fn a_turn_comes_back_and_nobody_waits_for_one_in_vain() {
        let turns = DigestTurns::new();
        let held: Vec<_> = (0..DIGESTING).map(|_| turns.take(&|| true).unwrap()).collect();
        assert!(turns.take(&|| false).is_none());
        drop(held);
        assert!(turns.take(&|| false).is_some());
    }

    #[test]
    fn a_slice_is_so_much_and_no_more() {
        let count = |row_bytes, rows| looks(placed(row_bytes, rows), u64::MAX).0;
        assert_eq!([0, 1, SLICE_COST].map(|bytes| count(bytes, 1)), [0, 1, 1]);
        assert_eq!(
            [SLICE_COST + 1, 2 * SLICE_COST, 2 * SLICE_COST + 1].map(|b| count(b, 1)),
            [2, 2, 3]
        );
        // Rows that fill it to the last, and such as want one more than it is.
        let (cost, most) = (5 * ROW_COST, SLICE_COST + ROW_COST);
        assert_eq!((most % cost, (most + 1) % 3), (0, 0));
        assert_eq!([0, 1].map(|more| count(cost - ROW_COST, most / cost + more)), [1, 2]);
        assert_eq!([2, 3].map(|rows| count((most + 1) / 3 - ROW_COST, rows)), [1, 2]);
        // As many rows as there is cost for.
        let rows = (SLICE_COST + ROW_COST) / (ROW_COST + 7);
        assert_eq!(
            [rows, rows + 1, 2 * rows, 2 * rows + 1].map(|rows| count(7, rows)),
            [1, 2, 2, 3]
        );
    }

    /// Several extents, rows over the end of a slice, gaps of either kind: each byte at its position.
    #[test]
    fn digests_are_those_of_the_bytes() {
        let len = 2 * SLICE_COST as usize + 5_000;
        let bytes: Vec<u8> = (0..len).map(|i| (i * 7 + i / 251) as u8).collect();
        let table = ExportTable::new();
        let regions = [&bytes[..], &bytes[9..2_000]].map(|part| Region::from_bytes(part).unwrap());
        let export = table.get(table.expose(1, regions.to_vec())).unwrap();
        let placed = |region, offset, row_bytes, rows, pitch, position, position_pitch| {
            let extent = Extent { region, offset, row_bytes, rows, pitch };
            PlacedExtent { extent, position, position_pitch }
        };
        let all = [
            placed(0, 3, 2 * SLICE_COST + 77, 2, 1_001, 5, 3 << 30),
            placed(1, 1, 10, 7, 30, 1 << 40, 13),
            placed(0, 100, 0, 9, 1, 7, 7),
            placed(0, 0, 4_096, 3, 4_096, 8_192, 4_096),
            placed(1, 0, 1_991, 1, 0, 1, 0),
        ];
        let turns = DigestTurns::new();
        let found = digests(&export, &all, &turns, || true).unwrap();
        let memory = [&bytes[..], &bytes[9..2_000]];
        for (placed, found) in all.iter().zip(&found) {
            let PlacedExtent { extent: e, position, position_pitch } = placed;
            let row = |row: u64| {
                let at = (e.offset + row * e.pitch) as usize;
                let bytes = &memory[e.region as usize][at..at + e.row_bytes as usize];
                crate::digest_at(position + row * position_pitch, bytes)
            };
            assert_eq!(*found, (0..e.rows).map(row).sum(), "{placed:?}");
        }
        assert_eq!(found.len(), all.len());
        assert_eq!(*lock(&turns.free), DIGESTING, "every turn has come back");
    }
}

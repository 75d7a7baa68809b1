//! Copies rows of pieces into their targets, and keeps what they digest to.

use super::task::LaneTask;
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::pieces::RunOffsets;

/// One run of a piece.
#[derive(Clone, Copy)]
pub(super) struct PieceRow {
    pub(super) copy: StridedCopy,
    pub(super) run: RunOffsets,
    pub(super) len: usize,
}

/// Copies rows of one piece after another.
#[derive(Default)]
pub(super) struct RowCopier {
    /// Of the last piece, by slot.
    digests: Vec<(u32, Digest)>,
}

impl RowCopier {
    /// A new piece begins.
    pub(super) fn begin(&mut self) {
        self.digests.clear();
    }

    /// Copies a row that lies at `from` of a region into its target, and digests it on the way if that is wanted. `next` is
    /// where the caller will copy from afterwards, if anywhere: its memory is asked for. [`Region::order_copies`] has to
    /// follow before another thread hears of the row.
    pub(super) fn copy(
        &mut self,
        task: &LaneTask<'_>,
        row: &PieceRow,
        source: &Region,
        from: usize,
        next: *const u8,
    ) {
        let PieceRow { copy, run, len } = *row;
        let target = &task.targets[copy.target_region as usize];
        let to = run.target as usize;
        let copied = match task.digests {
            true => target.copy_digested(to, source, from, len, run.position, next),
            false => target.copy_from(to, source, from, len).map(|()| Digest::ZERO),
        };
        let digest = copied.expect("checked");
        match self.digests.last_mut() {
            Some((slot, sum)) if *slot == copy.slot => *sum += digest,
            _ => self.digests.push((copy.slot, digest)),
        }
    }

    /// Adds the digests of the piece that came last to those of their slots.
    pub(super) fn add_to(&mut self, digests: &mut [Digest]) {
        self.digests.drain(..).for_each(|(slot, digest)| digests[slot as usize] += digest);
    }
}

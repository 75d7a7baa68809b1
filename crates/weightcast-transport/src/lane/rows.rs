//! Copies or digests rows of pieces at their targets, and keeps what they digest to.

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

impl PieceRow {
    /// The row in parts of at most so many bytes.
    pub(super) fn parts(self, most: usize) -> impl Iterator<Item = Self> {
        (0..self.len).step_by(most).map(move |done| {
            let RunOffsets { source, target, position } = self.run;
            let [source, target, position] = [source, target, position].map(|at| at + done as u64);
            let run = RunOffsets { source, target, position };
            Self { run, len: (self.len - done).min(most), ..self }
        })
    }
}

/// Brings in rows of one piece after another.
#[derive(Default)]
pub(super) struct ArrivingRows {
    /// Of the last piece, by slot.
    digests: Vec<(u32, Digest)>,
}

impl ArrivingRows {
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
        self.note(copy.slot, copied.expect("checked"));
    }

    /// Digests a row that lies in its target, if that is wanted: while it is still in the cache.
    pub(super) fn digest(&mut self, task: &LaneTask<'_>, row: &PieceRow) {
        if task.digests {
            let PieceRow { copy, run, len } = *row;
            let target = &task.targets[copy.target_region as usize];
            let digest = target.digest(run.target as usize, len, run.position);
            self.note(copy.slot, digest.expect("checked"));
        }
    }

    fn note(&mut self, slot: u32, digest: Digest) {
        match self.digests.last_mut() {
            Some((last, sum)) if *last == slot => *sum += digest,
            _ => self.digests.push((slot, digest)),
        }
    }

    /// Adds the digests of the piece that came last to those of their slots.
    pub(super) fn add_to(&mut self, digests: &mut [Digest]) {
        self.digests.drain(..).for_each(|(slot, digest)| digests[slot as usize] += digest);
    }
}

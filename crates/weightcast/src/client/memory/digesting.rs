//! Digests of registered memory, cell by cell, and what is told of them: sums for the server, a note for readers.
//!
//! Digests add up, so large memory is cut into pieces that several threads digest.

use std::slice;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weightcast_plan::Run;
use weightcast_protocol::{ShardSums, Sum};
use weightcast_transport::Digest;

use super::registration::RegisteredShard;
use crate::manifest;

/// About how many bytes a thread digests at once.
const PIECE: u64 = 4 << 20;

impl RegisteredShard {
    /// Digests the memory as it is now, cell by cell.
    pub(crate) fn digest_all(&self) -> Vec<Digest> {
        let mut digests = vec![Digest::default(); self.cells.len()];
        self.digest(&self.runs, &mut digests);
        digests
    }

    /// As [`RegisteredShard::digest_all`], on `threads` threads.
    pub(crate) fn digest_all_on(&self, threads: usize) -> Vec<Digest> {
        by_pieces(&self.runs, self.cells.len(), threads, |piece, digests| {
            self.digest(slice::from_ref(piece), digests);
            true
        })
    }

    /// Digests runs of this memory on `threads` threads: as many digests as there are `slots`, of
    /// which each run names one as its cell. Ends early, with anything, once it is not wanted.
    pub(crate) fn digest_runs_on(
        &self,
        runs: &[Run],
        slots: usize,
        threads: usize,
        wanted: impl Fn() -> bool + Sync,
    ) -> Vec<Digest> {
        by_pieces(runs, slots, threads, |piece, digests| {
            let goes_on = wanted();
            if goes_on {
                self.digest(slice::from_ref(piece), digests);
            }
            goes_on
        })
    }

    /// Adds the digests of these runs to those of their cells.
    pub(crate) fn digest(&self, runs: &[Run], digests: &mut [Digest]) {
        for run in runs {
            let region = &self.regions[run.buffer as usize];
            for row in 0..run.rows {
                let offset = (run.offset + row * run.pitch) as usize;
                let position = run.position + row * run.position_pitch;
                let digest = region.digest(offset, run.row_bytes as usize, position);
                digests[run.cell as usize] += digest.expect("a layout lies within its regions");
            }
        }
    }

    /// Folds one digest per cell into the three sums that the server compares.
    pub(crate) fn fold(&self, digests: &[Digest]) -> ShardSums {
        let mut sums = ShardSums::default();
        for ((cell, key), digest) in self.cells.iter().zip(&self.keys).zip(digests) {
            let folded = digest.mul(*key);
            sums.held = sums.held + Sum(folded.0);
            if cell.counted {
                sums.counted = sums.counted + Sum(folded.0);
                sums.expected = sums.expected + Sum(folded.scale(u64::from(cell.copies)).0);
            }
        }
        sums
    }

    /// The shard's note: the digest of each entry, added up from its cells, and the digests of the
    /// cells. The note stays with the shard, and tells in which tensor its memory changed or
    /// differs from another shard's.
    pub(crate) fn note(&self, digests: &[Digest]) -> Vec<u8> {
        let mut parts = vec![Digest::default(); self.layout.entries().len()];
        for (cell, digest) in self.cells.iter().zip(digests) {
            parts[cell.entry as usize] += *digest;
        }
        manifest::encode_parts(&parts, digests)
    }

    /// The digest of each entry all of whose cells have a known one.
    pub(crate) fn entry_digests(&self, cells: &[Option<Digest>]) -> Vec<Option<Digest>> {
        let mut parts = vec![Some(Digest::default()); self.layout.entries().len()];
        for (cell, digest) in self.cells.iter().zip(cells) {
            let part = &mut parts[cell.entry as usize];
            *part = part.zip(*digest).map(|(part, digest)| part + digest);
        }
        parts
    }
}

/// Has threads take pieces of runs, until none is left or `digest` says no, and adds up what they made.
fn by_pieces(
    runs: &[Run],
    slots: usize,
    threads: usize,
    digest: impl Fn(&Run, &mut [Digest]) -> bool + Sync,
) -> Vec<Digest> {
    let pieces: Vec<Run> = runs.iter().flat_map(|run| pieces(*run, PIECE)).collect();
    let next = AtomicUsize::new(0);
    let work = || {
        let mut digests = vec![Digest::default(); slots];
        while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
            if !digest(piece, &mut digests) {
                break;
            }
        }
        digests
    };
    thread::scope(|scope| {
        let others: Vec<_> = (1..threads).map(|_| scope.spawn(work)).collect();
        let mut digests = work();
        for other in others {
            let part = other.join().expect("digests do not panic");
            digests.iter_mut().zip(part).for_each(|(all, part)| *all += part);
        }
        digests
    })
}

/// Cuts a run into pieces of at most `limit` bytes: a few rows each, or a part of one row.
fn pieces(run: Run, limit: u64) -> impl Iterator<Item = Run> {
    let width = run.row_bytes.min(limit);
    let height = (limit / run.row_bytes).max(1);
    (0..run.rows).step_by(height as usize).flat_map(move |row| {
        (0..run.row_bytes).step_by(width as usize).map(move |byte| Run {
            offset: run.offset + row * run.pitch + byte,
            position: run.position + row * run.position_pitch + byte,
            row_bytes: width.min(run.row_bytes - byte),
            rows: height.min(run.rows - row),
            ..run
        })
    })
}

#[cfg(test)]
pub(super) mod tests;

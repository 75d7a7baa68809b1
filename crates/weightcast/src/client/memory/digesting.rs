//! Digests of large memory on several threads: runs are cut, their parts add up to the same.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use weightcast_plan::Run;
use weightcast_transport::Digest;

use super::registration::RegisteredShard;

/// Bytes that a thread takes at once, about.
const PIECE: u64 = 4 << 20;

impl RegisteredShard {
    /// As [`RegisteredShard::digest_all`], on so many threads.
    pub(crate) fn digest_all_on(&self, threads: usize) -> Vec<Digest> {
        let pieces: Vec<Run> = self.runs().iter().flat_map(|run| pieces(*run, PIECE)).collect();
        let next = AtomicUsize::new(0);
        let work = || {
            let mut digests = vec![Digest::default(); self.cells.len()];
            while let Some(piece) = pieces.get(next.fetch_add(1, Ordering::Relaxed)) {
                self.digest(std::slice::from_ref(piece), &mut digests);
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
}

/// A run in parts of a few rows, or of a part of one row, of at most `limit` bytes.
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
mod tests {
    use super::*;

    fn covered(run: Run) -> Vec<(u64, u64)> {
        let row =
            |row: u64| (run.offset + row * run.pitch, run.position + row * run.position_pitch);
        (0..run.rows)
            .map(row)
            .flat_map(|(offset, position)| {
                (0..run.row_bytes).map(move |i| (offset + i, position + i))
            })
            .collect()
    }

    #[test]
    fn pieces_cover_a_run_once() {
        let run = Run {
            buffer: 1,
            offset: 5,
            pitch: 12,
            row_bytes: 9,
            rows: 7,
            cell: 2,
            position: 100,
            position_pitch: 50,
        };
        for limit in 1..80 {
            let parts: Vec<Run> = pieces(run, limit).collect();
            assert!(parts.iter().all(|part| part.row_bytes * part.rows <= limit));
            let mut together: Vec<_> = parts.into_iter().flat_map(covered).collect();
            together.sort_unstable();
            assert_eq!(together, covered(run));
        }
    }
}

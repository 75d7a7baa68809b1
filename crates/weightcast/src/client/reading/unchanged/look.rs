//! A look at the memory: does it still hold what it was known to hold?
//!
//! The memory belongs to the program between two reads, and a read that failed leaves parts of two
//! versions. So no byte is left out of a read that was not digested here just before.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;

use weightcast_plan::{Copy, Plan, Run, Unchanged};
use weightcast_transport::{Digest, Region};

use super::super::read::Read;
use crate::client::threads;

/// Bytes that are copied at once from the registered memory beside it.
const STEP: usize = 1 << 18;

/// What a read leaves out.
pub(in crate::client::reading) struct LeftOut {
    /// For each copy of the plan, its digest if it is left out.
    copies: Vec<Option<Digest>>,
}

impl LeftOut {
    /// Everything is moved.
    pub(super) fn nothing(plan: &Plan) -> Self {
        Self { copies: vec![None; plan.copies.len()] }
    }

    /// Everything is left out.
    #[cfg(test)]
    pub(in crate::client::reading) fn everything(plan: &Plan) -> Self {
        Self { copies: vec![Some(Digest::default()); plan.copies.len()] }
    }

    /// Whether the copy of this number is left out.
    pub(in crate::client::reading) fn has(&self, copy: usize) -> bool {
        self.copies[copy].is_some()
    }

    /// Leaves of these cells out only those of which no byte is moved.
    pub(in crate::client::reading) fn whole(&mut self, plan: &Plan, cells: impl Fn(u32) -> bool) {
        let moved = plan.copies.iter().zip(&self.copies).filter(|(_, left)| left.is_none());
        let moved: BTreeSet<u32> = moved.map(|(copy, _)| copy.cell).collect();
        for (copy, left) in plan.copies.iter().zip(&mut self.copies) {
            if cells(copy.cell) && moved.contains(&copy.cell) {
                *left = None;
            }
        }
    }

    /// Bytes that are left out.
    pub(in crate::client::reading) fn bytes(&self, plan: &Plan) -> u64 {
        self.each(plan).map(|(copy, _)| copy.bytes()).sum()
    }

    /// Adds the digests of what is left out to those of its cells.
    pub(in crate::client::reading) fn add_to(&self, plan: &Plan, cells: &mut [Digest]) {
        self.each(plan).for_each(|(copy, digest)| cells[copy.cell as usize] += digest);
    }

    fn each<'a>(&'a self, plan: &'a Plan) -> impl Iterator<Item = (&'a Copy, Digest)> {
        plan.copies.iter().zip(&self.copies).filter_map(|(copy, left)| Some((copy, (*left)?)))
    }
}

/// Digests the memory of each cell of which the comparison would leave something out. If the cell holds
/// what it was known to hold, that is left out. `None` once the read is cancelled.
pub(super) fn look(
    read: &Read<'_>,
    plan: &Plan,
    found: &Unchanged<Digest>,
    held: &[Digest],
) -> Option<LeftOut> {
    let live = read.comparing.live.unwrap_or(read.registration);
    let mut looked_at = vec![false; held.len()];
    for (copy, _) in plan.copies.iter().zip(&found.copies).filter(|(_, same)| **same) {
        looked_at[copy.cell as usize] = true;
    }
    let copies: Vec<(usize, &Copy)> =
        plan.copies.iter().enumerate().filter(|(_, c)| looked_at[c.cell as usize]).collect();
    let slot =
        |(slot, (_, copy)): (usize, &(usize, &Copy))| Run { cell: slot as u32, ..copy.landed() };
    let runs: Vec<Run> = copies.iter().enumerate().map(slot).collect();
    let wanted = || !read.cancel.load(Ordering::Acquire);
    let digests = live.digest_runs_on(&runs, runs.len(), threads::copying(), wanted);
    if !wanted() {
        return None;
    }
    let mut sums = vec![Digest::ZERO; held.len()];
    for ((_, copy), digest) in copies.iter().zip(&digests) {
        sums[copy.cell as usize] += *digest;
    }
    let mut left_out = LeftOut::nothing(plan);
    for ((number, copy), digest) in copies.iter().zip(digests) {
        let cell = copy.cell as usize;
        if found.copies[*number] && sums[cell] == held[cell] && bring(read, copy, digest)? {
            left_out.copies[*number] = Some(digest);
        }
    }
    Some(left_out)
}

/// Puts the bytes of a copy that is left out where the read puts the others: a staged read fills other
/// memory than the registered one. False if the bytes have changed since they were digested; `None` once
/// the read is cancelled.
fn bring(read: &Read<'_>, copy: &Copy, digest: Digest) -> Option<bool> {
    let Some(live) = read.comparing.live else { return Some(true) };
    let (run, mut brought) = (copy.landed(), Digest::ZERO);
    // Most tensors are small.
    let mut step = vec![0; run.row_bytes.min(STEP as u64) as usize];
    let region = |of: &[Region]| of[run.buffer as usize].clone();
    let (from, to) = (region(&live.regions), region(&read.registration.regions));
    for row in 0..run.rows {
        let (offset, position) =
            (run.offset + row * run.pitch, run.position + row * run.position_pitch);
        for at in (0..run.row_bytes).step_by(STEP) {
            if read.cancel.load(Ordering::Acquire) {
                return None;
            }
            let len = (run.row_bytes - at).min(STEP as u64) as usize;
            let (bytes, place) = (&mut step[..len], (offset + at) as usize);
            from.read_at(place, bytes).expect("a layout lies within its regions");
            to.write_at(place, bytes).expect("memory of our own");
            let digest = to.digest(place, len, position + at);
            brought += digest.expect("a layout lies within its regions");
        }
    }
    Some(brought == digest)
}

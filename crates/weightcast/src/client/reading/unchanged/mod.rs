//! What of a read need not move: slices that are the same in the version to be read and in the
//! version that lies in the memory.
//!
//! `content` is what a handle remembers of the version that it holds, `notes` asks the sources for
//! the digests of theirs, and `look` digests the memory once more before anything is left out of the
//! read. The decision itself is [`PlanComparison`]'s.

pub(in crate::client) mod content;
mod look;
mod notes;

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::info_span;
use weightcast_plan::{EntryDigests, KnownDigests, Plan, PlanComparison, Unchanged};
use weightcast_protocol::message::Assignment;
use weightcast_transport::Digest;

use self::content::{Experience, KnownContent};
pub(super) use self::look::LeftOut;
use super::bound_source::BoundSource;
use super::read::Read;
use crate::manifest;

/// How long a source may take to say what the next read is compared with, once all bytes are there: one that stands
/// still holds up nobody by that.
const AFTERWARDS: Duration = Duration::from_millis(500);

/// A read as it is compared with what the memory holds.
pub(super) struct ComparedRead<'a> {
    read: &'a Read<'a>,
    plan: &'a Plan,
    comparison: Arc<PlanComparison>,
    sources: &'a [BoundSource],
    /// What the memory is known to have held.
    held: Option<Arc<KnownContent>>,
    /// By source shard, in the order of the assignment: what it says of its entries.
    wanted: Vec<EntryDigests<Digest>>,
    found: Option<Unchanged<Digest>>,
}

impl<'a> ComparedRead<'a> {
    /// Asks the sources for their digests, and compares. Where many bytes were unchanged before, waits
    /// a while for digests that are not there yet.
    pub(super) fn new(
        read: &'a Read<'a>,
        plan: &'a Plan,
        comparison: Arc<PlanComparison>,
        sources: &'a [BoundSource],
        held: Option<Arc<KnownContent>>,
    ) -> Self {
        // What is known is of this memory's cells.
        let cells = read.registration.cells.len();
        let held = held.filter(|held| held.cells.len() == cells);
        let wanted = vec![EntryDigests::new(); read.sources.len()];
        let mut compared = Self { read, plan, comparison, sources, held, wanted, found: None };
        if let Some(held) = compared.held.as_ref().filter(|_| !read.comparing.moves_all) {
            let _entered = info_span!("compare").entered();
            let wait = held.experience.patience(read.deadline);
            compared.ask(wait, read.deadline);
        }
        compared.tell();
        compared
    }

    /// The digests of this shard's cells in the version to be read, as far as the sources tell them, or
    /// tell that nothing of a cell has changed.
    fn wanted_cells(&self) -> Option<Vec<Option<Digest>>> {
        let (found, held) = (self.found.as_ref()?, self.held.as_ref()?);
        let mut changed = vec![false; found.cells.len()];
        let mut given = vec![false; found.cells.len()];
        for (copy, same) in self.plan.copies.iter().zip(&found.copies) {
            given[copy.cell as usize] = true;
            changed[copy.cell as usize] |= !same;
        }
        let whole = held.cells.iter().zip(given.iter().zip(changed));
        let same =
            whole.map(|(digest, (given, changed))| Some(*digest).filter(|_| *given && !changed));
        Some(found.cells.iter().zip(same).map(|(told, same)| told.or(same)).collect())
    }

    /// Asks the sources that have told nothing, and compares what is known then.
    fn ask(&mut self, wait: Duration, deadline: Instant) {
        let (sources, read) = (self.sources, self.read);
        notes::ask(&mut self.wanted, &self.comparison, sources, read, wait, deadline);
        let Some(content) = self.held.as_ref().filter(|_| self.knows_any()) else { return };
        let shards = &read.assignment.shards;
        let held: Vec<_> = shards.iter().map(|shard| content.entries.get(&shard.layout)).collect();
        let known = KnownDigests { wanted: &self.wanted, held: &held, cells: &content.cells };
        self.found = Some(self.comparison.unchanged(&known));
    }

    /// Whether any source has told anything.
    fn knows_any(&self) -> bool {
        self.wanted.iter().any(|wanted| !wanted.is_empty())
    }

    /// Bytes that are unchanged as far as digests tell. `None` without a comparison.
    fn unchanged_bytes(&self) -> Option<u64> {
        let found = self.found.as_ref()?;
        let copies = self.plan.copies.iter().zip(&found.copies);
        Some(copies.filter(|(_, same)| **same).map(|(copy, _)| copy.bytes()).sum())
    }

    /// Finds out by a look at the memory what is left out of the read. `None` once the read is
    /// cancelled. The memory must not be written meanwhile.
    pub(super) fn look(&self) -> Option<LeftOut> {
        match (&self.found, &self.held) {
            (Some(found), Some(held)) if !self.read.comparing.moves_all => {
                let _entered = info_span!("look").entered();
                look::look(self.read, self.plan, found, &held.cells)
            }
            _ => Some(LeftOut::nothing(self.plan)),
        }
    }

    /// Tells readers of this memory, which is about to be filled, what is known of the version already,
    /// whatever the memory turns out to hold: before the look, which they would wait for.
    fn tell(&self) {
        let Some((exports, id)) = self.read.comparing.serving else { return };
        let registration = self.read.registration;
        let cells = self.wanted_cells().unwrap_or_else(|| vec![None; registration.cells.len()]);
        let note = manifest::encode_early(&registration.entry_digests(&cells));
        if let Err(error) = exports.annotate_early(id, &note) {
            // A read that goes on at another source has told it before.
            tracing::debug!(%error, "an export goes without an early note");
        }
    }

    /// What is known of the memory once this read has brought the version; `digests` are those of its
    /// cells, as they arrived.
    pub(super) fn content(mut self, digests: &[Digest], moved: Experience) -> KnownContent {
        let silent = |(shard, wanted): (usize, &EntryDigests<_>)| {
            wanted.is_empty() && self.sources.iter().any(|source| source.shard == shard)
        };
        if self.wanted.iter().enumerate().any(silent) {
            // By now the digests may be there: the next read can be compared with them.
            let soon = self.read.deadline.min(Instant::now() + AFTERWARDS);
            self.ask(Duration::ZERO, soon);
        }
        let before = self.held.as_ref().map(|held| held.experience).unwrap_or_default();
        let experience = before.after(moved, self.unchanged_bytes());
        let entries = named(self.read.assignment, self.wanted);
        KnownContent::new(digests.to_vec(), entries, experience)
    }
}

/// The digests of source shards by their manifests. Shards of one manifest hold the same slices; where
/// they say different things, they are not believed.
fn named(assignment: &Assignment, wanted: Vec<EntryDigests<Digest>>) -> content::SourceDigests {
    let mut named = content::SourceDigests::new();
    for (shard, digests) in assignment.shards.iter().zip(wanted) {
        if digests.is_empty() {
            continue;
        }
        match named.entry(shard.layout) {
            std::collections::btree_map::Entry::Vacant(free) => drop(free.insert(digests)),
            std::collections::btree_map::Entry::Occupied(mut known) => {
                known.get_mut().retain(|entry, digest| digests.get(entry) == Some(digest));
            }
        }
    }
    named
}

#[cfg(test)]
mod tests;

//! Pace: a reader leaves a source that it finds slow, and goes on at a free source; a reader of
//! several sources goes on with the others. The reader keeps what it has read; nobody is accused or
//! evicted (T4).
//!
//! Moves can't become a storm. A reader moves only to a free place that no other group waits for, never back to a
//! source that was as slow, and a few times per transfer at most.

use crate::limits::MOVES;
use crate::server::contexts::TransferCtx;
use crate::server::rooms::TransferHandler;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::transaction::Phase;
use crate::{Attempt, Incarnation, OpSeq, Safeguard, Version};

/// A reader goes back to a source that it left only if that source gave at least this many times
/// what the present one gives.
const MUCH_FASTER: u64 = 4;

impl TransferHandler<'_> {
    /// A shard reports that a source is slow.
    pub(in crate::server) fn slow(
        &mut self,
        from: MemberId,
        (seq, attempt): (OpSeq, Attempt),
        shard: u32,
        bytes_per_s: u64,
    ) {
        let Some(reader) = self.books().group(from.group).transfer_of(seq) else { return };
        let transfer = reader.transfer;
        let current = transfer.phase == Phase::Reading && transfer.attempt == attempt;
        let (Some(version), Some(assignment)) = (transfer.version, &transfer.assignment) else {
            return;
        };
        let sources = self.edges.sources_of(from.group);
        let stripe = assignment.at(shard).0;
        let Some(slow) = sources.get(stripe).copied().filter(|_| current) else { return };
        if transfer.moves >= MOVES || !self.config.safeguards.on(Safeguard::SlowSourceLeft) {
            return;
        }
        let others: Vec<_> = sources.iter().copied().filter(|source| *source != slow).collect();
        let to = match others.is_empty() {
            true => reader.faster_source(slow, version, bytes_per_s).into_iter().collect(),
            false => others,
        };
        if to.is_empty() {
            return;
        }
        self.groups.pending_transfer(from.group).moves += 1;
        self.note_slow(from.group, slow, bytes_per_s);
        self.move_on(from.group, to, version);
    }

    /// Remembers that a source was slow for the reader, which prefers other sources from now on.
    pub(in crate::server) fn note_slow(
        &mut self,
        reader: Incarnation,
        source: Incarnation,
        bytes_per_s: u64,
    ) {
        let mut slow = self.groups.of(&reader).slow.clone();
        slow.retain(|source, _| self.groups.contains(source));
        slow.insert(source, bytes_per_s);
        self.groups.of_mut(&reader).slow = slow;
    }

    /// The reader goes on at these sources, and keeps what it has read.
    fn move_on(&mut self, reader: Incarnation, to: Vec<Incarnation>, version: Version) {
        self.counters.moved_on += 1;
        self.release_edge(reader);
        self.read_from(reader, version, to);
        self.assign(reader);
    }
}

impl TransferCtx<'_> {
    /// A whole copy with a free place for the reader, not known to be as slow.
    fn faster_source(
        self,
        slow: Incarnation,
        version: Version,
        bytes_per_s: u64,
    ) -> Option<Incarnation> {
        // A reader that crosses may go to another remote source, but only while no holder is near (D3, D4).
        let crosses = self.edges.crosses(self.group.incarnation)
            && !self.holders(version).any(|holder| self.is_near(holder));
        let free = self.holders(version).filter(|source| {
            let had = self.group.slow.get(&source.incarnation);
            source.incarnation != slow
                && (self.is_near(source) || crosses)
                && !self.transfer.failures.contains_key(&source.incarnation)
                && had.is_none_or(|had| *had >= bytes_per_s.saturating_mul(MUCH_FASTER))
                && source.held.as_ref().is_some_and(|held| held.accusers.is_empty())
                && self.has_room(source, version)
                && !self.is_above(source)
        });
        free.min_by_key(|source| self.rank(source, version)).map(|source| source.incarnation)
    }
}

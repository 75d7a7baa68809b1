//! Slow sources are left: a reader that says so goes on at another one, if that is free; of several, it
//! goes on with the others. What it has read is kept, nobody is accused, and nobody is evicted (T4).
//!
//! No storm comes of it: a reader goes only where there is a place for it, which nobody waits for; never
//! back to one that was as slow, and a few times per transfer at most.

use crate::limits::MOVES;
use crate::server::contexts::TransferCtx;
use crate::server::rooms::TransferHandler;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::transaction::Phase;
use crate::{Attempt, Incarnation, OpSeq, Safeguard, Version};

/// A source that was left is tried again by who gets so many times less now.
const MUCH_FASTER: u64 = 4;

impl TransferHandler<'_> {
    /// A shard reads slowly.
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

    /// The group prefers others from now on.
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

    /// Goes on at these sources, with what has come.
    fn move_on(&mut self, reader: Incarnation, to: Vec<Incarnation>, version: Version) {
        self.counters.moved_on += 1;
        self.release_edge(reader);
        self.read_from(reader, version, to);
        self.assign(reader);
    }
}

impl TransferCtx<'_> {
    /// A whole copy that is free for the reader, and not known to be as slow.
    fn faster_source(
        self,
        slow: Incarnation,
        version: Version,
        bytes_per_s: u64,
    ) -> Option<Incarnation> {
        // Who crosses stays in the line for that (D3, D4): it goes to another far one only if none is
        // near.
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

//! What the shards of a transfer report, and the commit: all shards or none (G4), from a source
//! that still holds what was assigned and has committed itself (S5), with the publisher's content
//! (S6).

use crate::message::{Answer, Assignment, ReadFailure};
use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::TransferHandler;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::transaction::Phase;
use crate::server::transfers::Onward;
use crate::server::transfers::source_loss::Loss;
use crate::{Attempt, CallError, Generation, Incarnation, OpSeq, Safeguard, ShardSums, Sum, Time};

/// State of the sources of a transfer whose shards have all read.
#[derive(Debug, PartialEq, Eq)]
enum Standing {
    /// Every source holds what was assigned.
    Stands,
    /// A source has not committed yet.
    BeingFilled,
    /// A source holds something else, or nothing.
    Gone,
}

impl TransferHandler<'_> {
    pub(in crate::server) fn prepared(
        &mut self,
        from: MemberId,
        seq: OpSeq,
        attempt: Attempt,
        generation: Generation,
        sums: ShardSums,
    ) {
        if !self.is_current(from, seq, attempt) {
            return;
        }
        // Without the safeguard one shard speaks for all.
        let shards = match self.config.safeguards.on(Safeguard::WholeCommit) {
            true => from.shard..from.shard + 1,
            false => 0..self.groups.of(&from.group).num_shards,
        };
        let transfer = self.groups.pending_transfer(from.group);
        transfer.prepared.extend(shards.map(|shard| (shard, (generation, sums))));
        self.agenda.wake(from.group);
    }

    pub(in crate::server) fn read_failed(
        &mut self,
        from: MemberId,
        seq: OpSeq,
        attempt: Attempt,
        failure: ReadFailure,
    ) {
        if !self.is_current(from, seq, attempt) {
            return;
        }
        let MemberId { group: incarnation, shard, .. } = from;
        self.counters.read_failures += 1;
        match failure {
            ReadFailure::Source { shard: source_shard, reason } => {
                let transfer = self.groups.pending_transfer(incarnation);
                let assignment = transfer.assigned();
                let (stripe, source_shard) = assignment.at(source_shard);
                let reason = format!("shard {shard} reading shard {source_shard}: {reason}");
                let loss = Loss { failures: 1, suspect: false, stripe };
                self.lose_source(incarnation, &reason, loss);
            }
            ReadFailure::Layout { detail } => {
                let replica = self.groups.of(&incarnation).replica.clone();
                self.abandon_transfer(incarnation);
                self.calls()
                    .finish(incarnation, Err(CallError::LayoutMismatch { replica, detail }));
            }
        }
    }

    /// Whether a report is about the group's current assignment. Older reports are void.
    fn is_current(&self, from: MemberId, seq: OpSeq, attempt: Attempt) -> bool {
        let safeguards = self.config.safeguards;
        self.books().group(from.group).transfer_of(seq).is_some_and(|reader| {
            let TransferCtx { transfer, .. } = reader;
            let same = transfer.attempt == attempt || !safeguards.on(Safeguard::CurrentReports);
            let current = transfer.phase == Phase::Reading && same;
            current || !safeguards.on(Safeguard::CommitFence)
        })
    }

    /// Commits once all shards have read, if the sources still hold what was assigned and the
    /// content is the publisher's.
    pub(super) fn try_commit(&mut self, now: Time, incarnation: Incarnation) -> Onward {
        let safeguards = self.config.safeguards;
        let reader = self.books().transfer(incarnation);
        let transfer = reader.transfer;
        if transfer.prepared.len() < reader.group.num_shards as usize {
            return Onward::Done;
        }
        let assignment = transfer.assigned().clone();
        match reader.standing(&assignment) {
            Standing::Stands => {}
            Standing::BeingFilled => return Onward::Done, // its commit brings us back
            Standing::Gone => {
                self.lose_source(incarnation, "it moved on", Loss::default());
                return Onward::Done;
            }
        }
        let sums = transfer.prepared.values().fold(ShardSums::default(), |a, (_, b)| a + *b);
        let content = reader.model.known.get(&assignment.version);
        let Some(expected) = content.and_then(|content| content.sum) else {
            if !safeguards.on(Safeguard::DigestCheck) {
                self.commit_read(now, incarnation, assignment);
            }
            return Onward::Done; // the source has not sealed: its seal brings us back
        };
        match mismatch(sums, expected) {
            Some(detail) if safeguards.on(Safeguard::DigestCheck) => {
                return self.refuse_content(incarnation, &assignment, detail);
            }
            _ => self.commit_read(now, incarnation, assignment),
        }
        Onward::Done
    }

    /// The shards have read the version: the group holds it now, or installs it first.
    fn commit_read(&mut self, now: Time, incarnation: Incarnation, assignment: Assignment) {
        let transfer = self.groups.pending_transfer(incarnation);
        if transfer.staged {
            return self.verified_beside(now, incarnation);
        }
        let generations = transfer.prepared.values().map(|(generation, _)| *generation).collect();
        let sources = self.release_edge(incarnation);
        // These sources gave everything, so they were not too slow.
        let group = self.groups.of_mut(&incarnation);
        group.slow.retain(|source, _| !sources.contains(source));
        self.commit(incarnation, assignment, generations);
    }

    /// The group holds what was assigned; its shards serve it at these generations.
    pub(super) fn commit(
        &mut self,
        incarnation: Incarnation,
        assignment: Assignment,
        generations: Vec<Generation>,
    ) {
        let transfer = self.groups.pending_transfer(incarnation);
        let prepared = std::mem::take(&mut transfer.prepared);
        let Assignment { version, catalog, replica: source, .. } = assignment;
        self.copies().add(incarnation, version, catalog, generations);
        let group = self.groups.of_mut(&incarnation);
        let held = group.copy_mut();
        held.sums = prepared.into_iter().map(|(shard, (_, sums))| (shard, sums)).collect();
        held.sealed = true;
        group.replicated = Some(version);
        self.counters.commits += 1;
        self.durability().note_seeded(incarnation);
        // Readers that have read everything from this group can commit now.
        self.agenda.wake_all(self.edges.readers_of(incarnation));
        self.calls().finish(incarnation, Ok(Answer::Committed { version, source }));
    }
}

impl GroupCtx<'_> {
    /// The state of the reader's sources: they must hold what was assigned, at the same generations
    /// (S5).
    fn standing(&self, assignment: &Assignment) -> Standing {
        let version = assignment.version;
        let safeguards = self.config.safeguards;
        let all = if safeguards.on(Safeguard::EveryStripe) { usize::MAX } else { 1 };
        let sources = self.edges.sources_of(self.group.incarnation).iter().take(all);
        let sources: Vec<_> = sources.filter_map(|source| self.groups.get(source)).collect();
        let generations = sources.iter().filter_map(|source| source.generations(version));
        let each = assignment.shards_each();
        let assigned = assignment.shards.iter().map(|shard| shard.generation);
        let assigned = assigned.take(each.saturating_mul(all));
        let same = !sources.is_empty() && generations.flatten().eq(assigned);
        let committed = !sources.is_empty() && sources.iter().all(|source| source.holds(version));
        match (same, committed) {
            (true, false) if safeguards.on(Safeguard::DagOrder) => Standing::BeingFilled,
            (false, _) if safeguards.on(Safeguard::CommitFence) => Standing::Gone,
            _ => Standing::Stands,
        }
    }
}

/// How a group's digests differ from the version's, if they do.
fn mismatch(sums: ShardSums, expected: Sum) -> Option<&'static str> {
    if sums.counted != expected {
        Some("the bytes read differ")
    } else if !sums.copies_agree() {
        Some("shards of the group read different copies of the same slice")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;
    use crate::server::props::{SEQ, server, version};

    #[test]
    fn content_is_the_versions_if_all_is_counted_and_all_copies_are_the_same() {
        let of = |counted, held, expected| ShardSums {
            counted: Sum([counted, 1]),
            held: Sum([held, 2]),
            expected: Sum([expected, 2]),
        };
        assert_eq!(mismatch(of(5, 7, 7), Sum([5, 1])), None);
        let differ = Some("the bytes read differ");
        assert_eq!(mismatch(of(5, 7, 7), Sum([6, 1])), differ);
        assert_eq!(mismatch(of(5, 7, 7), Sum([5, 2])), differ);
        assert_eq!(mismatch(of(5, 5, 5), Sum([7, 1])), differ, "what is held says nothing");
        assert_eq!(mismatch(of(5, 7, 8), Sum([6, 1])), differ, "that first");
        let copies = Some("shards of the group read different copies of the same slice");
        assert_eq!(mismatch(of(5, 7, 8), Sum([5, 1])), copies);
    }

    /// A reader of version 1, its two sources, and what it was assigned.
    fn striped() -> (Server, Incarnation, [Incarnation; 2], Assignment) {
        let mut server = server();
        let [a, b, reader] = ["a", "b", "reader"].map(|name| server.prop(name, 2));
        [a, b].iter().for_each(|source| server.holds(*source, version(1)));
        server.reads(reader, version(1), &[a, b]);
        let assignment = server.groups[&reader].transfer().unwrap().assignment.clone().unwrap();
        (server, reader, [a, b], assignment)
    }

    #[test]
    fn sources_stand_while_each_holds_what_was_assigned_at_the_same_generations() {
        let (server, reader, sources, assignment) = striped();
        let standing = |server: &Server| server.books().group(reader).standing(&assignment);
        assert_eq!(standing(&server), Standing::Stands);
        for source in sources {
            let mut moved = server.clone();
            moved.at(source).held = None;
            assert_eq!(standing(&moved), Standing::Gone, "given up");
            let mut moved = server.clone();
            moved.at(source).held.as_mut().unwrap().generations[1] = Generation(99);
            assert_eq!(standing(&moved), Standing::Gone, "published anew");
            let mut moved = server.clone();
            moved.at(source).held.as_mut().unwrap().version = version(2);
            assert_eq!(standing(&moved), Standing::Gone, "another version");
            let mut moved = server.clone();
            let fenced = CallError::Misuse { detail: String::new() };
            moved.at(source).held.as_mut().unwrap().fenced = Some(fenced);
            assert_eq!(standing(&moved), Standing::Gone, "refused");
            let mut moved = server.clone();
            moved.groups.remove(&source);
            assert_eq!(standing(&moved), Standing::Gone, "left");
        }
        let mut moved = server.clone();
        moved.edges.keep_first(reader);
        assert_eq!(standing(&moved), Standing::Gone, "half of what was assigned");
        let mut moved = server;
        moved.edges.remove("policy", reader);
        assert_eq!(standing(&moved), Standing::Gone, "nobody is its source any more");
        let none = Assignment { shards: Default::default(), ..assignment.clone() };
        assert_eq!(moved.books().group(reader).standing(&none), Standing::Gone);
    }

    #[test]
    fn a_source_that_is_being_filled_is_waited_for_while_it_serves_the_same() {
        let mut server = server();
        let [top, relay, reader] = ["top", "relay", "reader"].map(|name| server.prop(name, 2));
        server.holds(top, version(1));
        server.reads(relay, version(1), &[top]);
        server.relays(relay);
        server.reads(reader, version(1), &[relay]);
        let assignment = server.groups[&reader].transfer().unwrap().assignment.clone().unwrap();
        assert_eq!(server.books().group(reader).standing(&assignment), Standing::BeingFilled);
        let committed = server.groups[&relay].generations(version(1)).unwrap();
        // It has begun anew.
        server.groups.transfer(relay).unwrap().filling.insert(0, Generation(99));
        assert_eq!(server.books().group(reader).standing(&assignment), Standing::Gone);
        server.holds(relay, version(1));
        assert_eq!(
            server.books().group(reader).standing(&assignment),
            Standing::Gone,
            "not as it served it"
        );
        server.at(relay).held.as_mut().unwrap().generations = committed;
        assert_eq!(server.books().group(reader).standing(&assignment), Standing::Stands);
    }

    #[test]
    fn a_report_counts_for_the_call_and_the_assignment_that_it_is_about() {
        let (mut server, reader, ..) = striped();
        server.groups.transfer(reader).unwrap().attempt = Attempt(2);
        let shard = server.member(reader, 1);
        for (seq, attempt, counts) in [
            (SEQ, Attempt(2), true),
            (SEQ, Attempt(1), false),
            (SEQ, Attempt(3), false),
            (OpSeq(SEQ.0 - 1), Attempt(2), false),
            (SEQ.next(), Attempt(2), false),
        ] {
            let current = server.transfers().is_current(shard, seq, attempt);
            assert_eq!(current, counts, "{seq}, {attempt}");
            server.agenda.groups.clear();
            server.transfers().prepared(shard, seq, attempt, Generation(20), ShardSums::default());
            let prepared = server.groups.transfer(reader).unwrap().prepared.remove(&1);
            assert_eq!(
                prepared.map(|(generation, _)| generation),
                counts.then_some(Generation(20))
            );
            assert_eq!(server.agenda.groups.contains(&reader), counts);
        }
        for phase in [Phase::Waiting, Phase::Draining, Phase::Installing] {
            server.groups.transfer(reader).unwrap().phase = phase;
            assert!(!server.transfers().is_current(shard, SEQ, Attempt(2)), "{phase:?}");
        }
        server.at(reader).active = None;
        assert!(!server.transfers().is_current(shard, SEQ, Attempt(2)));
    }

    #[test]
    fn a_failure_speaks_against_the_source_that_the_shard_belongs_to() {
        for (place, failed, named) in [(0, 0, 0), (1, 0, 1), (2, 1, 0), (3, 1, 1), (99, 1, 1)] {
            let (mut server, reader, sources, _) = striped();
            let shard = server.member(reader, 1);
            for (attempt, counted) in [(2, 0), (1, 1)] {
                let failure = ReadFailure::Source { shard: place, reason: "cut".to_owned() };
                server.transfers().read_failed(shard, SEQ, Attempt(attempt), failure);
                assert_eq!(server.counters.read_failures, counted);
            }
            let transfer = server.groups[&reader].transfer().unwrap();
            assert_eq!(transfer.failures, [(sources[failed], 1)].into(), "{place}");
            assert!(!transfer.void, "what was read stays");
            let error = CallError::SourceLost {
                version: version(1),
                source_replica: ["a", "b"][failed].to_owned(),
                reason: format!("shard 1 reading shard {named}: cut"),
            };
            assert_eq!(transfer.last_error, Some(error));
        }
        let (mut server, reader, ..) = striped();
        let failure = ReadFailure::Layout { detail: "no such box".to_owned() };
        let member = server.member(reader, 0);
        server.transfers().read_failed(member, SEQ, Attempt(1), failure);
        let (replica, detail) = ("reader".to_owned(), "no such box".to_owned());
        let result = server.groups[&reader].transactions[&SEQ].result.clone();
        assert_eq!(result, Some(Err(CallError::LayoutMismatch { replica, detail })));
        assert!(server.edges.sources_of(reader).is_empty());
    }

    #[test]
    fn a_commit_is_held_counted_and_known_to_whoever_reads_from_it() {
        let (mut server, reader, _, assignment) = striped();
        server.relays(reader);
        let behind = server.prop("behind", 1);
        let shard = server.member(reader, 0);
        // What a shard says last is what counts.
        for generation in [20, 22] {
            let sums = ShardSums { counted: Sum([generation, 0]), ..ShardSums::default() };
            server.transfers().prepared(shard, SEQ, Attempt(1), Generation(generation), sums);
            let prepared = &server.groups[&reader].transfer().expect("it reads").prepared;
            assert_eq!(prepared[&0], (Generation(generation), sums));
        }
        server.transfers().release_edge(reader);
        server.transfers().read_from(behind, version(1), vec![reader]);
        server.agenda.groups.clear();
        server.transfers().commit(reader, assignment, vec![Generation(22), Generation(23)]);
        assert!(server.agenda.groups.contains(&behind), "it can commit now");
        let group = &server.groups[&reader];
        let held = group.held.as_ref().expect("it holds it");
        assert_eq!(held.generations, [Generation(22), Generation(23)]);
        assert_eq!(held.sums[&0].counted, Sum([22, 0]));
        assert!(held.sealed && held.visible && !held.authored);
        assert_eq!((group.replicated, server.counters.commits), (Some(version(1)), 1));
    }
}

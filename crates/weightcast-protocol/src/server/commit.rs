//! What the shards of a transfer report, and the commit: all shards or none (G4), from a source that
//! still stands and has committed itself (S5), with the publisher's content (S6).

use super::Server;
use super::source_loss::Loss;
use super::transaction::Phase;
use crate::message::{Answer, Assignment, ReadFailure};
use crate::{Attempt, CallError, Generation, Incarnation, OpSeq, SessionId, ShardSums, Sum, Time};

/// What has become of the source of a transfer whose shards have all read.
enum Standing {
    /// It holds what was assigned.
    Stands,
    /// It has not committed yet.
    BeingFilled,
    /// It holds something else, or nothing.
    Gone,
}

impl Server {
    pub(super) fn prepared(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        attempt: Attempt,
        generation: Generation,
        sums: ShardSums,
    ) {
        let Some((incarnation, shard)) = self.reading(session, seq, attempt) else { return };
        let transfer = self.transfer(incarnation).expect("checked");
        transfer.prepared.insert(shard, (generation, sums));
        self.agenda.insert(incarnation);
    }

    pub(super) fn read_failed(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        attempt: Attempt,
        failure: ReadFailure,
    ) {
        let Some((incarnation, shard)) = self.reading(session, seq, attempt) else { return };
        self.counters.read_failures += 1;
        match failure {
            ReadFailure::Source { shard: source_shard, reason } => {
                let transfer = self.transfer(incarnation).expect("checked");
                let assignment = transfer.assignment.as_ref().expect("set while reading");
                let (stripe, source_shard) = assignment.at(source_shard);
                let reason = format!("shard {shard} reading shard {source_shard}: {reason}");
                let loss = Loss { failures: 1, suspect: false, stripe };
                self.lose_source(incarnation, &reason, loss);
            }
            ReadFailure::Layout { detail } => {
                let replica = self.groups[&incarnation].replica.clone();
                self.abandon_transfer(incarnation);
                self.finish(incarnation, Err(CallError::LayoutMismatch { replica, detail }));
            }
        }
    }

    /// Whether a shard's report is about what its group is reading now; older ones are void.
    fn reading(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        attempt: Attempt,
    ) -> Option<(Incarnation, u32)> {
        let entry = &self.sessions[&session];
        let (incarnation, shard) = (entry.group, entry.shard);
        let mutants = self.config.mutants;
        let any_attempt = mutants.no_commit_fence;
        if self.groups[&incarnation].active != Some(seq) {
            return None;
        }
        let transfer = self.transfer(incarnation)?;
        let same = transfer.attempt == attempt || mutants.stale_reports;
        let current = transfer.phase == Phase::Reading && same;
        (current || any_attempt).then_some((incarnation, shard))
    }

    /// All shards have read: commit, if the source still stands and the content is the publisher's.
    pub(super) fn try_commit(&mut self, now: Time, incarnation: Incarnation) {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active.expect("checked")];
        let transfer = transaction.transfer.as_ref().expect("checked");
        let num_shards = group.num_shards;
        let whole = transfer.prepared.len() == num_shards as usize;
        let some = self.config.mutants.partial_commit && !transfer.prepared.is_empty();
        if !whole && !some {
            return;
        }
        let assignment = transfer.assignment.clone().expect("set while reading");
        match self.standing(incarnation, &assignment) {
            Standing::Stands => {}
            Standing::BeingFilled => return, // its commit brings us back
            Standing::Gone => {
                return self.lose_source(incarnation, "it moved on", Loss::default());
            }
        }
        let sums = transfer.prepared.values().fold(ShardSums::default(), |a, (_, b)| a + *b);
        let content = self.models[&group.model].known.get(&assignment.version);
        let Some(expected) = content.and_then(|content| content.sum) else {
            if self.config.mutants.no_digest_check {
                self.commit_read(now, incarnation, assignment);
            }
            return; // the source has not sealed: its seal brings us back
        };
        if !whole {
            let prepared = &mut self.transfer(incarnation).expect("checked").prepared;
            for shard in 0..num_shards {
                prepared.entry(shard).or_default();
            }
        }
        match mismatch(sums, expected) {
            Some(detail) if whole && !self.config.mutants.no_digest_check => {
                self.refuse_content(incarnation, &assignment, detail);
            }
            _ => self.commit_read(now, incarnation, assignment),
        }
    }

    /// What the shards have read is the version: they hold it, or are to put it in place first.
    fn commit_read(&mut self, now: Time, incarnation: Incarnation, assignment: Assignment) {
        let transfer = self.transfer(incarnation).expect("checked");
        if transfer.staged {
            return self.verified_beside(now, incarnation);
        }
        let generations = transfer.prepared.values().map(|(generation, _)| *generation).collect();
        let sources = self.release_edge(incarnation);
        // They have been read from to the end.
        let group = self.groups.get_mut(&incarnation).expect("checked");
        group.slow.retain(|source, _| !sources.contains(source));
        self.commit(incarnation, assignment, generations);
    }

    /// What has become of the source: it must hold what was assigned, at the same generations (S5).
    fn standing(&self, reader: Incarnation, assignment: &Assignment) -> Standing {
        let version = assignment.version;
        let all = if self.config.mutants.first_stripe_only { 1 } else { usize::MAX };
        let sources = self.edges.sources_of(reader).iter().take(all);
        let sources: Vec<_> = sources.filter_map(|source| self.groups.get(source)).collect();
        let generations = sources.iter().filter_map(|source| source.generations(version));
        let each = assignment.shards_each();
        let assigned = assignment.shards.iter().map(|shard| shard.generation);
        let assigned = assigned.take(each.saturating_mul(all));
        let same = !sources.is_empty() && generations.flatten().eq(assigned);
        let committed = !sources.is_empty() && sources.iter().all(|source| source.holds(version));
        let mutants = self.config.mutants;
        match (same, committed) {
            (true, false) if !mutants.no_dag_order => Standing::BeingFilled,
            (false, _) if !mutants.no_commit_fence => Standing::Gone,
            _ => Standing::Stands,
        }
    }

    /// The group holds what was assigned; its shards serve it at these generations.
    pub(super) fn commit(
        &mut self,
        incarnation: Incarnation,
        assignment: Assignment,
        generations: Vec<Generation>,
    ) {
        let transfer = self.transfer(incarnation).expect("checked");
        let prepared = std::mem::take(&mut transfer.prepared);
        let Assignment { version, catalog, replica: source, .. } = assignment;
        self.hold(incarnation, version, catalog, generations);
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let held = group.held.as_mut().expect("just set");
        held.sums = prepared.into_iter().map(|(shard, (_, sums))| (shard, sums)).collect();
        held.sealed = true;
        group.replicated = Some(version);
        self.counters.commits += 1;
        self.note_seeded(incarnation);
        // Whoever has read it meanwhile can commit now.
        self.agenda.extend(self.edges.readers_of(incarnation));
        self.finish(incarnation, Ok(Answer::Committed { version, source }));
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

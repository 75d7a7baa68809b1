//! `replicate` and `update`: resolve once, wait for a source, give the old copy up, read, commit.
//!
//! A transfer goes `Waiting -> Draining -> Reading -> committed`; a lost source sends it back to
//! `Waiting`. Until the first assignment is sent the group's old copy is whole, and is shown again
//! if the transfer fails; from then on the group holds nothing until all shards have committed (G4).

use super::Server;
use super::edges::{ATTEMPTS_PER_SOURCE, Choice};
use super::model::Resolution;
use super::transaction::{Phase, Transfer, name_shards};
use crate::message::{Answer, Assignment, ReadFailure, ServerMessage, SourceShard};
use crate::{
    Attempt, CallError, Generation, Incarnation, OpSeq, Selector, SessionId, ShardSums, Sum, Time,
    Version,
};

fn misuse(detail: String) -> CallError {
    CallError::Misuse { detail }
}

impl Server {
    pub(super) fn start_replicate(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
    ) -> Result<(), CallError> {
        self.check_registered(incarnation)?;
        if let Some(held) = &self.groups[&incarnation].held {
            let detail = format!("holds {}; call update or unpublish first", held.version);
            return Err(misuse(detail));
        }
        let model = &self.models[&self.groups[&incarnation].model];
        let version = match model.resolve(selector) {
            Resolution::Available(version) => Some(version),
            Resolution::NotYet => None,
            Resolution::Gone => return Err(self.unavailable(incarnation, selector)),
        };
        self.start_transfer(incarnation, version)
    }

    /// Tests and decides in one step, for all shards: skip, or go over to this version.
    pub(super) fn start_update(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
        allow_rollback: bool,
    ) -> Result<(), CallError> {
        self.check_registered(incarnation)?;
        let group = &self.groups[&incarnation];
        if group.held.as_ref().is_some_and(|held| !held.visible) {
            return Err(misuse("unpublish was begun and not finished; call it again".into()));
        }
        let held = group.held.as_ref().map(|held| held.version);
        let better = |version: &Version| match held {
            None => true,
            Some(held) => *version > held || (allow_rollback && *version != held),
        };
        match self.models[&group.model].resolve(selector) {
            Resolution::Available(version) if better(&version) => {
                self.start_transfer(incarnation, Some(version))
            }
            _ => {
                self.finish(incarnation, Ok(Answer::Unchanged { held }));
                Ok(())
            }
        }
    }

    fn check_registered(&self, incarnation: Incarnation) -> Result<(), CallError> {
        if self.groups[&incarnation].registered {
            return Ok(());
        }
        Err(misuse("nothing is registered; call register first".into()))
    }

    fn start_transfer(
        &mut self,
        incarnation: Incarnation,
        version: Option<Version>,
    ) -> Result<(), CallError> {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let transfer = Transfer { version, ..Transfer::default() };
        group.active_transaction().expect("checked").transfer = Some(transfer);
        self.start_waiting(incarnation)
    }

    /// The group's transfer, if its pending call is one.
    fn transfer(&mut self, incarnation: Incarnation) -> Option<&mut Transfer> {
        self.groups.get_mut(&incarnation)?.active_transaction()?.transfer.as_mut()
    }

    pub(super) fn advance_transfer(&mut self, now: Time, incarnation: Incarnation) {
        let phase = self.transfer(incarnation).expect("checked").phase;
        match phase {
            Phase::Waiting => self.look_for_source(now, incarnation),
            Phase::Draining => self.give_up_copy(incarnation),
            Phase::Reading => self.try_commit(incarnation),
        }
    }

    fn look_for_source(&mut self, now: Time, incarnation: Incarnation) {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active.expect("checked")];
        let transfer = transaction.transfer.as_ref().expect("checked");
        let selector = transaction.selector().expect("transfers have one");
        let Some(version) = transfer.version else {
            return self.resolve_late(now, incarnation, selector);
        };
        match self.choose_source(group, transfer, version) {
            // The place is taken only once all shards are there to use it.
            Choice::Granted(source) if transaction.arrived.len() == group.num_shards as usize => {
                self.grant(now, incarnation, source, version);
            }
            Choice::Granted(_) | Choice::Busy => {}
            Choice::Nobody => {
                let error = transfer.last_error.clone();
                let held = group.held.as_ref().map(|held| held.version);
                let result = match error {
                    Some(error) => Err(error),
                    None if transaction.is_update() => Ok(Answer::Unchanged { held }),
                    None => Err(self.unavailable(incarnation, selector)),
                };
                self.finish(incarnation, result);
            }
        }
    }

    fn resolve_late(&mut self, now: Time, incarnation: Incarnation, selector: Selector) {
        let model = &self.models[&self.groups[&incarnation].model];
        match model.resolve(selector) {
            Resolution::NotYet => {}
            Resolution::Gone => {
                let error = self.unavailable(incarnation, selector);
                self.finish(incarnation, Err(error));
            }
            Resolution::Available(version) => {
                self.transfer(incarnation).expect("checked").version = Some(version);
                self.look_for_source(now, incarnation);
            }
        }
    }

    /// The group may read from this source; its own readers finish first.
    fn grant(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        source: Incarnation,
        version: Version,
    ) {
        let group = self.groups.get_mut(&incarnation).expect("checked");
        self.edges.add(&group.model, version, incarnation, source);
        self.transfer(incarnation).expect("checked").phase = Phase::Draining;
        if self.groups[&incarnation].held.is_some() {
            self.hide_copy(incarnation);
            self.drain_until(incarnation, now + self.config.drain_deadline);
        }
        self.give_up_copy(incarnation);
    }

    fn give_up_copy(&mut self, incarnation: Incarnation) {
        let drained = self.drained(incarnation);
        let group = self.groups.get_mut(&incarnation).expect("checked");
        if group.held.as_ref().is_some_and(|held| !held.settled() || !drained) {
            return;
        }
        group.held = None;
        group.replicated = None;
        self.end_drain(incarnation);
        self.assign(incarnation);
    }

    fn assign(&mut self, incarnation: Incarnation) {
        let source = self.edges.source_of(incarnation).expect("granted");
        let assignment = self.assignment(source);
        let transfer = self.transfer(incarnation).expect("checked");
        transfer.phase = Phase::Reading;
        transfer.attempt = transfer.attempt.next();
        transfer.assignment = Some(assignment.clone());
        transfer.prepared.clear();
        let attempt = transfer.attempt;
        self.counters.assignments += 1;
        let group = &self.groups[&incarnation];
        let seq = group.active.expect("checked");
        let sessions: Vec<SessionId> = group.members.values().map(|m| m.session).collect();
        for session in sessions {
            let assignment = assignment.clone();
            self.send(session, ServerMessage::Assigned { seq, attempt, assignment });
        }
    }

    /// How to read a group's copy.
    fn assignment(&self, source: Incarnation) -> Assignment {
        let group = &self.groups[&source];
        let held = group.held.as_ref().expect("sources hold a copy");
        let shards = group.members.iter().map(|(shard, member)| {
            let registration = member.registration.expect("who holds a copy is registered");
            SourceShard {
                data_address: member.data_address.clone(),
                export: registration.export,
                generation: held.generations[*shard as usize],
                layout: registration.layout,
            }
        });
        Assignment {
            version: held.version,
            catalog: held.catalog,
            replica: group.replica.clone(),
            shards: shards.collect(),
        }
    }

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
                let reason = format!("shard {shard} reading shard {source_shard}: {reason}");
                self.lose_source(incarnation, &reason, 1);
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
        let any_attempt = self.config.mutants.no_commit_fence;
        if self.groups[&incarnation].active != Some(seq) {
            return None;
        }
        let transfer = self.transfer(incarnation)?;
        let current = transfer.phase == Phase::Reading && transfer.attempt == attempt;
        (current || any_attempt).then_some((incarnation, shard))
    }

    /// All shards have read: commit, if the source still stands and the content is the publisher's.
    fn try_commit(&mut self, incarnation: Incarnation) {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active.expect("checked")];
        let transfer = transaction.transfer.as_ref().expect("checked");
        if transfer.prepared.len() < group.num_shards as usize {
            return;
        }
        let assignment = transfer.assignment.clone().expect("set while reading");
        if !self.source_stands(incarnation, &assignment) {
            return self.lose_source(incarnation, "it moved on", 0);
        }
        let sums = transfer.prepared.values().fold(ShardSums::default(), |a, (_, b)| a + *b);
        let content = self.models[&group.model].known.get(&assignment.version);
        let Some(expected) = content.and_then(|content| content.sum) else {
            if self.config.mutants.no_digest_check {
                self.commit(incarnation, assignment);
            }
            return; // the source has not sealed: its seal brings us back
        };
        match mismatch(sums, expected) {
            Some(detail) if !self.config.mutants.no_digest_check => {
                self.refuse_content(incarnation, &assignment, detail);
            }
            _ => self.commit(incarnation, assignment),
        }
    }

    /// Whether the source still holds what was assigned, at the same generations (S5).
    fn source_stands(&self, reader: Incarnation, assignment: &Assignment) -> bool {
        if self.config.mutants.no_commit_fence {
            return true;
        }
        let Some(source) = self.edges.source_of(reader).and_then(|s| self.groups.get(&s)) else {
            return false;
        };
        source.held.as_ref().is_some_and(|held| {
            held.version == assignment.version
                && held.fenced.is_none()
                && held.generations.iter().eq(assignment.shards.iter().map(|s| &s.generation))
        })
    }

    /// The bytes are not the publisher's. One reader's word evicts nobody (T4): another source is
    /// tried for this transfer, and the accusation is counted.
    fn refuse_content(&mut self, incarnation: Incarnation, assignment: &Assignment, detail: &str) {
        self.counters.digest_mismatches += 1;
        self.lose_source(incarnation, detail, ATTEMPTS_PER_SOURCE);
        let transfer = self.transfer(incarnation).expect("checked");
        transfer.last_error = Some(CallError::DigestMismatch {
            version: assignment.version,
            source_replica: assignment.replica.clone(),
            detail: detail.to_owned(),
        });
    }

    fn commit(&mut self, incarnation: Incarnation, assignment: Assignment) {
        let transfer = self.transfer(incarnation).expect("checked");
        let prepared = std::mem::take(&mut transfer.prepared);
        self.release_edge(incarnation);
        let generations = prepared.values().map(|(generation, _)| *generation).collect();
        let Assignment { version, catalog, replica: source, .. } = assignment;
        self.hold(incarnation, version, catalog, generations);
        let group = self.groups.get_mut(&incarnation).expect("checked");
        let held = group.held.as_mut().expect("just set");
        held.sums = prepared.into_iter().map(|(shard, (_, sums))| (shard, sums)).collect();
        held.sealed = true;
        group.replicated = Some(version);
        self.counters.commits += 1;
        self.finish(incarnation, Ok(Answer::Committed { version, source }));
    }

    /// A transfer has no source any more: it looks for another, or fails.
    pub(super) fn lose_source(&mut self, reader: Incarnation, reason: &str, failures: u32) {
        let Some(source) = self.release_edge(reader) else { return };
        let source_replica = self.groups.get(&source).map(|g| g.replica.clone());
        let Some(transfer) = self.transfer(reader) else { return };
        *transfer.failures.entry(source).or_default() += failures;
        transfer.prepared.clear();
        let was = std::mem::replace(&mut transfer.phase, Phase::Waiting);
        transfer.last_error = transfer.version.map(|version| CallError::SourceLost {
            version,
            source_replica: source_replica.unwrap_or_default(),
            reason: reason.to_owned(),
        });
        if was == Phase::Draining {
            self.keep_copy(reader);
        }
        self.agenda.insert(reader);
    }

    /// The group's transfer ends without success: its source is free, its old copy is kept if
    /// nothing has been read over it.
    pub(super) fn abandon_transfer(&mut self, incarnation: Incarnation) {
        self.release_edge(incarnation);
        let Some(transfer) = self.transfer(incarnation) else { return };
        if std::mem::take(&mut transfer.phase) == Phase::Draining
            && self.groups[&incarnation].over.is_none()
        {
            self.keep_copy(incarnation);
        }
    }

    /// The old copy was not given up after all.
    fn keep_copy(&mut self, incarnation: Incarnation) {
        self.end_drain(incarnation);
        let held = self.groups[&incarnation].held.as_ref();
        if held.is_some_and(|held| !held.visible && held.fenced.is_none()) {
            self.show_copy(incarnation);
        }
    }

    /// Lets go of the source: it may be drained now, or free for the next.
    fn release_edge(&mut self, reader: Incarnation) -> Option<Incarnation> {
        let model = self.groups[&reader].model.clone();
        let source = self.edges.remove(&model, reader)?;
        self.agenda.insert(source);
        self.changed.insert(model);
        Some(source)
    }

    /// What a transfer was waiting for when its deadline passed.
    pub(super) fn transfer_waits_for(&self, incarnation: Incarnation) -> String {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active.expect("checked")];
        let transfer = transaction.transfer.as_ref().expect("checked");
        let version = transfer.version.map(|v| v.to_string()).unwrap_or_default();
        let unread: Vec<u32> =
            (0..group.num_shards).filter(|s| !transfer.prepared.contains_key(s)).collect();
        match (transfer.phase, name_shards(&unread)) {
            (Phase::Waiting, _) => format!("a free source of version {version}"),
            (Phase::Draining, _) => format!("readers of replica {}", group.replica),
            (Phase::Reading, Some(unread)) => format!("{unread} to read version {version}"),
            (Phase::Reading, None) => format!("the publisher's digests of version {version}"),
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

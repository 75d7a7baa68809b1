//! `replicate` and `update`: resolve once, wait for a source, give the old copy up, read, commit.
//!
//! A transfer goes `Waiting -> Draining -> Reading -> committed`; a lost source sends the transfer back to
//! `Waiting`. Until the first assignment is sent the group's old copy is whole, and is listed again if the transfer
//! fails. From then on the group holds nothing until all shards have committed (G4). When a source is lost the
//! shards keep what they have read, unless the source was proved bad.
//!
//! A staged update (`staging`) reads first and gives the old copy up afterwards:
//! `Waiting -> Reading -> Draining -> Installing -> committed`.

use crate::message::{Answer, Assignment, ServerMessage};
use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::TransferHandler;
use crate::server::stores::model::Resolution;
use crate::server::stores::transaction::{GroupTransfer, Phase};
use crate::server::transfers::Onward;
use crate::server::transfers::choose::Choice;
use crate::{Attempt, CallError, Incarnation, Selector, Time, Version};

fn misuse(detail: String) -> CallError {
    CallError::Misuse { detail }
}

impl TransferHandler<'_> {
    pub(in crate::server) fn start_replicate(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
    ) -> Result<(), CallError> {
        let reader = self.books().group(incarnation);
        reader.check_registered()?;
        if let Some(held) = &reader.group.held {
            let detail = format!("holds {}; call update or unpublish first", held.version);
            return Err(misuse(detail));
        }
        let version = match reader.resolve(selector) {
            Resolution::Available(version) => Some(version),
            Resolution::NotYet => None,
            Resolution::Gone => return Err(reader.unavailable(selector)),
        };
        self.start_transfer(incarnation, version, false)
    }

    /// Decides once, for all shards: keep the copy, or go over to this version. A group that holds nothing has no
    /// copy to keep, and waits.
    pub(in crate::server) fn start_update(
        &mut self,
        incarnation: Incarnation,
        selector: Selector,
        allow_rollback: bool,
        staged: bool,
    ) -> Result<(), CallError> {
        let reader = self.books().group(incarnation);
        reader.check_registered()?;
        if reader.group.held.as_ref().is_some_and(|held| !held.visible) {
            return Err(misuse("unpublish was begun and not finished; call it again".into()));
        }
        let held = reader.group.held.as_ref().map(|held| held.version);
        match reader.model.resolve(selector) {
            Resolution::Available(version) if replaces(version, held, allow_rollback) => {
                let staged = staged && held.is_some();
                let version = reader.nearby_instead(selector, version);
                self.start_transfer(incarnation, Some(version), staged)
            }
            // A group that holds nothing waits for a version, or fails, as with `replicate`: users take "unchanged"
            // for "go on", and would work with memory that holds nothing.
            Resolution::NotYet if held.is_none() => self.start_transfer(incarnation, None, false),
            Resolution::Gone if held.is_none() => Err(reader.unavailable(selector)),
            _ => {
                self.calls().finish(incarnation, Ok(Answer::Unchanged { held }));
                Ok(())
            }
        }
    }

    fn start_transfer(
        &mut self,
        incarnation: Incarnation,
        version: Option<Version>,
        staged: bool,
    ) -> Result<(), CallError> {
        let group = self.groups.of_mut(&incarnation);
        let transfer = GroupTransfer { version, staged, ..GroupTransfer::default() };
        group.pending_mut().transfer = Some(transfer);
        self.calls().start_waiting(incarnation);
        Ok(())
    }

    /// Moves a transfer on as far as it goes.
    pub(in crate::server) fn advance(&mut self, now: Time, incarnation: Incarnation) -> Onward {
        let phase = self.groups.pending_transfer(incarnation).phase;
        match phase {
            Phase::Waiting => return self.look_for_source(now, incarnation),
            Phase::Draining => self.give_up_copy(now, incarnation),
            Phase::Reading => return self.try_commit(now, incarnation),
            Phase::Installing => self.try_commit_installed(incarnation),
        }
        Onward::Done
    }

    fn look_for_source(&mut self, now: Time, incarnation: Incarnation) -> Onward {
        let reader = self.books().transfer(incarnation);
        if reader.group.unheard {
            return Onward::Done; // a shard could not hear of a source
        }
        let selector = reader.call.as_selector();
        let Some(version) = reader.transfer.version else {
            return self.resolve_late(now, incarnation, selector);
        };
        if reader.could_keep_copy()
            && let Some(before) =
                self.durability().leave_to_seed(now, incarnation, selector, version)
        {
            return Onward::LeftToSeed(before);
        }
        let reader = self.books().transfer(incarnation);
        let whole = reader.call.is_whole(reader.group.num_shards);
        match reader.choose_source(version) {
            // The place is taken only once all shards are there to use it.
            Choice::Granted(source) if whole => {
                let sources = reader.stripes(version, source);
                self.grant(now, incarnation, sources, version);
            }
            Choice::Busy if whole => self.unstripe_for(incarnation, version),
            Choice::Granted(_) | Choice::Busy => {}
            Choice::Nobody if reader.is_void(selector, version) => {
                self.groups.pending_transfer(incarnation).version = None;
                return self.resolve_late(now, incarnation, selector);
            }
            Choice::Nobody => self.end_in_vain(incarnation, selector),
        }
        Onward::Done
    }

    /// No source is left: the transfer ends with the group's old copy, or with an error.
    fn end_in_vain(&mut self, incarnation: Incarnation, selector: Selector) {
        let reader = self.books().transfer(incarnation);
        let held = reader.group.held.as_ref().map(|held| held.version);
        let result = match (&reader.transfer.last_error, held) {
            (Some(error), _) => Err(error.clone()),
            (None, Some(_)) => Ok(Answer::Unchanged { held }),
            (None, None) => Err(reader.unavailable(selector)),
        };
        if result.is_err() {
            self.abandon_transfer(incarnation);
        }
        self.calls().finish(incarnation, result);
    }

    fn resolve_late(&mut self, now: Time, incarnation: Incarnation, selector: Selector) -> Onward {
        let reader = self.books().group(incarnation);
        match reader.resolve(selector) {
            Resolution::NotYet => {}
            Resolution::Gone => {
                let error = reader.unavailable(selector);
                self.calls().finish(incarnation, Err(error));
            }
            Resolution::Available(version) => {
                self.groups.pending_transfer(incarnation).version = Some(version);
                return self.look_for_source(now, incarnation);
            }
        }
        Onward::Done
    }

    /// Grants the sources. In an update in place the readers of the group's own copy finish first.
    fn grant(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        sources: Vec<Incarnation>,
        version: Version,
    ) {
        self.read_from(incarnation, version, sources);
        if self.groups.pending_transfer(incarnation).staged {
            return self.assign(incarnation);
        }
        self.drain_old_copy(now, incarnation);
    }

    /// Waits for the old copy's readers, then gives the copy up.
    pub(in crate::server) fn drain_old_copy(&mut self, now: Time, incarnation: Incarnation) {
        self.groups.pending_transfer(incarnation).phase = Phase::Draining;
        self.agenda.moved.push(incarnation);
        if self.groups.of(&incarnation).held.is_some() {
            self.copies().hide(incarnation);
            self.drain_until(incarnation, now + self.config.drain_deadline);
            self.durability().hold_until(now, incarnation, Time(u64::MAX));
        }
        self.give_up_copy(now, incarnation);
    }

    fn give_up_copy(&mut self, now: Time, incarnation: Incarnation) {
        let owner = self.books().group(incarnation);
        let drained = owner.is_drained() && !owner.may_be_last();
        // Ask retention before the copy is drained as well: it can be offloaded meanwhile.
        if let Some(held) = &owner.group.held
            && (!held.settled()
                || !self.durability().may_give_up(now, incarnation, drained)
                || !drained)
        {
            return;
        }
        let group = self.groups.of_mut(&incarnation);
        group.held = None;
        group.replicated = None;
        self.end_drain(incarnation);
        match self.groups.pending_transfer(incarnation).staged {
            true => self.install(now, incarnation),
            false => self.assign(incarnation),
        }
    }

    pub(super) fn assign(&mut self, incarnation: Incarnation) {
        let reader = self.books().transfer(incarnation);
        let sources = self.edges.sources_of(incarnation);
        let assignment = reader.assignment(sources, reader.transfer.resolved());
        let assignment = Assignment { staged: reader.transfer.staged, ..assignment };
        let kept = self.groups.of_mut(&incarnation).kept.take();
        let transfer = self.groups.pending_transfer(incarnation);
        transfer.go_on_after(kept);
        transfer.phase = Phase::Reading;
        self.agenda.moved.push(incarnation);
        transfer.attempt = transfer.attempt.next();
        if transfer.since == Attempt(0) || std::mem::take(&mut transfer.void) {
            transfer.since = transfer.attempt;
            transfer.progress.clear();
        }
        transfer.assignment = Some(assignment.clone());
        transfer.prepared.clear();
        let (attempt, since) = (transfer.attempt, transfer.since);
        self.counters.assignments += 1;
        self.counters.striped += u64::from(assignment.stripes() > 1);
        self.counters.relays += u64::from(assignment.in_flight);
        self.counters.resumes += u64::from(since != attempt);
        self.counters.crossings += u64::from(self.edges.crosses(incarnation));
        let group = self.groups.of(&incarnation);
        let seq = group.pending().seq;
        for member in group.members.values() {
            let assignment = assignment.clone();
            let message = ServerMessage::Assigned { seq, attempt, since, assignment };
            self.connections.send(member.session, message);
        }
    }
}

/// Whether an update replaces what the group holds by a version.
fn replaces(version: Version, held: Option<Version>, allow_rollback: bool) -> bool {
    held.is_none_or(|held| version > held || (allow_rollback && version != held))
}

impl GroupCtx<'_> {
    /// The version that a selector means for the group now. A seed is for one version only.
    fn resolve(&self, selector: Selector) -> Resolution {
        match self.group.seeds() {
            Some(version) => self.model.resolve_exactly(version),
            None => self.model.resolve(selector),
        }
    }

    fn check_registered(&self) -> Result<(), CallError> {
        match self.group.registered {
            true => Ok(()),
            false => Err(misuse("nothing is registered; call register first".into())),
        }
    }
}

impl TransferCtx<'_> {
    /// Whether the group could still keep its copy: nothing was read over it.
    fn could_keep_copy(&self) -> bool {
        self.call.is_update() && (self.transfer.attempt == Attempt(0) || self.transfer.staged)
    }

    /// Whether the chosen version has gone before any shard was told of it, and the selector means
    /// another version now. A group that holds nothing then takes the other version: it must not
    /// fail because the trainer was quicker than the group's turn.
    fn is_void(&self, selector: Selector, version: Version) -> bool {
        self.transfer.attempt == Attempt(0)
            && self.group.held.is_none()
            && self.group.seeds().is_none()
            && self.resolve(selector) != Resolution::Available(version)
    }
}

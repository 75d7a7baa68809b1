//! The ends of group transactions: answers, repeated answers and deadlines (G1, G5, L1).

use super::Server;
use super::timers::Timer;
use super::transaction::call_name;
use crate::message::{Answer, Call, ServerMessage};
use crate::{CallError, Incarnation, OpSeq, SessionId, Time};

impl Server {
    /// Ends the group's pending call: one result, told to all that have asked and kept for the rest.
    /// A good one waits until all have.
    pub(super) fn finish(&mut self, incarnation: Incarnation, result: Result<Answer, CallError>) {
        let waits = !self.config.mutants.no_group_transaction;
        let group = self.groups.get_mut(&incarnation).expect("groups finish while they live");
        let num_shards = group.num_shards as usize;
        let Some(transaction) = group.active_transaction() else { return };
        if let Ok(answer) = &result
            && waits
            && transaction.arrived.len() < num_shards
        {
            transaction.decided = Some(answer.clone());
            return;
        }
        let seq = transaction.seq;
        // What was kept back for the last shard does not count any more if the call has failed.
        transaction.decided = None;
        let pinned: Vec<_> = transaction.pinned().collect();
        transaction.result = Some(result.clone());
        transaction.transfer = transaction.transfer.take().filter(|t| t.assignment.is_some());
        let place = transaction.place.take();
        let shards: Vec<u32> = transaction.arrived.keys().copied().collect();
        group.active = None;
        let sessions: Vec<SessionId> =
            shards.iter().filter_map(|s| group.members.get(s)).map(|m| m.session).collect();
        if let Some(place) = place {
            self.models.get_mut(&group.model).expect("exists").waiting.remove(&place);
        }
        self.timers.cancel(Timer::Call(incarnation, seq));
        pinned.into_iter().for_each(|layout| self.blobs.release(layout));
        for session in sessions {
            self.answer(session, seq, result.clone());
        }
    }

    pub(super) fn answer(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        result: Result<Answer, CallError>,
    ) {
        if let Ok(answer) = &result {
            self.vouch(session, answer);
        }
        self.send(session, ServerMessage::Answered { seq, result });
    }

    /// A shard asks again after its stream broke: it is told all it may have missed.
    pub(super) fn repeat(&mut self, session: SessionId, incarnation: Incarnation, seq: OpSeq) {
        let transaction = &self.groups[&incarnation].transactions[&seq];
        let result = transaction.result.clone();
        // Even before an error: from the assignment a session knows that it gave its copy up.
        let assigned = transaction.transfer.as_ref().and_then(|transfer| {
            let assignment = transfer.assignment.clone()?;
            let (attempt, since) = (transfer.attempt, transfer.since);
            Some(ServerMessage::Assigned { seq, attempt, since, assignment })
        });
        let gave_up = transaction.transfer.as_ref().filter(|transfer| transfer.gave_up);
        let deadline = self.config.install_deadline;
        let install = gave_up.map(|transfer| ServerMessage::Install {
            seq,
            attempt: transfer.attempt,
            deadline,
        });
        for message in assigned.into_iter().chain(install) {
            self.send(session, message);
        }
        if let Some(result) = result {
            self.answer(session, seq, result);
        }
    }

    /// The deadline of a group's call has passed.
    pub(super) fn call_timer(&mut self, now: Time, incarnation: Incarnation, seq: OpSeq) {
        let active = |server: &Self| server.groups.get(&incarnation).and_then(|g| g.active);
        if active(self) == Some(seq) && self.unpublishes(incarnation) {
            // Rather than leave the memory immutable for want of an offload.
            self.give_up_hold(now, incarnation);
        }
        if active(self) != Some(seq) {
            return;
        }
        let error = self.timeout_error(incarnation);
        self.counters.timeouts += 1;
        let keeps = !self.config.mutants.reads_from_zero;
        self.groups.entry(incarnation).and_modify(|group| group.leave_to_next(keeps));
        self.abandon_transfer(incarnation);
        self.finish(incarnation, Err(error));
    }

    /// What a call was waiting for when its deadline passed.
    fn timeout_error(&self, incarnation: Incarnation) -> CallError {
        let group = &self.groups[&incarnation];
        let transaction = &group.transactions[&group.active.expect("checked by the caller")];
        let missing = transaction.missing(group.num_shards);
        if missing.is_none()
            && let Some(error) = self.version_missing(incarnation)
        {
            return error;
        }
        let waiting_for = match (missing, &transaction.call) {
            (Some(missing), _) if group.complete() => {
                format!("{missing} of replica {} to call", group.replica)
            }
            (Some(_), _) => group.waits_to_open(),
            (None, Call::Replicate { .. } | Call::Update { .. }) => {
                self.transfer_waits_for(incarnation)
            }
            (None, Call::Unpublish) => self.unpublish_waits_for(incarnation),
            (None, Call::Wait { until }) => self.wait_waits_for(incarnation, *until),
            (None, _) => format!("replica {}", group.replica),
        };
        CallError::Timeout { call: call_name(&transaction.call), waiting_for }
    }

    /// With `no_group_transaction`, answers that depend on the moment are found anew.
    pub(super) fn unless_mutant(
        &mut self,
        incarnation: Incarnation,
        seq: OpSeq,
        recorded: Result<Answer, CallError>,
    ) -> Result<Answer, CallError> {
        if !self.config.mutants.no_group_transaction {
            return recorded;
        }
        let group = &self.groups[&incarnation];
        match group.transactions[&seq].call {
            Call::List | Call::Wait { .. } => {
                let model = self.models.get_mut(&group.model).expect("groups have a model");
                Ok(Answer::Listed(model.listing()))
            }
            _ => recorded,
        }
    }
}

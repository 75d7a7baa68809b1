//! Calls: one at a time, numbered, sent again after a reconnect, answered once (G5).

use super::transfer::ShardTransfer;
use super::{Output, Session};
use crate::message::{Answer, Call, ClientMessage, Registration};
use crate::{CallError, OpSeq, Safeguard, Span, Term, Time};

/// The call that has not been answered yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) seq: OpSeq,
    call: Call,
    deadline: Time,
    /// Set once a source was assigned: the memory holds nothing from then on.
    pub(super) transfer: Option<ShardTransfer>,
    /// A publish that exposed the memory, not one of what is published already.
    fresh: bool,
    /// The shard was prepared when it lost its server: what the call fails with if it fails.
    pub(super) doubt: Option<CallError>,
}

impl Pending {
    pub(super) fn deadline(&self) -> Time {
        self.deadline
    }

    /// What is begun now is not to be broken off for the deadline.
    pub(super) fn extend_deadline(&mut self, at_least: Time) {
        self.deadline = self.deadline.max(at_least);
    }
}

impl Session {
    /// Makes a call; it ends with `Output::Done` of the returned number, by the deadline or
    /// shortly after. Waits for the session to open. A publish's generation is filled in here.
    ///
    /// Errors: `Misuse` if another call is pending or the session is closed; the error that ended
    /// the session if it has failed.
    pub fn call(&mut self, now: Time, call: Call, deadline: Span) -> Result<OpSeq, CallError> {
        self.tick(now);
        self.check_callable()?;
        let mut call = call;
        let fresh = matches!(call, Call::Publish { .. }) && self.memory.version().is_none();
        if let Call::Publish { generation, .. } = &mut call {
            *generation = self.memory.generation();
        }
        if fresh {
            // Readers may come as soon as the other shards have called.
            self.expose();
        }
        self.withdrawn |= matches!(call, Call::Unpublish);
        self.last_seq = self.last_seq.next();
        let seq = self.last_seq;
        let deadline = now + deadline;
        self.pending = Some(Pending { seq, call, deadline, transfer: None, fresh, doubt: None });
        self.send_call(now);
        Ok(seq)
    }

    fn check_callable(&self) -> Result<(), CallError> {
        let misuse = |detail: &str| Err(CallError::Misuse { detail: detail.to_owned() });
        match &self.ended {
            Some(ended) => match &ended.error {
                Some(error) => return Err(error.clone()),
                None => return misuse("the handle is closed; open it again"),
            },
            None if self.closing.is_some() => return misuse("the handle is being closed"),
            None => {}
        }
        if self.pending.is_some() {
            return misuse("another call of this handle is running; wait for it first");
        }
        Ok(())
    }

    /// Sends on the stream, if it is open; what must not be lost is sent again on the next one.
    pub(super) fn send(&mut self, message: ClientMessage) {
        if self.link.is_open() && self.suspended.is_none() {
            self.outputs.push_back(Output::Send(message));
        }
    }

    fn send_call(&mut self, now: Time) {
        if let Some(pending) = &self.pending {
            let Pending { seq, call, deadline, .. } = pending;
            let message =
                ClientMessage::Call { seq: *seq, deadline: *deadline - now, call: call.clone() };
            self.send(message);
        }
    }

    /// A stream is open again: says all that the server may have missed.
    pub(super) fn send_again(&mut self, now: Time) {
        if self.config.safeguards.on(Safeguard::SealRepeated) {
            self.send_seal();
        }
        self.renew_publish();
        self.send_call(now);
        self.send_filling();
        self.send_report();
        self.send_offload_failed();
        self.send_seed_failed();
        self.send_close(now);
    }

    /// A publish that is made again offers the memory at its present generation.
    fn renew_publish(&mut self) {
        let Some(pending) = &mut self.pending else { return };
        let fresh = pending.fresh;
        if let Call::Publish { generation, .. } = &mut pending.call {
            *generation = self.memory.generation();
        }
        if fresh && !self.memory.exposed() {
            self.expose();
        }
    }

    pub(super) fn answered(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        if self.pending.as_ref().is_none_or(|pending| pending.seq != seq) {
            return; // a repetition
        }
        if let Err(error @ (CallError::GroupBroken { .. } | CallError::GroupDiverged { .. })) =
            result
        {
            return self.fail(error);
        }
        let sums = self.prepared_sums();
        let pending = self.pending.take().expect("checked");
        self.answered = seq;
        if matches!(pending.call, Call::Register { .. } | Call::Unregister) {
            let left = self.left.take();
            self.discard(left);
        }
        match (&result, &pending.call) {
            (Ok(Answer::Registered { .. }), Call::Register { layout, export, bytes }) => {
                let (layout, export, bytes) = (*layout, *export, *bytes);
                self.registration = Some(Registration { layout, export, bytes });
            }
            (Ok(Answer::Unregistered), _) => self.registration = None,
            (Ok(Answer::Published { .. }), Call::Publish { catalog, .. }) => {
                self.catalog = *catalog;
            }
            _ => {}
        }
        match &result {
            Ok(Answer::Published { version }) => self.published(*version, pending.fresh),
            Ok(Answer::Unpublished) => self.make_mutable(),
            // Of what was refused before: it is given up, and said so.
            Err(CallError::ContentMismatch { .. }) if pending.call == Call::Unpublish => {
                self.make_mutable();
            }
            Ok(Answer::Committed { version, .. }) => self.committed(*version, sums),
            Err(_) if pending.fresh => self.make_mutable(),
            Err(CallError::Timeout { .. }) => self.leave(pending.transfer),
            // A staged one may have lost its source and be left with what it had.
            Ok(Answer::Unchanged { .. }) | Err(_) => self.abandon(pending.transfer),
            Ok(_) => {}
        }
        self.outputs.push_back(Output::Done { seq, result });
    }

    /// When the pending call ends here if the server does not answer.
    pub(super) fn call_ends_at(&self) -> Option<Time> {
        let deadline = self.pending.as_ref()?.deadline;
        // Before it was open, the server knows nothing of the call: no need to wait for its word.
        Some(if self.lease.is_some() { deadline + self.config.grace } else { deadline })
    }

    pub(super) fn check_call_deadline(&mut self, now: Time) {
        if self.ended.is_some() || self.call_ends_at().is_none_or(|at| at > now) {
            return;
        }
        // The group may have another answer than this shard, which therefore leaves it (G1).
        match self.refused.take() {
            // Another shard may have an answer of an earlier term.
            Some(error) if self.term > Term(0) => self.lose_server(error.to_string()),
            Some(error) => self.fail(error),
            None if self.lease.is_some() => {
                self.lose_server("it did not answer within the deadline".into());
            }
            None => self.lose_server("could not connect within the deadline".into()),
        }
    }
}

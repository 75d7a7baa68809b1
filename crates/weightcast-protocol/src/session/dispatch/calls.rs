//! The user's calls: made, sent, sent again, answered, out of time.

use crate::message::{Answer, Assignment, Call, ClientMessage};
use crate::session::Session;
use crate::{Attempt, CallError, OpSeq, Safeguard, Span, Term, Time};

impl Session {
    /// Makes a call, which waits for the session to open. The call ends with `Output::Done` of the
    /// returned number, by the deadline or shortly after. A publish's generation is filled in here.
    ///
    /// Errors: `Misuse` if another call is pending or the session is closed; the error that ended
    /// the session if it has failed.
    pub fn call(&mut self, now: Time, call: Call, deadline: Span) -> Result<OpSeq, CallError> {
        self.tick(now);
        self.check_callable()?;
        let seq = self.work().begin(call, now + deadline);
        self.send(self.calls.call_message(now));
        Ok(seq)
    }

    fn check_callable(&self) -> Result<(), CallError> {
        let detail = match &self.ended {
            Some(Err(error)) => return Err(error.clone()),
            Some(Ok(())) => "the handle is closed; open it again",
            None if self.closing.is_some() => "the handle is being closed",
            None if self.calls.pending.is_some() => {
                "another call of this handle is running; wait for it first"
            }
            None => return Ok(()),
        };
        Err(CallError::Misuse { detail: detail.to_owned() })
    }

    /// A stream is open again: sends everything that the server may have missed.
    pub(super) fn send_again(&mut self, now: Time) {
        if self.config.safeguards.on(Safeguard::SealRepeated) {
            self.send(self.memory.seal_message());
        }
        self.work().offer();
        self.send(self.calls.call_message(now));
        self.send(self.filling_message());
        self.send(self.calls.report_message());
        self.send(self.memory.offload.failure());
        self.send(self.seed.failure());
        self.send(self.close_message(now));
    }

    /// The message that tells at which generation the memory is served while it is being filled.
    fn filling_message(&self) -> Option<ClientMessage> {
        self.calls.filling_message(self.memory.generation()).filter(|_| self.config.relays)
    }

    /// A source is assigned to the pending call.
    pub(in crate::session) fn assigned(
        &mut self,
        now: Time,
        seq: OpSeq,
        attempt: Attempt,
        since: Attempt,
        assignment: Assignment,
    ) {
        if let Some(read) = self.work().assigned(now, seq, attempt, since, assignment) {
            self.send(self.filling_message());
            self.outputs.push_back(read);
        }
    }

    /// The server has answered a call.
    pub(in crate::session) fn answered(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        match result {
            Err(error @ (CallError::GroupBroken { .. } | CallError::GroupDiverged { .. })) => {
                if self.calls.pending_as(seq).is_some() {
                    self.fail(error);
                }
            }
            result => self.work().answered(seq, result),
        }
    }

    /// When the session gives the pending call up if the server does not answer.
    pub(in crate::session) fn call_ends_at(&self) -> Option<Time> {
        let deadline = self.calls.pending.as_ref()?.deadline;
        // A server that never opened the session knows nothing of the call, so there is no answer
        // to wait for.
        Some(if self.lease.is_some() { deadline + self.config.grace } else { deadline })
    }

    pub(in crate::session) fn check_call_deadline(&mut self, now: Time) {
        if self.ended.is_some() || self.call_ends_at().is_none_or(|at| at > now) {
            return;
        }
        // The other shards may get an answer that this shard missed, so the shard leaves its group
        // (G1).
        match self.refused.take() {
            // Another shard may have got an answer in an earlier term.
            Some(error) if self.term > Term(0) => self.lose_server(error.to_string()),
            Some(error) => self.fail(error),
            None if self.lease.is_some() => {
                self.lose_server("it did not answer within the deadline".into());
            }
            None => self.lose_server("could not connect within the deadline".into()),
        }
    }
}

//! Ends calls and tells their callers the result.

use tracing::Span;
use weightcast_protocol::message::Answer;
use weightcast_protocol::{CallError, OpSeq};

use super::Control;
use crate::client::event::FailedCall;

impl Control {
    pub(super) fn done(&mut self, seq: OpSeq, result: Result<Answer, CallError>) {
        self.memory.end_push();
        let arrived = self.memory.take_arrived(result.is_ok());
        // The span ends with the call.
        self.memory.call_span = Span::none();
        if let Err(error) = &result {
            // Before the caller hears of it, who may look for the file.
            self.session.call_failed(error);
        }
        let Some(pending) = self.pending.remove(&seq) else { return };
        let result = match result {
            Ok(answer) => Ok((answer, arrived.map(|a| a.transfer).unwrap_or_default())),
            Err(error @ CallError::DigestMismatch { .. }) => {
                let evidence = arrived.map(|a| Box::new(a.evidence));
                Err(FailedCall { error, evidence, refusal: None })
            }
            Err(error @ CallError::ContentMismatch { .. }) => Err(self.refused(error)),
            Err(error) => Err(self.explain(error).into()),
        };
        pending.end(result);
    }

    /// Answers the waits for the seal, once the publication is accepted or refused.
    pub(super) fn tell_verdict(&mut self) {
        let Some(verdict) = self.session.verdict() else { return };
        for reply in std::mem::take(&mut self.awaiting_seal) {
            let _ = reply.send(verdict.clone().map_err(|error| self.refused(error)));
        }
    }

    /// The failed call, with the search that finds the differing tensor.
    fn refused(&self, error: CallError) -> FailedCall {
        FailedCall { error, evidence: None, refusal: self.memory.refusal() }
    }

    pub(super) fn closed(&mut self) {
        self.memory.stop_read();
        self.memory.end_push();
        self.memory.call_span = Span::none();
        let gone = self.gone();
        for reply in self.awaiting_open.drain(..) {
            let _ = reply.send(Err(gone.clone()));
        }
        for reply in self.awaiting_seal.drain(..) {
            let _ = reply.send(Err(gone.clone().into()));
        }
        for (_, pending) in std::mem::take(&mut self.pending) {
            pending.end(Err(gone.clone().into()));
        }
        for reply in self.awaiting_end.drain(..) {
            let _ = reply.send(self.session.error().cloned());
        }
        self.over = true;
    }

    /// The error of calls on an ended session.
    pub(super) fn gone(&self) -> CallError {
        match self.session.error() {
            Some(error) => self.explain(error.clone()),
            None => CallError::Misuse { detail: "the handle is closed; open it again".to_owned() },
        }
    }

    /// Replaces `ServerUnreachable` by what made the last stream fail: the session machine only
    /// knows that no answer came.
    pub(super) fn explain(&self, error: CallError) -> CallError {
        match error {
            CallError::ServerUnreachable { .. } => self.shared.trouble().unwrap_or(error),
            error => error,
        }
    }
}

//! Every way out: closed by the user, refused by the server, or failed. All fence first (S3).

use super::{Output, Session};
use crate::message::ClientMessage;
use crate::{CallError, Span, Time};

/// A close on its way.
#[derive(Clone, Debug)]
pub(super) struct Closing {
    /// When the readers are to be gone.
    deadline: Time,
    /// When the session ends even if the server does not answer.
    pub(super) until: Time,
}

/// The end.
#[derive(Clone, Debug)]
pub(super) struct Ended {
    /// Set if it was not closed by the user.
    pub(super) error: Option<CallError>,
}

impl Session {
    /// Leaves the group; readers have until the deadline to finish. Ends with `Output::Closed`.
    /// A pending call ends now with `Misuse`, its read is stopped first.
    pub fn close(&mut self, now: Time, deadline: Span) {
        self.tick(now);
        if self.ended.is_some() || self.closing.is_some() {
            return;
        }
        if let Some(pending) = self.pending.take() {
            let detail = "the handle was closed during the call".to_owned();
            self.abandon(pending.transfer);
            let result = Err(CallError::Misuse { detail });
            self.outputs.push_back(Output::Done { seq: pending.seq, result });
        }
        if self.suspended.is_some() {
            // Nobody reads here, and there is no group to leave: its server lets it go, or finds out.
            if self.link.is_open() {
                self.outputs.push_back(Output::Send(ClientMessage::Close { deadline }));
            }
            return self.end(None);
        }
        let deadline = now + deadline;
        self.closing = Some(Closing { deadline, until: deadline + self.config.grace });
        if self.lease.is_none() && !self.link.may_be_open() {
            return self.left();
        }
        self.send_close(now);
    }

    /// The server will never take this session (a wrong token): trying again is no use.
    pub fn handle_refused(&mut self, error: CallError) {
        self.fail(error);
    }

    pub(super) fn send_close(&mut self, now: Time) {
        if let Some(closing) = &self.closing {
            let deadline = closing.deadline - now;
            self.send(ClientMessage::Close { deadline });
        }
    }

    pub(super) fn check_close_deadline(&mut self, now: Time) {
        if self.closing.as_ref().is_some_and(|closing| closing.until <= now) {
            self.left();
        }
    }

    /// The session is over as the user wished.
    pub(super) fn left(&mut self) {
        if self.closing.is_some() {
            self.end(None);
        }
    }

    /// The session is over: its group broke, or it can't reach the server.
    pub(super) fn fail(&mut self, error: CallError) {
        let error = if self.closing.is_some() { None } else { Some(error) };
        self.end(error);
    }

    fn end(&mut self, error: Option<CallError>) {
        if self.ended.is_some() {
            return;
        }
        let unreachable = matches!(error, Some(CallError::ServerUnreachable { .. }));
        let doubt = self.doubt().or(self.in_doubt().filter(|_| unreachable));
        let pending = self.pending.take();
        let seq = pending.as_ref().map(|pending| pending.seq);
        self.abandon(pending.and_then(|pending| pending.transfer));
        self.make_mutable();
        if let (Some(seq), Some(error)) = (seq, doubt.or(error.clone())) {
            self.outputs.push_back(Output::Done { seq, result: Err(error) });
        }
        self.closing = None;
        self.seed = None; // it goes on, and nobody is told of it any more
        self.ended = Some(Ended { error: error.clone() });
        self.outputs.push_back(Output::Closed { error });
    }
}

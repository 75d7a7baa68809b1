//! Every end of a session: closed by the user, refused by the server, or failed. Each end fences
//! first (S3).

use crate::message::ClientMessage;
use crate::session::Session;
use crate::session::host::Output;
use crate::session::seed::Seed;
use crate::{CallError, Span, Time};

impl Session {
    /// Leaves the group; readers have until the deadline to finish. Ends with `Output::Closed`.
    /// A pending call ends now with `Misuse`, its read is stopped first.
    pub fn close(&mut self, now: Time, deadline: Span) {
        self.tick(now);
        if self.ended.is_some() || self.closing.is_some() {
            return;
        }
        if let Some(seq) = self.work().break_off() {
            let detail = "the handle was closed during the call".to_owned();
            let result = Err(CallError::Misuse { detail });
            self.outputs.push_back(Output::Done { seq, result });
        }
        if self.suspended.is_some() {
            // A suspended session serves nothing and has no group to leave. Its server drops it
            // now, or evicts it later.
            if self.link.is_open() {
                self.outputs.push_back(Output::Send(ClientMessage::Close { deadline }));
            }
            return self.end(Ok(()));
        }
        self.closing = Some(now + deadline);
        if self.lease.is_none() && !self.link.may_be_open() {
            return self.left();
        }
        self.send(self.close_message(now));
    }

    /// The server will never accept this session (a wrong token), so trying again is useless.
    pub fn handle_refused(&mut self, error: CallError) {
        self.fail(error);
    }

    /// The message that tells the server that the session is closing.
    pub(super) fn close_message(&self, now: Time) -> Option<ClientMessage> {
        self.closing.map(|deadline| ClientMessage::Close { deadline: deadline - now })
    }

    /// When a closing session ends even if the server does not answer.
    pub(in crate::session) fn close_ends_at(&self) -> Option<Time> {
        self.closing.map(|deadline| deadline + self.config.grace)
    }

    pub(in crate::session) fn check_close_deadline(&mut self, now: Time) {
        if self.close_ends_at().is_some_and(|at| at <= now) {
            self.left();
        }
    }

    /// The session is over, as the user wished.
    pub(in crate::session) fn left(&mut self) {
        if self.closing.is_some() {
            self.end(Ok(()));
        }
    }

    /// The session is over: its group broke, or it can't reach the server. Not an error for a
    /// closing session.
    pub(in crate::session) fn fail(&mut self, error: CallError) {
        let wished = self.closing.is_some();
        self.end(if wished { Ok(()) } else { Err(error) });
    }

    fn end(&mut self, ended: Result<(), CallError>) {
        if self.ended.is_some() {
            return;
        }
        let unreachable = matches!(ended, Err(CallError::ServerUnreachable { .. }));
        let doubt = self.calls.doubt().or(self.calls.in_doubt().filter(|_| unreachable));
        let seq = self.work().break_off();
        self.memory.make_mutable(&mut self.outputs);
        let error = ended.clone().err();
        if let (Some(seq), Some(error)) = (seq, doubt.or(error.clone())) {
            self.outputs.push_back(Output::Done { seq, result: Err(error) });
        }
        self.closing = None;
        self.seed = Seed::default(); // the seed goes on, and nobody is told of it any more
        self.ended = Some(ended);
        self.outputs.push_back(Output::Closed { error });
    }
}

//! A world's fingerprint: one number for its whole course.
//!
//! The number is a hash of the time, the kind and the ids of every event, and of every output of
//! servers and sessions. Texts for people, names of types and fields, and `{:?}` are left out. So a
//! renaming or a better sentence keeps the number, and a changed decision does not. A variant
//! counts by its place in its enum, so new variants go last.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use weightcast_protocol::message::{Call, ClientMessage, ReadFailure, ServerMessage};
use weightcast_protocol::server::{Counters, ServerOutput};
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, Time};

use crate::parts::queue::{ProcessStep, WorldEvent};

/// The hash of everything so far.
#[derive(Default)]
pub(crate) struct Fingerprint(DefaultHasher);

impl Fingerprint {
    /// An event happens.
    pub(crate) fn event(&mut self, at: Time, event: &WorldEvent) {
        at.hash(&mut self.0);
        discriminant(event).hash(&mut self.0);
        match event {
            WorldEvent::Server(seat, step) => (seat, step).hash(&mut self.0),
            WorldEvent::ToServer(stream, message) => {
                stream.hash(&mut self.0);
                self.said_by_client(message);
            }
            WorldEvent::Process(life, ProcessStep::Message(stream, term, message)) => {
                (life, stream, term).hash(&mut self.0);
                self.said_by_server(message);
            }
            WorldEvent::Process(life, step) => (life, step).hash(&mut self.0),
            WorldEvent::Fault(kind) => kind.hash(&mut self.0),
            WorldEvent::Strike(strike) => strike.hash(&mut self.0),
            WorldEvent::Quiet => {}
        }
    }

    /// A session has put this out.
    pub(crate) fn session_output(&mut self, output: &Output) {
        match output {
            Output::Send(message) => self.said_by_client(message),
            Output::Done { seq, result: Err(error) } => {
                (discriminant(output), seq).hash(&mut self.0);
                self.error(error);
            }
            Output::Closed { error: Some(error) } => {
                discriminant(output).hash(&mut self.0);
                self.error(error);
            }
            output => output.hash(&mut self.0),
        }
    }

    /// A server has put this out.
    pub(crate) fn server_output(&mut self, output: &ServerOutput) {
        match output {
            ServerOutput::Send { to, message } => {
                to.hash(&mut self.0);
                self.said_by_server(message);
            }
            ServerOutput::Disconnect { .. } => output.hash(&mut self.0),
        }
    }

    /// The fingerprint, with the server's counters.
    pub(crate) fn end(&mut self, counters: &Counters) -> u64 {
        counters.hash(&mut self.0);
        self.0.finish()
    }

    fn said_by_client(&mut self, message: &ClientMessage) {
        let into = &mut self.0;
        match message {
            ClientMessage::Call { seq, deadline, call: call @ Call::Decline { .. } } => {
                (discriminant(message), seq, deadline, discriminant(call)).hash(into);
            }
            ClientMessage::ReadFailed { seq, attempt, failure } => {
                let shard = match failure {
                    ReadFailure::Source { shard, .. } => Some(shard),
                    ReadFailure::Layout { .. } => None,
                };
                (discriminant(message), seq, attempt, shard).hash(into);
            }
            ClientMessage::OffloadFailed { version, generation, .. } => {
                (discriminant(message), version, generation).hash(into);
            }
            message => message.hash(into),
        }
    }

    fn said_by_server(&mut self, message: &ServerMessage) {
        let kind = discriminant(message);
        match message {
            ServerMessage::Refused { error, retry } => {
                (kind, retry).hash(&mut self.0);
                self.error(error);
            }
            ServerMessage::Answered { seq, result: Err(error) } => {
                (kind, seq).hash(&mut self.0);
                self.error(error);
            }
            ServerMessage::Fenced { generation, error, witnesses } => {
                (kind, generation, witnesses).hash(&mut self.0);
                self.error(error);
            }
            ServerMessage::Broken { error } => {
                kind.hash(&mut self.0);
                self.error(error);
            }
            message => message.hash(&mut self.0),
        }
    }

    fn error(&mut self, error: &CallError) {
        let into = &mut self.0;
        discriminant(error).hash(into);
        match error {
            CallError::VersionUnavailable { selector, latest, .. } => (selector, latest).hash(into),
            CallError::SourceLost { version, source_replica, .. }
            | CallError::DigestMismatch { version, source_replica, .. } => {
                (version, source_replica).hash(into);
            }
            CallError::ContentMismatch { version, replica, .. } => (version, replica).hash(into),
            CallError::GroupDiverged { replica, seq, shard_a, shard_b, .. } => {
                (replica, seq, shard_a, shard_b).hash(into);
            }
            CallError::LayoutMismatch { replica, .. } | CallError::GroupBroken { replica, .. } => {
                replica.hash(into);
            }
            CallError::ServerUnreachable { server, .. } => server.hash(into),
            CallError::InDoubt { version } => version.hash(into),
            CallError::Limit { limit, got, .. } => (limit, got).hash(into),
            CallError::Timeout { .. } | CallError::Misuse { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::{Attempt, ConnectionId, Generation, OpSeq, Span, Version};

    use super::*;

    const VERSION: Version = Version { epoch: weightcast_protocol::Epoch(1), number: 7 };

    fn of_client(message: &ClientMessage) -> u64 {
        let mut print = Fingerprint::default();
        print.said_by_client(message);
        print.end(&Counters::default())
    }

    fn of_error(error: CallError) -> u64 {
        let mut print = Fingerprint::default();
        print.said_by_server(&ServerMessage::Broken { error });
        print.end(&Counters::default())
    }

    #[test]
    fn a_better_sentence_changes_nothing_and_an_id_does() {
        let lost = |number, reason: &str| {
            let (source_replica, reason) = ("trainer".to_owned(), reason.to_owned());
            of_error(CallError::SourceLost {
                version: Version { number, ..VERSION },
                source_replica,
                reason,
            })
        };
        assert_eq!(lost(7, "gone"), lost(7, "it is gone"));
        assert_ne!(lost(7, "gone"), lost(8, "gone"));
        let misuse = |detail: &str| of_error(CallError::Misuse { detail: detail.to_owned() });
        assert_eq!(misuse("no"), misuse("never"));
        assert_ne!(misuse("no"), lost(7, "gone"));

        let failed = |attempt, reason: &str| {
            let failure = ReadFailure::Source { shard: 0, reason: reason.to_owned() };
            of_client(&ClientMessage::ReadFailed {
                seq: OpSeq(1),
                attempt: Attempt(attempt),
                failure,
            })
        };
        assert_eq!(failed(1, "a"), failed(1, "b"));
        assert_ne!(failed(1, "a"), failed(2, "a"));
        let declines = |seq, detail: &str| {
            let call = Call::Decline { detail: detail.to_owned() };
            of_client(&ClientMessage::Call { seq: OpSeq(seq), deadline: Span(1), call })
        };
        assert_eq!(declines(1, "a"), declines(1, "b"));
        assert_ne!(declines(1, "a"), declines(2, "a"));
    }

    #[test]
    fn time_kind_and_order_count() {
        let of = |events: &[(u64, WorldEvent)]| {
            let mut print = Fingerprint::default();
            events.iter().for_each(|(at, event)| print.event(Time(*at), event));
            print.end(&Counters::default())
        };
        let gone = |stream| {
            let seat = crate::parts::queue::Seat { host: 0, life: 0 };
            WorldEvent::Server(seat, crate::parts::queue::ServerStep::Gone(ConnectionId(stream)))
        };
        let one = of(&[(1, gone(1)), (1, gone(2))]);
        assert_eq!(one, of(&[(1, gone(1)), (1, gone(2))]));
        for other in [
            of(&[(1, gone(2)), (1, gone(1))]),
            of(&[(1, gone(1)), (2, gone(2))]),
            of(&[(1, gone(1))]),
            of(&[(1, gone(1)), (1, WorldEvent::Quiet)]),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn what_is_put_out_counts() {
        let of = |output: Output| {
            let mut print = Fingerprint::default();
            print.session_output(&output);
            print.end(&Counters::default())
        };
        let prints = [
            of(Output::Expose(Generation(1))),
            of(Output::Expose(Generation(2))),
            of(Output::Fence(Generation(1))),
            of(Output::StopRead),
            of(Output::Closed { error: None }),
            of(Output::Closed { error: Some(CallError::InDoubt { version: VERSION }) }),
            of(Output::Done {
                seq: OpSeq(1),
                result: Err(CallError::InDoubt { version: VERSION }),
            }),
        ];
        let distinct: std::collections::BTreeSet<u64> = prints.into_iter().collect();
        assert_eq!(distinct.len(), prints.len());
        let counted = Counters { commits: 1, ..Counters::default() };
        assert_ne!(
            Fingerprint::default().end(&counted),
            Fingerprint::default().end(&Counters::default())
        );
    }
}

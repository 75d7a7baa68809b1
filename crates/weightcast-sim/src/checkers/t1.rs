//! T1: a session acts only within its lease. The lease counts from when the message left that the
//! server renewed it for.
//!
//! The checker does not ask the session: it sees on the wire when messages leave, by the clock of
//! the session's process. The session's side is the stricter half. The server counts from when it
//! hears the message, which is later, and waits a margin longer; clocks drift by less than the two
//! margins.

use std::collections::BTreeMap;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{ConnectionId, Generation, Span, Term, Time};

use super::{Act, Checker, Fact};

/// A session stops acting this much of its lease early.
const MARGIN_PERCENT: u64 = 10;

/// A clock moves in steps. An act in the step in which the lease ends is in time.
const STEP: Span = Span(2_000);

/// One life of a process.
type SessionLife = (usize, u32);

#[derive(Default)]
pub(super) struct WithinLease {
    /// When `Open` last left on each stream, by the clock of its process.
    opens: BTreeMap<ConnectionId, Time>,
    /// When each heartbeat left, by the number that the server repeats in its answer.
    heartbeats: BTreeMap<(SessionLife, u64), Time>,
    leases: BTreeMap<SessionLife, Granted>,
}

/// A session's lease in one term.
struct Granted {
    term: Term,
    ttl: Span,
    sent_at: Time,
    /// The generation that the session has served within the lease.
    serves: Option<Generation>,
}

impl Granted {
    fn until(&self) -> Time {
        self.sent_at + self.ttl.scaled(100 - MARGIN_PERCENT, 100) + STEP
    }
}

impl WithinLease {
    fn sent(
        &mut self,
        session: SessionLife,
        stream: ConnectionId,
        at: Time,
        message: &ClientMessage,
    ) {
        match message {
            ClientMessage::Open(_) => {
                self.opens.insert(stream, at);
            }
            ClientMessage::Heartbeat { sent_at } | ClientMessage::Progress { sent_at, .. } => {
                // A repeated heartbeat keeps the time of the first one, which ends the lease
                // earlier.
                self.heartbeats.entry((session, *sent_at)).or_insert(at);
            }
            _ => {}
        }
    }

    /// A lease that is over is not renewed: only a server that opens the session again can do that.
    fn acked(&mut self, session: SessionLife, at: Time, sent_at: u64) {
        let sent_at = self.heartbeats.get(&(session, sent_at));
        if let (Some(sent_at), Some(lease)) = (sent_at, self.leases.get_mut(&session))
            && at < lease.until()
        {
            lease.sent_at = lease.sent_at.max(*sent_at);
        }
    }

    fn opened(&mut self, session: SessionLife, stream: ConnectionId, term: Term, ttl: Span) {
        let Some(sent_at) = self.opens.get(&stream).copied() else { return };
        let before = self.leases.get(&session).filter(|lease| lease.term == term);
        let sent_at = before.map_or(sent_at, |lease| lease.sent_at.max(sent_at));
        let serves = before.and_then(|lease| lease.serves);
        self.leases.insert(session, Granted { term, ttl, sent_at, serves });
    }

    fn acts(&mut self, session: SessionLife, at: Time, act: Act) -> Option<String> {
        let Some(lease) = self.leases.get_mut(&session) else {
            // Before it has a lease a session may offer memory for a call that is to publish it.
            let serves = matches!(act, Act::Serves(_) | Act::Offers(_));
            return (!serves).then(|| format!("a session {act} that has no lease"));
        };
        let within = at <= lease.until();
        match act {
            Act::Offers(generation) if lease.serves == Some(generation) => {
                return Some(format!("a session {act} still, and has given its server up"));
            }
            Act::Offers(_) => return None, // nobody was told of it yet
            Act::Serves(generation) if within => lease.serves = Some(generation),
            Act::Serves(generation) if lease.serves != Some(generation) => return None,
            _ => {}
        }
        (!within).then(|| {
            let late = (at - lease.until()).0 / 1_000;
            format!("a session {act}, {late} us after its lease, as it left, was over")
        })
    }
}

impl Checker for WithinLease {
    fn name(&self) -> &'static str {
        "T1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Sent { life, stream, local, message } => {
                self.sent(*life, *stream, *local, message);
                None
            }
            Fact::Took { life, stream, local, message, after, .. } => {
                match message {
                    ServerMessage::HeartbeatAck { sent_at } => self.acked(*life, *local, *sent_at),
                    ServerMessage::Opened { ticket, lease }
                        if after.term == Some(ticket.proof.term) =>
                    {
                        self.opened(*life, *stream, ticket.proof.term, *lease);
                    }
                    _ => {}
                }
                None
            }
            Fact::Acts { life, local, act } => self.acts(*life, *local, *act),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SELF: SessionLife = (0, 0);
    const STREAM: ConnectionId = ConnectionId(1);

    /// A session whose `Open` left at time zero, with a lease of one second.
    fn opened() -> WithinLease {
        let mut checker = WithinLease::default();
        checker.opens.insert(STREAM, Time(0));
        checker.opened(SELF, STREAM, Term(1), Span::from_secs(1));
        checker
    }

    fn at(millis: u64) -> Time {
        Time(millis * 1_000_000)
    }

    fn serves(checker: &mut WithinLease, millis: u64) -> bool {
        checker.acts(SELF, at(millis), Act::Serves(Generation(1))).is_none()
    }

    #[test]
    fn a_lease_counts_from_when_its_message_left() {
        let mut checker = opened();
        assert!(serves(&mut checker, 900));
        assert!(!serves(&mut checker, 901));
        let mut checker = opened();
        checker.sent(SELF, STREAM, at(300), &ClientMessage::Heartbeat { sent_at: 7 });
        // The answer comes late, and repeats the heartbeat's number.
        checker.acked(SELF, at(800), 7);
        assert!(serves(&mut checker, 1_200));
        assert!(!serves(&mut checker, 1_201));
    }

    #[test]
    fn a_late_answer_does_not_revive_a_lease() {
        let mut checker = opened();
        assert!(serves(&mut checker, 100));
        checker.sent(SELF, STREAM, at(800), &ClientMessage::Heartbeat { sent_at: 7 });
        checker.acked(SELF, at(901), 7);
        assert!(!serves(&mut checker, 1_000));
    }

    #[test]
    fn what_is_offered_before_a_server_knows_of_it_is_not_served() {
        let mut checker = WithinLease::default();
        assert!(serves(&mut checker, 5_000));
        assert!(checker.acts(SELF, at(1), Act::Reads).is_some());
        let mut checker = opened();
        assert!(serves(&mut checker, 5_000));
        assert!(checker.acts(SELF, at(5_000), Act::Reads).is_some());
    }

    #[test]
    fn who_gives_its_server_up_serves_nothing_that_it_was_told_of() {
        let mut checker = opened();
        assert!(serves(&mut checker, 100));
        let offers = |generation| Act::Offers(Generation(generation));
        assert_eq!(checker.acts(SELF, at(200), offers(2)), None);
        assert!(checker.acts(SELF, at(200), offers(1)).is_some());
        // An offer under the next generation is no act, however late it is.
        assert_eq!(checker.acts(SELF, at(5_000), offers(2)), None);
    }
}

//! T5, from outside: a server's memory is bounded by its shards and their versions, and one event
//! makes the server say only a few things to each shard.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact, Who};

/// Bytes of a server without sessions: its configuration, counters and tables.
const ALONE: usize = 8_000;
/// Bytes for each session: its part of a group, the calls that not all shards have gone past, and
/// its reads. Twice what worlds show.
const PER_SESSION: usize = 4_000;
/// Bytes for each version: its content, and the record that it was lost.
const PER_VERSION: usize = 400;
/// After this many leases of silence a shard is certainly gone.
const SILENCE: u64 = 5;
/// Most messages of one event to one shard. Worlds show four (the session is open, has an answer,
/// and is to do something for others), and one more for each source that is lost in the same event.
const AT_ONCE: usize = 30;

/// Uses messages, and the length of everything that the server holds.
pub(super) struct BoundedServer {
    lease: Span,
    /// When each shard was heard last.
    heard: BTreeMap<(Incarnation, u32), Time>,
    /// When any shard was heard last.
    last: Time,
    versions: BTreeSet<Version>,
    /// How many messages this event has made the server send, by process.
    said: BTreeMap<usize, usize>,
}

impl BoundedServer {
    pub(super) fn new(lease: Span) -> Self {
        let (heard, versions, said) = Default::default();
        Self { lease, heard, last: Time(0), versions, said }
    }

    fn heard(&mut self, now: Time, who: &Who) {
        if now > self.last + self.lease {
            // The server was held up. It gives every shard the full time again before it counts
            // silence.
            self.heard.values_mut().for_each(|heard| *heard = now);
        }
        self.last = now;
        self.heard.extend(who.incarnation.map(|group| ((group, who.shard), now)));
    }

    fn weighed(&mut self, bytes: usize) -> Option<String> {
        let (last, silence) = (self.last, Span(SILENCE * self.lease.0));
        self.heard.retain(|_, heard| last <= *heard + silence);
        let (sessions, versions) = (self.heard.len(), self.versions.len());
        let bound = ALONE + PER_SESSION * sessions + PER_VERSION * versions;
        (bytes > bound).then(|| {
            format!(
                "the server remembers {bytes} bytes of {sessions} sessions, {versions} versions"
            )
        })
    }

    fn said(&mut self, process: usize, message: &ServerMessage) -> Option<String> {
        if let ServerMessage::Answered { result: Ok(Answer::Published { version }), .. } = message {
            self.versions.insert(*version);
        }
        let said = self.said.entry(process).or_default();
        *said += 1;
        let said = *said;
        (said == AT_ONCE + 1)
            .then(|| format!("one event has the server say {said} things to a shard: {message:?}"))
    }
}

impl Checker for BoundedServer {
    fn name(&self) -> &'static str {
        "T5"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                self.said.clear();
                self.heard(now, who);
                if let ClientMessage::Announce(announcement) = message {
                    self.versions.extend(announcement.held.map(|held| held.version));
                }
                None
            }
            Fact::Said { who, message, .. } => self.said(who.process, message),
            Fact::Books(_) => {
                self.said.clear();
                None
            }
            Fact::Weighed { bytes, .. } => self.weighed(*bytes),
            _ => None,
        }
    }
}

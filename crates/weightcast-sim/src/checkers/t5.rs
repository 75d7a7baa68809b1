//! T5, from outside: what a server remembers is bounded by who is there and what they hold, and one
//! event has it say a few things to each.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ClientMessage, ServerMessage};
use weightcast_protocol::{Incarnation, Span, Time, Version};

use super::{Checker, Fact, Who};

/// What is said of a server that nobody is at: its configuration, counters and tables.
const ALONE: usize = 8_000;
/// Of one session, with its part of a group, of the calls that not all shards have gone past, and of what
/// it reads: twice what worlds show.
const PER_SESSION: usize = 4_000;
/// Of one version: its content is remembered, and that it was lost.
const PER_VERSION: usize = 400;
/// Leases of silence after which a shard is not there any more, for certain.
const SILENCE: u64 = 5;
/// What one event has the server say to one shard. Worlds show four: it is open, has an answer, and is to
/// do something for others; and a source for each that is lost in the same event.
const AT_ONCE: usize = 30;

/// Goes by messages, and by the length of all that the server holds.
pub(super) struct BoundedServer {
    lease: Span,
    /// When each shard was heard last.
    heard: BTreeMap<(Incarnation, u32), Time>,
    /// When anybody was.
    last: Time,
    versions: BTreeSet<Version>,
    /// What this event has had the server say, by process.
    said: BTreeMap<usize, usize>,
}

impl BoundedServer {
    pub(super) fn new(lease: Span) -> Self {
        let (heard, versions, said) = Default::default();
        Self { lease, heard, last: Time(0), versions, said }
    }

    fn heard(&mut self, now: Time, who: &Who) {
        if now > self.last + self.lease {
            // It was held up, and listens for as long as ever before it takes anybody's silence for one.
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

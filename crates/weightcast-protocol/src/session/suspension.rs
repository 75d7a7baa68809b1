//! Between two servers: the session has lost one, and keeps what it holds until it finds another.
//!
//! A suspended session acts on nothing that the old server told it and serves nothing that it
//! offered; its content stays as it is. A server of a newer term that knows all shards of the group
//! ends the suspension; the call that was pending is then made again under its number.

use super::staging::Staging;
use super::{Output, Session};
use crate::message::{Announcement, ClientMessage, Holding};
use crate::{CallError, OpSeq, Term, TermProof, Ticket, Time};

/// A suspension.
#[derive(Clone, Debug)]
pub(super) struct Suspended {
    /// When the session gives up.
    pub(super) until: Time,
}

/// Which of the other servers know this session's term.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    /// Servers that are still to be told, by their place in the list.
    unaware: Vec<usize>,
    /// When to tell them (again).
    tell_at: Time,
}

impl Session {
    /// The server's word counts no more: what it offered is withdrawn, what it assigned is dropped.
    pub(super) fn suspend(&mut self, now: Time) {
        let doubt = self.in_doubt();
        let left = self.left.take();
        self.discard(left);
        match self.pending.as_mut().and_then(|pending| pending.transfer.take()) {
            Some(transfer) => {
                if let (Some(pending), Some(doubt)) = (self.pending.as_mut(), doubt) {
                    pending.doubt = Some(doubt);
                }
                let keeps = transfer.staging == Staging::Beside;
                self.abandon(Some(transfer));
                if keeps {
                    self.stop_serving();
                }
            }
            None => self.stop_serving(),
        }
        if self.answered == OpSeq(0) {
            // The group has done nothing yet: nothing is lost with it.
            self.lease = None;
        } else if self.suspended.is_none() {
            self.suspended = Some(Suspended { until: now + self.config.reconnect });
        }
    }

    pub(super) fn check_suspension(&mut self, now: Time) {
        if self.ended.is_none() && self.suspended.as_ref().is_some_and(|s| s.until <= now) {
            let seconds = self.config.reconnect.0 / 1_000_000_000;
            self.lose_server(format!("no server took the group over within {seconds} s"));
        }
    }

    /// Tells a server of a newer term what this shard brings.
    pub(super) fn announce(&mut self) {
        let held = self.version().map(|version| Holding {
            version,
            catalog: self.catalog,
            sums: self.memory.sums(),
            refused: self.memory.refused(),
            withdrawn: self.withdrawn,
        });
        if held.is_some_and(|held| !held.refused) && !self.memory.exposed() {
            self.expose();
        }
        let announcement = Announcement {
            answered: self.answered,
            generation: self.memory.generation(),
            registration: self.registration,
            held,
        };
        self.outputs.push_back(Output::Send(ClientMessage::Announce(announcement)));
    }

    /// The group is whole again. No shard knows of an answer to the pending call.
    pub(super) fn recovered(&mut self, now: Time) {
        if self.suspended.take().is_none() {
            return; // a repetition
        }
        if let Some(pending) = &mut self.pending {
            pending.doubt = None;
        }
        self.send_again(now);
    }

    /// Another server may act in an earlier term, or a later one: both are to know.
    pub(super) fn look_for_rivals(&mut self, now: Time) {
        let own = self.link.server();
        let unaware = (0..self.config.servers).filter(|server| *server != own).collect();
        self.rivals = Rivals { unaware, tell_at: now };
    }

    pub(super) fn tells_at(&self) -> Option<Time> {
        let tells = self.link.is_open() && !self.rivals.unaware.is_empty();
        tells.then_some(self.rivals.tell_at)
    }

    pub(super) fn tell_if_due(&mut self, now: Time) {
        if self.ended.is_some() || self.tells_at().is_none_or(|at| at > now) {
            return;
        }
        let (Some(lease), Some(Ticket { proof, .. })) = (&self.lease, self.ticket) else { return };
        self.rivals.tell_at = now + lease.ttl;
        let unaware = self.rivals.unaware.iter();
        let probes = unaware.map(|server| Output::Probe { server: *server, proof });
        self.outputs.extend(probes);
    }

    /// A server was told of the term `told` by `Output::Probe`, and says in which one it acts itself,
    /// if it is not passive. Not called if it could not be reached: it is told again later.
    pub fn handle_probed(&mut self, now: Time, server: usize, told: Term, acts: Option<TermProof>) {
        self.tick(now);
        if self.ended.is_some() || told != self.term {
            return;
        }
        self.rivals.unaware.retain(|unaware| *unaware != server);
        if let Some(proof) = acts.filter(|proof| proof.term > self.term) {
            // Its own server may have nobody else to learn it from, and go on for ever.
            self.outputs.push_back(Output::Probe { server: self.link.server(), proof });
            self.leave_server(now, server);
        }
    }

    /// The error for a pending call whose outcome is unknown, if it is the same for another reason.
    pub(super) fn doubt(&self) -> Option<CallError> {
        self.pending.as_ref().and_then(|pending| pending.doubt.clone())
    }
}

//! Terms: when this server acts, and when another one does (T2, T3).
//!
//! A server is passive until a client says that no other one of its list is active. It then takes a
//! term one step after the latest that was proved to it; no clock has a part in it. Whoever shows it
//! the proof of a later one ends it. A word without proof changes nothing.
//!
//! A server that has just started knows of no term. If its first client brings none either, it acts in
//! a term of the first step, the origin of a line of its own, and goes by any other line that it is
//! shown within the time that clients have to come over: it steps down, and takes the next term of
//! that. Afterwards it is settled, and of two lines the one with the later term goes on.

use super::{Server, ServerOutput};
use crate::message::{Open, Role, ServerMessage};
use crate::server::edges::Edges;
use crate::server::timers::Timer;
use crate::{Incarnation, Safeguard, Span, Term, TermProof, Time};

impl Server {
    /// This server's term, zero while it is passive.
    pub fn term(&self) -> Term {
        if self.active { self.own.term } else { Term(0) }
    }

    /// A client of another server was opened in this term there. Ends this server's term if that is
    /// earlier; the answer is this server's term then, for the client to go by.
    pub fn handle_probe(&mut self, now: Time, told: TermProof) -> Option<TermProof> {
        if self.is_proved(&told) {
            if told.term > self.told.0 {
                self.told = (told.term, now);
            }
            self.hear_of(now, told);
            self.settle(now);
        }
        self.active.then_some(self.own)
    }

    /// Whether the server is active, or has become so, for a client that opens.
    pub(super) fn takes(&mut self, now: Time, open: &Open) -> bool {
        let shown = open.ticket.map(|ticket| ticket.proof).unwrap_or_default();
        self.hear_of(now, shown);
        // A new offload or seed belongs to the server that asked for it: no other one acts on its
        // word.
        let asked = matches!(open.role, Role::Offload(_) | Role::Seed(_));
        let may_act = open.activate && !self.defers(now);
        if !self.active && may_act && (open.rejoins || !asked) {
            self.activate(now);
        }
        self.active
    }

    /// How long a group, and all clients, have to come over from an earlier term: until then their
    /// leases there have run out, and they have found this server.
    pub(super) fn recovery_time(&self) -> Span {
        self.config.lease.scaled(2, 1)
    }

    /// This term was proved.
    fn hear_of(&mut self, now: Time, proof: TermProof) {
        if !self.config.safeguards.on(Safeguard::TermOrder) {
            return;
        }
        let other_line = proof.term > Term(0) && proof.origin != self.own.origin;
        if self.active && other_line && self.fresh_until.is_some_and(|until| now < until) {
            // It is the one that began too early, whichever of the terms is the later one.
            self.seen = TermProof { term: proof.term.max(self.own.term), ..proof };
            return self.step_down();
        }
        if proof.term > self.seen.term {
            self.seen = proof;
        }
        if self.active && self.seen.term > self.own.term {
            self.step_down();
        }
    }

    /// Whether another server acts as far as is known: a client was open there less than a lease ago,
    /// and nobody has come from a later term. Who would have this one act instead has asked the list
    /// while that one took over. In a lease all find it, so takeovers end (L5).
    fn defers(&self, now: Time) -> bool {
        let (term, at) = self.told;
        let acts = term == self.seen.term && term > self.own.term && now < at + self.config.lease;
        acts && self.config.safeguards.on(Safeguard::Deference)
    }

    fn activate(&mut self, now: Time) {
        let others = self.seen;
        let floor = others.term.max(self.own.term);
        let Some(term) = floor.after(self.config.index, self.config.life) else {
            return; // nobody lives to see it
        };
        let follows = others.term > Term(0);
        let origin = if follows { others.origin } else { term };
        self.own = self.config.ticket_key.prove(term, origin);
        self.seen = self.own;
        self.active = true;
        self.last_incarnation = self.first_incarnation();
        self.counters.terms += 1;
        let until = now + self.recovery_time();
        if follows {
            // There were clients in that term: they have their time to come.
            self.window_until = Some(until);
            self.timers.set(until, Timer::Window);
        } else {
            self.fresh_until = Some(until);
        }
    }

    /// Groups that are founded in this term come after it.
    pub(super) fn first_incarnation(&self) -> Incarnation {
        Incarnation { term: self.own.term, number: 0 }
    }

    /// Another server is active: this one forgets everything and sends its clients there.
    fn step_down(&mut self) {
        for connection in std::mem::take(&mut self.connections).into_keys() {
            let message = ServerMessage::Superseded;
            self.outputs.push_back(ServerOutput::Send { to: connection, message });
        }
        self.active = false;
        self.window_until = None;
        self.fresh_until = None;
        self.models.clear();
        self.vacant.clear();
        self.challenges.clear();
        self.high_water = None;
        for group in std::mem::take(&mut *self.groups).into_values() {
            group.named_layouts().for_each(|layout| self.blobs.release(layout));
        }
        self.sessions.clear();
        self.edges = Edges::default();
        self.timers.keep_blobs();
        self.agenda.clear();
        self.changed.clear();
    }

    /// Whether clients of an earlier term may still come over: what is unknown may exist (A5).
    pub(super) fn recovers(&self) -> bool {
        self.window_until.is_some() && self.config.safeguards.on(Safeguard::RecoveryWindow)
    }

    /// Whoever has not come over by now will not: what is not known does not exist.
    pub(super) fn window_timer(&mut self) {
        self.window_until = None;
        let held_back = |group: &&Incarnation| self.held_back(**group);
        self.counters.held_back += self.groups.keys().filter(held_back).count() as u64;
        for (name, model) in self.models.iter_mut() {
            model.recovers = false;
            self.changed.insert(name.clone());
        }
        self.agenda.extend(self.groups.keys());
    }
}

#[cfg(test)]
#[path = "term_tests.rs"]
mod tests;

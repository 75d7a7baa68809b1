//! Terms: when this server acts, and when another one does (T2, T3).
//!
//! A server is passive until a client says that no other one of its list is active. It then takes a
//! term of its own, above every term that it has heard of. Whoever shows it a later one ends it.

use super::{Server, ServerOutput};
use crate::message::{Open, Role, ServerMessage};
use crate::server::edges::Edges;
use crate::server::timers::Timer;
use crate::{Incarnation, Span, Term, Time};

impl Server {
    /// This server's term, zero while it is passive.
    pub fn term(&self) -> Term {
        if self.active { self.term } else { Term(0) }
    }

    /// A client of another server has opened in this term there. Ends this server's term if that is
    /// earlier; the answer is this server's term then, for the client to go by.
    pub fn handle_probe(&mut self, now: Time, term: Term) -> Term {
        if term < Term::LIMIT {
            if term > self.told.0 {
                self.told = (term, now);
            }
            self.hear_of(term);
            self.settle(now);
        }
        self.term()
    }

    /// Whether the server is active, or has become so, for a client that opens.
    pub(super) fn takes(&mut self, now: Time, open: &Open) -> bool {
        self.hear_of(open.term);
        // A new offload or seed belongs to the server that asked for it: no other one acts on its
        // word.
        let asked = matches!(open.role, Role::Offload(_) | Role::Seed(_));
        let may_act = open.activate && !self.defers(now);
        if !self.active && may_act && !(asked && open.incarnation.is_none()) {
            self.activate(now);
        }
        if self.active {
            // It may have begun with a client that knew of nothing.
            self.follows(now, open.term);
        }
        self.active
    }

    /// How long a group, and all clients, have to come over from an earlier term: until then their
    /// leases there have run out, and they have found this server.
    pub(super) fn recovery_time(&self) -> Span {
        self.config.lease.scaled(2, 1)
    }

    fn hear_of(&mut self, term: Term) {
        if self.config.mutants.stale_term_accepted {
            return;
        }
        self.seen = self.seen.max(term);
        if self.active && self.seen > self.term {
            self.step_down();
        }
    }

    /// Whether another server acts as far as is known: a client was open there less than a lease ago,
    /// and nobody has come from a later term. Who would have this one act instead has asked the list
    /// while that one took over. In a lease all find it, so takeovers end (L5).
    fn defers(&self, now: Time) -> bool {
        let (term, at) = self.told;
        let acts = term == self.seen && term > self.term && now < at + self.config.lease;
        acts && !self.config.mutants.no_deference
    }

    fn activate(&mut self, now: Time) {
        let floor = Term(self.config.term.0.saturating_sub(1));
        let others = self.seen;
        self.term = self.seen.max(self.term).max(floor).after(self.config.index);
        self.seen = self.term;
        self.active = true;
        self.followed = false;
        self.last_incarnation = self.first_incarnation();
        self.counters.terms += 1;
        self.follows(now, others);
    }

    /// There were clients in this earlier term, if it is one: the others have their time to come.
    pub(super) fn follows(&mut self, now: Time, earlier: Term) {
        if self.followed || earlier == Term(0) || earlier == self.term {
            return;
        }
        self.followed = true;
        let until = now + self.recovery_time();
        self.window_until = Some(until);
        self.timers.set(until, Timer::Window);
        self.models.values_mut().for_each(|model| model.recovers = true);
    }

    /// Groups that are founded in this term come after it.
    pub(super) fn first_incarnation(&self) -> Incarnation {
        Incarnation(self.term.0.wrapping_shl(18))
    }

    /// Another server is active: this one forgets everything and sends its clients there.
    fn step_down(&mut self) {
        for connection in std::mem::take(&mut self.connections).into_keys() {
            let message = ServerMessage::Superseded;
            self.outputs.push_back(ServerOutput::Send { to: connection, message });
        }
        self.active = false;
        self.window_until = None;
        self.models.clear();
        for group in std::mem::take(&mut self.groups).into_values() {
            let registered = group.members.values().filter_map(|member| member.registration);
            registered.for_each(|registration| self.blobs.release(registration.layout));
        }
        self.sessions.clear();
        self.edges = Edges::default();
        self.timers.keep_blobs();
        self.agenda.clear();
        self.changed.clear();
    }

    /// Whether clients of an earlier term may still come over: what is unknown may exist (A5).
    pub(super) fn recovers(&self) -> bool {
        self.window_until.is_some() && !self.config.mutants.no_recovery_window
    }

    /// Whoever has not come over by now will not: what is not known does not exist.
    pub(super) fn window_timer(&mut self) {
        self.window_until = None;
        let held_back = |group: &&Incarnation| self.held_back(**group);
        self.counters.held_back += self.groups.keys().filter(held_back).count() as u64;
        for (name, model) in &mut self.models {
            model.recovers = false;
            self.changed.insert(name.clone());
        }
        self.agenda.extend(self.groups.keys());
    }
}

//! Terms: when this server acts, and when another one does (T2, T3).
//!
//! A server is passive until a client says that no other server of its list is active. It then takes a
//! term one step after the latest that was proved to it. The proof of a later term, by whomever it is
//! shown, ends that. A word without proof changes nothing. [`Terms`] decides; this file does what
//! follows.

use crate::message::{Open, Role};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::MembershipHandler;
use crate::server::stores::edges::Edges;
use crate::server::stores::timers::Timer;
use crate::{Incarnation, Safeguard, Span, TermProof, Time};

impl MembershipHandler<'_> {
    /// Whether the server is active, or has become so, for a client that opens.
    pub(super) fn takes(&mut self, now: Time, open: &Open) -> bool {
        let shown = open.ticket.map(|ticket| ticket.proof).unwrap_or_default();
        self.hear_of(now, shown);
        // A new offload or seed belongs to the server that asked for it: no other one acts on its
        // word.
        let asked = matches!(open.role, Role::Offload(_) | Role::Seed(_));
        let may_act = open.activate && !self.defers(now);
        if !self.terms.active && may_act && (open.rejoins || !asked) {
            self.activate(now);
        }
        self.terms.active
    }

    /// How long a group, and all clients, have to come over from an earlier term: until then their
    /// leases there have run out, and they have found this server.
    pub(super) fn recovery_time(&self) -> Span {
        self.config.lease.scaled(2, 1)
    }

    /// A client of another server was opened in this term there. Whether that is proved.
    pub(in crate::server) fn hear_of_other(&mut self, now: Time, told: TermProof) -> bool {
        let proved = self.is_proved(&told);
        if proved {
            self.terms.note_told(now, told.term);
            self.hear_of(now, told);
        }
        proved
    }

    /// This term was proved.
    fn hear_of(&mut self, now: Time, proof: TermProof) {
        if self.config.safeguards.on(Safeguard::TermOrder) && self.terms.hear_of(now, proof) {
            self.step_down();
        }
    }

    /// Whether another server acts as far as is known.
    fn defers(&self, now: Time) -> bool {
        let acts = self.terms.defers(now, self.config.lease);
        acts && self.config.safeguards.on(Safeguard::Deference)
    }

    fn activate(&mut self, now: Time) {
        let Some((term, origin)) = self.terms.next(self.config.index, self.config.life) else {
            return;
        };
        let own = self.config.ticket_key.prove(term, origin);
        self.terms.activate(own, now + self.recovery_time());
        self.numbers.last_incarnation = self.first_incarnation();
        self.counters.terms += 1;
        if let Some(until) = self.terms.window_until {
            self.timers.set(until, Timer::Window);
        }
    }

    /// Groups that are founded in this term come after it.
    fn first_incarnation(&self) -> Incarnation {
        Incarnation { term: self.terms.own.term, number: 0 }
    }

    /// Another server is active: this one forgets everything and sends its clients there.
    fn step_down(&mut self) {
        self.connections.supersede();
        self.terms.step_down();
        self.models.clear();
        self.models.vacant.clear();
        self.challenges.clear();
        self.models.high_water = None;
        for group in self.groups.values() {
            group.named_layouts().for_each(|layout| self.blobs.release(layout));
        }
        self.groups.clear();
        self.sessions.clear();
        *self.edges = Edges::default();
        self.timers.keep_blobs();
        self.agenda.clear();
    }

    /// Whoever has not come over by now will not: what is not known does not exist.
    pub(in crate::server) fn window_timer(&mut self) {
        self.terms.window_until = None;
        let groups = self.groups.ids().map(|group| self.books().group(*group));
        self.counters.held_back += groups.filter(GroupCtx::is_held_by_window).count() as u64;
        for (name, model) in self.models.iter_mut() {
            model.recovers = false;
            self.agenda.note_change(name);
        }
        self.agenda.wake_all(self.groups.ids().copied());
    }
}

#[cfg(test)]
#[path = "term_tests.rs"]
mod tests;

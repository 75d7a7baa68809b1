//! Terms: when this server acts, and when it leaves acting to another server (T2, T3).
//!
//! A server is passive until a client says that no other server of its list is active. The server
//! then takes a term one step after the latest term that was proved to it. Proof of a later term
//! ends the server's own term, whichever client shows the proof. A claim without proof changes
//! nothing. [`Terms`] decides; this file carries the decision out.

use crate::message::{Open, Role};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::MembershipHandler;
use crate::server::stores::edges::Edges;
use crate::server::stores::timers::Timer;
use crate::{Incarnation, Safeguard, Span, TermProof, Time};

impl MembershipHandler<'_> {
    /// Whether the server acts for a client that opens. May activate the server.
    pub(super) fn takes(&mut self, now: Time, open: &Open) -> bool {
        let shown = open.ticket.map(|ticket| ticket.proof).unwrap_or_default();
        self.hear_of(now, shown);
        // A new offload or seed belongs to the server that asked for it, and activates no other
        // server.
        let asked = matches!(open.role, Role::Offload(_) | Role::Seed(_));
        let may_act = open.activate && !self.defers(now);
        if !self.terms.active && may_act && (open.rejoins || !asked) {
            self.activate(now);
        }
        self.terms.active
    }

    /// How long groups and clients have to come over from an earlier term: two leases. By then
    /// their old leases have run out, and they have found this server.
    pub(super) fn recovery_time(&self) -> Span {
        self.config.lease.scaled(2, 1)
    }

    /// A client says that another server acts in this term. Returns whether the term is proved.
    pub(in crate::server) fn hear_of_other(&mut self, now: Time, told: TermProof) -> bool {
        let proved = self.is_proved(&told);
        if proved {
            self.terms.note_told(now, told.term);
            self.hear_of(now, told);
        }
        proved
    }

    /// A client showed a proved term. Steps down if that term ends the server's own.
    fn hear_of(&mut self, now: Time, proof: TermProof) {
        if self.config.safeguards.on(Safeguard::TermOrder) && self.terms.hear_of(now, proof) {
            self.step_down();
        }
    }

    /// Whether this server leaves acting to another server for now (L5).
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

    /// The number before the first group that is founded in this term.
    fn first_incarnation(&self) -> Incarnation {
        Incarnation { term: self.terms.own.term, number: 0 }
    }

    /// Another server is active: forgets everything except manifests, and sends the sessions to the
    /// next server of their list.
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

    /// The recovery window ends: from now on a group that is not in the books does not exist.
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

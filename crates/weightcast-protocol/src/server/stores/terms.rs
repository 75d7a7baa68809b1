//! What a server knows of terms: its own, and the latest that was proved to it (T2, T3).
//!
//! Decides whether the server acts; `term` does what follows from that. A term is taken one step after
//! the latest that is known; no clock has a part in its number.
//!
//! A server that has just started knows of no term. If its first client brings none either, it acts in
//! a term of the first step, the origin of a line of its own, and goes by any other line that it is
//! shown within the time that clients have to come over: it steps down, and takes the next term of
//! that. Afterwards it is settled, and of two lines the one with the later term goes on.

use crate::{Safeguard, Safeguards, Span, Term, TermProof, Time};

/// A server's own term, and those of others that it has heard of.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Terms {
    /// The newest term that this server took, and its proof of it.
    pub(in crate::server) own: TermProof,
    /// Whether it acts in it.
    pub(in crate::server) active: bool,
    /// The newest term that was proved to it.
    pub(in crate::server) seen: TermProof,
    /// The latest term that another server was said to act in, and when.
    pub(in crate::server) told: (Term, Time),
    /// It took its term for somebody who knew of no other. Until then it gives way to any.
    pub(in crate::server) fresh_until: Option<Time>,
    /// Until when clients may come over from an earlier term.
    pub(in crate::server) window_until: Option<Time>,
}

impl Terms {
    /// The proof of the term that the server acts in.
    pub(in crate::server) fn acting(&self) -> Option<TermProof> {
        self.active.then_some(self.own)
    }

    /// Whether clients of an earlier term may still come over: what is unknown may exist (A5).
    pub(in crate::server) fn recovers(&self, safeguards: Safeguards) -> bool {
        self.window_until.is_some() && safeguards.on(Safeguard::RecoveryWindow)
    }

    /// Another server was said to act in this term, which was proved.
    pub(in crate::server) fn note_told(&mut self, now: Time, term: Term) {
        if term > self.told.0 {
            self.told = (term, now);
        }
    }

    /// A term was proved. Whether it ends the server's own.
    #[must_use]
    pub(in crate::server) fn hear_of(&mut self, now: Time, proof: TermProof) -> bool {
        let other_line = proof.term > Term(0) && proof.origin != self.own.origin;
        if self.active && other_line && self.fresh_until.is_some_and(|until| now < until) {
            // The server began too early, whichever of the two terms is the later one.
            self.seen = TermProof { term: proof.term.max(self.own.term), ..proof };
            return true;
        }
        if proof.term > self.seen.term {
            self.seen = proof;
        }
        self.active && self.seen.term > self.own.term
    }

    /// Whether another server acts as far as is known: a client was open there less than a lease ago,
    /// and nobody has come from a later term. A client that would have this server act instead has
    /// asked its list while the other one took over. In a lease all find the other one, so takeovers
    /// end (L5).
    pub(in crate::server) fn defers(&self, now: Time, lease: Span) -> bool {
        let (term, at) = self.told;
        term == self.seen.term && term > self.own.term && now < at + lease
    }

    /// The term that this server would take next, and the origin of its line. `None`: there is no
    /// later one, which nobody lives to see.
    pub(in crate::server) fn next(&self, index: u32, life: u64) -> Option<(Term, Term)> {
        let term = self.seen.term.max(self.own.term).after(index, life)?;
        let follows = self.seen.term > Term(0);
        Some((term, if follows { self.seen.origin } else { term }))
    }

    /// The server acts in a term that it took. Clients of an earlier one, if there were any, may come
    /// over until then; otherwise the server is fresh as long.
    pub(in crate::server) fn activate(&mut self, own: TermProof, until: Time) {
        let follows = self.seen.term > Term(0);
        (self.own, self.seen, self.active) = (own, own, true);
        *(if follows { &mut self.window_until } else { &mut self.fresh_until }) = Some(until);
    }

    /// The server's term has ended.
    pub(in crate::server) fn step_down(&mut self) {
        (self.active, self.window_until, self.fresh_until) = (false, None, None);
    }
}

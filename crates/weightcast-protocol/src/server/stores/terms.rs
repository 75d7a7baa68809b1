//! What a server knows of terms: its own, and the latest term that was proved to it (T2, T3).
//!
//! Decides whether the server acts; `term` carries the decision out. A server takes the term one
//! step after the latest known term. No clock has a part in its number.
//!
//! A server that has just started knows of no term. If its first client brings none either, the
//! server acts in a term of the first step, the origin of a new line, and is fresh for as long as a
//! recovery window. A fresh server yields to any other line that it is shown: it steps down, and
//! takes the next term of that line. Afterwards the server is settled, and of two lines the one
//! with the later term goes on.

use serde::{Deserialize, Serialize};

use crate::{Safeguard, Safeguards, Span, Term, TermProof, Time};

/// A server's own term, and the terms of other servers that it has heard of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Terms {
    /// The newest term that this server took, and its proof of it.
    pub(in crate::server) own: TermProof,
    /// Whether the server acts in that term.
    pub(in crate::server) active: bool,
    /// The newest term that was proved to it.
    pub(in crate::server) seen: TermProof,
    /// The latest proved term that another server was said to act in, and when that was first said.
    pub(in crate::server) told: (Term, Time),
    /// Until when the server is fresh: it took its term for a client that knew of no other term,
    /// and yields to any other line.
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

    /// A client says that another server acts in this term, which was proved.
    pub(in crate::server) fn note_told(&mut self, now: Time, term: Term) {
        if term > self.told.0 {
            self.told = (term, now);
        }
    }

    /// A term was proved. Returns whether that ends the server's own term.
    #[must_use]
    pub(in crate::server) fn hear_of(&mut self, now: Time, proof: TermProof) -> bool {
        let other_line = proof.term > Term(0) && proof.origin != self.own.origin;
        if self.active && other_line && self.fresh_until.is_some_and(|until| now < until) {
            // A fresh server began too early, even if its own term is the later one.
            self.seen = TermProof { term: proof.term.max(self.own.term), ..proof };
            return true;
        }
        if proof.term > self.seen.term {
            self.seen = proof;
        }
        self.active && self.seen.term > self.own.term
    }

    /// Whether another server is known to act: its term was told less than a lease ago, and no
    /// later term was proved since. A client that asks this server to act instead went through its
    /// list during that takeover. Within a lease all clients find the other server, so takeovers
    /// end (L5).
    pub(in crate::server) fn defers(&self, now: Time, lease: Span) -> bool {
        let (term, at) = self.told;
        term == self.seen.term && term > self.own.term && now < at + lease
    }

    /// The term that this server would take next, and the origin of its line. `None` after the last
    /// term, which takes years to reach.
    pub(in crate::server) fn next(&self, index: u32, life: u64) -> Option<(Term, Term)> {
        let term = self.seen.term.max(self.own.term).after(index, life)?;
        let follows = self.seen.term > Term(0);
        Some((term, if follows { self.seen.origin } else { term }))
    }

    /// The server acts in a term that it took. If the term follows an earlier one, clients may come
    /// over until `until`. Otherwise the server is fresh until then.
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

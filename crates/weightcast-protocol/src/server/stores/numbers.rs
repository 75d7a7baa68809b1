//! Numbers that the server gives out, each once.

use crate::{Incarnation, Term};

/// The last numbers given out.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Numbers {
    /// Of a group founded here, in the server's term.
    pub(in crate::server) last_incarnation: Incarnation,
    /// In the line of those that wait for a model to change.
    last_place: u64,
}

impl Numbers {
    /// The last place of the line.
    pub(in crate::server) fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// A name for a seed that is asked for, other than in earlier terms: a group that comes over may still
    /// speak of those. Never zero, which names what came over.
    pub(in crate::server) fn next_ask(&mut self, term: Term) -> u64 {
        loop {
            self.last_incarnation = self.last_incarnation.next();
            let ask = term.0.rotate_left(32) ^ self.last_incarnation.number;
            if ask != 0 {
                return ask;
            }
        }
    }
}

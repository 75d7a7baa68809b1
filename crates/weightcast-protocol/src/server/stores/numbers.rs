//! Numbers that the server gives out, each once.

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Term};

/// The last numbers given out.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Numbers {
    /// Number of the last group that was founded here, in the server's term.
    pub(in crate::server) last_incarnation: Incarnation,
    /// Last place in the queue of calls that wait for a model to change.
    last_place: u64,
}

impl Numbers {
    /// A new place, at the end of the queue.
    pub(in crate::server) fn next_place(&mut self) -> u64 {
        self.last_place += 1;
        self.last_place
    }

    /// A number for a seed request, different from those of earlier terms: a group that comes over
    /// may still report on an old request. Never zero, which stands for a seed that came over.
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

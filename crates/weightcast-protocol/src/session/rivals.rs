//! Other servers of the list, which may act in an earlier term than this session's server, or in a later one. Both servers
//! have to know of the later term, and may have nobody but this session to learn of it from.

use super::host::{Output, Outputs};
use crate::{TermProof, Time};

/// Which of the other servers know this session's term.
#[derive(Clone, Debug, Default)]
pub(super) struct Rivals {
    /// Servers that are still to be told, by their place in the list.
    unaware: Vec<usize>,
    /// When to tell them (again).
    tell_at: Time,
}

impl Rivals {
    /// All servers of the list but the session's own.
    pub(super) fn of(own: usize, servers: usize, now: Time) -> Self {
        Self { unaware: (0..servers).filter(|server| *server != own).collect(), tell_at: now }
    }

    /// When the next telling is due.
    pub(super) fn tell_at(&self) -> Option<Time> {
        (!self.unaware.is_empty()).then_some(self.tell_at)
    }

    /// Tells them now; those that can't be reached, again then.
    pub(super) fn tell(&mut self, proof: TermProof, again_at: Time, outputs: &mut Outputs) {
        self.tell_at = again_at;
        outputs.extend(self.unaware.iter().map(|&server| Output::Probe { server, proof }));
    }

    /// This server knows.
    pub(super) fn told(&mut self, server: usize) {
        self.unaware.retain(|unaware| *unaware != server);
    }
}

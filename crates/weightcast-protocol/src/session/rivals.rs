//! Other servers of the list, which may act in an earlier or a later term than this session's
//! server. Both servers have to learn of the later term, and this session may be the only client
//! that can tell them.

use serde::{Deserialize, Serialize};

use super::host::{Output, Outputs};
use crate::{TermProof, Time};

/// Which of the other servers know this session's term.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Rivals {
    /// Servers that are still to be told, by their place in the list.
    unaware: Vec<usize>,
    /// When to tell these servers next.
    tell_at: Time,
}

impl Rivals {
    /// Every server of the list except the session's own.
    pub(super) fn of(own: usize, servers: usize, now: Time) -> Self {
        Self { unaware: (0..servers).filter(|server| *server != own).collect(), tell_at: now }
    }

    /// When the next telling is due.
    pub(super) fn tell_at(&self) -> Option<Time> {
        (!self.unaware.is_empty()).then_some(self.tell_at)
    }

    /// Tells the servers now. Servers that can't be reached are told again at `again_at`.
    pub(super) fn tell(&mut self, proof: TermProof, again_at: Time, outputs: &mut Outputs) {
        self.tell_at = again_at;
        outputs.extend(self.unaware.iter().map(|&server| Output::Probe { server, proof }));
    }

    /// This server was told.
    pub(super) fn told(&mut self, server: usize) {
        self.unaware.retain(|unaware| *unaware != server);
    }
}

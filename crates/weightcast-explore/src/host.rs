//! Where a server runs.

use std::hash::{Hash, Hasher};

use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{Span, Term, Time};

use crate::bounds::Bounds;
use crate::hashed::Hashed;

pub(crate) const LEASE: Span = Span::from_secs(10);
/// Longer than all leases that can expire take together.
pub(crate) const DRAIN: Span = Span::from_secs(1_000);

/// One server of the workers' list.
#[derive(Clone, Debug)]
pub(crate) struct ExploredServer {
    /// The real one.
    pub(crate) server: Hashed<Server>,
    /// On its clock: it moves only when a lease, a deadline or a recovery window passes.
    pub(crate) now: Time,
    /// Whether anybody can reach it.
    pub(crate) alive: bool,
}

impl ExploredServer {
    /// A life of the server with this place in the list.
    pub(crate) fn new(index: usize, life: u64, bounds: &Bounds) -> Self {
        let config = ServerConfig {
            life,
            index: index as u32,
            lease: LEASE,
            drain_deadline: DRAIN,
            safeguards: bounds.safeguards,
            ..ServerConfig::default()
        };
        Self { server: Hashed::new(Server::new(config)), now: Time(0), alive: true }
    }

    /// Whether it acts.
    pub(crate) fn acts(&self) -> bool {
        self.alive && self.server.term() > Term(0)
    }
}

impl Hash for ExploredServer {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.server, self.now, self.alive).hash(state);
    }
}

//! Which session belongs to which group, in which term: sessions, leases, tickets, takeovers.

pub(super) mod close;
pub(super) mod freed;
pub(super) mod lease;
pub(super) mod open;
pub(super) mod recovery;
pub(super) mod term;
pub(super) mod tickets;

//! For whoever only looks: snapshots and invariants.

pub(super) mod edge_invariants;
pub(super) mod inspect;
pub(super) mod invariants;
pub(super) mod snapshot;

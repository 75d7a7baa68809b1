//! Read-only views of the server: snapshots, inspections and invariants.

pub(super) mod edge_invariants;
pub(super) mod inspect;
pub(super) mod invariants;
pub(super) mod preview;
pub(super) mod reading;
pub(super) mod snapshot;
pub(super) mod stages;
pub(super) mod staleness;

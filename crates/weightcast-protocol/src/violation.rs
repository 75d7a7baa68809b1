//! An invariant of a machine that does not hold.

use thiserror::Error;

/// An invariant that does not hold.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{invariant}: {detail}")]
pub struct Violation {
    /// The invariant's name, as in `docs/invariants.md`.
    pub invariant: &'static str,
    /// What is wrong.
    pub detail: String,
}

//! An invariant that does not hold, and how to say so.

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

/// A violation unless it `holds`.
pub(in crate::server) fn ensure(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

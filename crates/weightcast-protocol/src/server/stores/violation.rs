//! How the server says that an invariant does not hold.

pub(in crate::server) use crate::violation::Violation;

/// A violation unless it `holds`.
pub(in crate::server) fn ensure(
    holds: bool,
    invariant: &'static str,
    detail: impl FnOnce() -> String,
) -> Result<(), Violation> {
    if holds { Ok(()) } else { Err(Violation { invariant, detail: detail() }) }
}

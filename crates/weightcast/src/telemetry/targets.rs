//! Which events and spans are ours.

/// What the targets of all events and spans of weightcast begin with.
pub(super) const TARGET: &str = "weightcast";

//! Whether a copy can be relied on.

/// Whether a group has shown that it holds what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// It says so.
    #[default]
    Claimed,
    /// It has.
    Proved,
    /// It holds something else.
    Refuted,
}

//! Whether a copy can be relied on.

use serde::{Deserialize, Serialize};

/// Whether a group has shown that it holds what it says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trust {
    /// The group says so, and nothing was compared.
    #[default]
    Claimed,
    /// The group has shown the bytes, or defined the version.
    Proved,
    /// The group was shown to hold other bytes.
    Refuted,
}

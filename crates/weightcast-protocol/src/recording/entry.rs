//! What is written down of an event: the input before the machine takes it, and a mark of what came of it.

use serde::{Deserialize, Serialize};

use crate::{Nonce, Time};

/// One line of a reel. Where a machine fails within an event, the input is the last entry.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum ReelEntry<I> {
    /// This happened.
    Input {
        /// On the clock of the machine's process.
        at: Time,
        /// Whether what the input shows of the past was believed.
        believed: bool,
        /// What it was.
        input: I,
    },
    /// All outputs were taken. More than one input may come before: a runtime that does what it is told may find that
    /// something happens.
    Settled {
        /// Of the outputs since the last entry of this kind.
        mark: u32,
        /// Secret numbers that were drawn since then.
        drawn: Vec<Nonce>,
    },
}

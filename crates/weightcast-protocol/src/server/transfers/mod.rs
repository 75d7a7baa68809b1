//! Transfers: sources chosen, read edges, pace, losses, commit.

pub(super) mod accusation;
pub(super) mod beside;
pub(super) mod choose;
pub(super) mod commit;
pub(super) mod drain;
pub(super) mod filling;
pub(super) mod hosts;
pub(super) mod pace;
pub(super) mod progress;
pub(super) mod replicate;
pub(super) mod source_loss;
pub(super) mod staging;
pub(super) mod striping;

use crate::{Incarnation, Version};

/// What a step of a transfer leaves to the rooms above.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::server) enum Onward {
    /// Nothing.
    Done,
    /// The update is answered as unchanged, because a seed brings its version. These seeds have to
    /// go first.
    LeftToSeed(Vec<Incarnation>),
    /// Two replicas accused this group's copy of the version: the copy has to be fenced.
    Accused(Incarnation, Version),
}

//! Who reads from whom: sources chosen, read edges, pace, losses, commit.

pub(super) mod accusation;
pub(super) mod choose;
pub(super) mod commit;
pub(super) mod drain;
pub(super) mod filling;
pub(super) mod pace;
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
    /// The update is answered as unchanged: a seed brings its version. These seeds go before.
    LeftToSeed(Vec<Incarnation>),
    /// Two replicas have read other bytes from this group's copy of a version: it is fenced.
    Accused(Incarnation, Version),
}

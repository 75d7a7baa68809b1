//! Who reads from whom: sources chosen, read edges, pace, losses, commit.

pub(super) mod accusation;
pub(super) mod choose;
pub(super) mod commit;
pub(super) mod drain;
pub(super) mod filling;
pub(super) mod kept;
pub(super) mod pace;
pub(super) mod replicate;
pub(super) mod source_loss;
pub(super) mod staging;
pub(super) mod striping;

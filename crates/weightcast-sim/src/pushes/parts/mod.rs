//! What a world of pushes is made of.

pub(super) mod driver;
pub(super) mod queue;
pub(super) mod sender;
pub(super) mod target;

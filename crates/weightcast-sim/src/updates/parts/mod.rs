//! What a world of updates is made of.

pub(super) mod driver;
pub(super) mod engine;
pub(super) mod queue;
pub(super) mod worker;

//! A group call: its place in the queue, its one answer, and `register` (G1 to G5).

pub(super) mod answers;
pub(super) mod line;
pub(super) mod register;
mod vouch;

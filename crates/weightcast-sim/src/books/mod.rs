//! What the servers' books say: read for the checkers and for the end of a world, with nothing of the server's
//! own code.

pub(crate) mod agreement;
pub(crate) mod baseline;
pub(crate) mod retained;
#[cfg(test)]
pub(crate) mod snapshots;
pub(crate) mod weight;

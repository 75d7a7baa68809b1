//! What the servers' books say: read for the checkers, with nothing of the server's own code.

pub(crate) mod retained;
#[cfg(test)]
pub(crate) mod snapshots;

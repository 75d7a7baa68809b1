//! What the servers' books say, computed for the checkers without the server's own code.

pub(crate) mod retained;
#[cfg(test)]
pub(crate) mod snapshots;

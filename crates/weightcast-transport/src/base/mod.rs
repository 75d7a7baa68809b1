//! What every room uses: errors, limits, names, locks, and how long to wait.

pub(crate) mod detach;
pub(crate) mod error;
pub(crate) mod holds;
pub(crate) mod host;
pub(crate) mod id;
pub mod limits;
pub(crate) mod lock;
pub(crate) mod patience;
pub(crate) mod processor;
pub(crate) mod secret;

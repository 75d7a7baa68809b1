//! What the server holds: each store owns its look-ups, and fails loudly rather than quietly.

pub(super) mod blobs;
pub(super) mod group;
pub(super) mod known;
pub(super) mod model;
pub(super) mod store;
pub(super) mod timers;
pub(super) mod transaction;

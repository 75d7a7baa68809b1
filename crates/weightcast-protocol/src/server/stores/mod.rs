//! What the server holds: each store owns its look-ups, and fails loudly rather than quietly.

pub(super) mod agenda;
pub(super) mod blobs;
pub(super) mod challenges;
pub(super) mod connections;
pub(super) mod counters;
pub(super) mod edges;
pub(super) mod group;
pub(super) mod hosts;
pub(super) mod kept;
pub(super) mod model;
pub(super) mod models;
pub(super) mod numbers;
pub(super) mod observed;
pub(super) mod progress;
pub(super) mod retention;
pub(super) mod seeding;
pub(super) mod serving;
pub(super) mod sessions;
pub(super) mod stages;
pub(super) mod store;
pub(super) mod terms;
pub(super) mod timers;
pub(super) mod transaction;
pub(super) mod trust;
pub(super) mod unshown;
pub(super) mod violation;

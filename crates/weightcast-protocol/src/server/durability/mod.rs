//! Copies that must not be lost: retention, offload, seeds.

pub(super) mod claims;
pub(super) mod offload;
pub(super) mod retention;
pub(super) mod seed_replicas;
pub(super) mod seeding;

//! The demo: `"weightcast": "demo/1"`, which docs/guides/pictures.md describes. Seconds count from a run's start.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct DemoFile {
    pub(crate) runs: Vec<DemoRun>,
}

/// The loop, with or without sync.
#[derive(Debug, Deserialize)]
pub(crate) struct DemoRun {
    pub(crate) settings: DemoSettings,
    pub(crate) steps: Vec<DemoStep>,
    pub(crate) updates: Vec<DemoUpdate>,
    pub(crate) seconds: f64,
    pub(crate) total: DemoTotal,
}

/// The options that a picture tells.
#[derive(Debug, Deserialize)]
pub(crate) struct DemoSettings {
    pub(crate) trainers: u64,
    pub(crate) rollouts: String,
    pub(crate) no_sync: bool,
}

/// One training step; its number is the version that the trainers held meanwhile.
#[derive(Debug, Deserialize)]
pub(crate) struct DemoStep {
    pub(crate) step: u64,
    /// Fraction of right tokens.
    pub(crate) reward: f64,
    /// Steps that the samples' version was behind.
    pub(crate) staleness: f64,
    pub(crate) published_s: f64,
    pub(crate) unpublished_s: f64,
}

/// One shard that took a version.
#[derive(Debug, Deserialize)]
pub(crate) struct DemoUpdate {
    /// `rollout-0/1`: its group and its rank.
    pub(crate) worker: String,
    pub(crate) version: u64,
    pub(crate) asked_s: f64,
    pub(crate) committed_s: f64,
}

/// All shards and versions together.
#[derive(Debug, Deserialize)]
pub(crate) struct DemoTotal {
    pub(crate) bytes: u64,
    pub(crate) verified: u64,
}

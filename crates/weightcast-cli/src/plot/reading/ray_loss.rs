//! A loop on Ray that loses a node, or none: `"weightcast": "ray-loss/1"`. Seconds count from a run's start.

use serde::Deserialize;

use super::BenchMachine;

#[derive(Debug, Deserialize)]
pub(crate) struct RayLossFile {
    pub(crate) machine: BenchMachine,
    pub(crate) runs: Vec<RayRun>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RayRun {
    /// Whose node is lost, if one is.
    pub(crate) lost: Option<String>,
    pub(crate) steps: Vec<RayStep>,
    pub(crate) events: Vec<RayEvent>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RayStep {
    pub(crate) step: u64,
    /// Fraction of right answers.
    pub(crate) reward: f64,
    /// Versions that the worst batch was behind.
    pub(crate) stalest: f64,
    /// Versions that the rollout furthest behind was behind.
    pub(crate) furthest: f64,
    pub(crate) ended_s: f64,
}

#[derive(Debug, Deserialize)]
pub(crate) struct RayEvent {
    /// The step that was the next to end.
    pub(crate) step: u64,
    pub(crate) what: String,
    pub(crate) detail: String,
    pub(crate) at_s: f64,
}

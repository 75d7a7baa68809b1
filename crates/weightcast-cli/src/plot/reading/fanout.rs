//! `bench fanout --json`.

use serde::Deserialize;

use super::BenchMachine;

#[derive(Debug, Deserialize)]
pub(crate) struct FanoutFile {
    pub(crate) machine: BenchMachine,
    pub(crate) bytes: u64,
    pub(crate) rate_mbit: u64,
    pub(crate) spreads: Vec<FileSpread>,
    #[serde(default)]
    pub(crate) killed: Vec<FileKilled>,
    #[serde(default)]
    pub(crate) seeded: Vec<FileSeeded>,
}

/// One number of readers.
#[derive(Debug, Deserialize)]
pub(crate) struct FileSpread {
    pub(crate) readers: u64,
    pub(crate) shards: u64,
    pub(crate) datacentres: u64,
    pub(crate) ideal_sum_s: f64,
    pub(crate) ideal_max_s: f64,
    pub(crate) stack: SpreadStalls,
    pub(crate) naive: Option<SpreadStalls>,
}

/// Total stall, and the slowest reader's.
#[derive(Debug, Deserialize)]
pub(crate) struct SpreadStalls {
    pub(crate) sum_s: f64,
    pub(crate) max_s: f64,
}

/// A source was killed.
#[derive(Debug, Deserialize)]
pub(crate) struct FileKilled {
    pub(crate) readers: u64,
    pub(crate) shards: u64,
    pub(crate) percent: u64,
    pub(crate) undisturbed_s: f64,
    pub(crate) max_s: f64,
    pub(crate) ideal_s: f64,
}

/// A version crossed to a second datacentre.
#[derive(Debug, Deserialize)]
pub(crate) struct FileSeeded {
    pub(crate) readers: u64,
    pub(crate) shards: u64,
    pub(crate) ideal_s: f64,
    pub(crate) ideal_crossing_s: f64,
    pub(crate) crossing_s: f64,
    pub(crate) longest_poll_s: f64,
    pub(crate) consume_s: f64,
}

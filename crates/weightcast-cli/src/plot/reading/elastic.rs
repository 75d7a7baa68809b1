//! `bench elastic --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::BenchMachine;

#[derive(Debug, Deserialize)]
pub(crate) struct ElasticFile {
    pub(crate) machine: BenchMachine,
    pub(crate) bytes: u64,
    pub(crate) rate_mbit: u64,
    pub(crate) ideal_s: f64,
    /// Median stall by the number of groups that joined at once.
    pub(crate) by_number: BTreeMap<u64, f64>,
    /// All stalls, the shortest first.
    pub(crate) cdf_s: Vec<f64>,
}

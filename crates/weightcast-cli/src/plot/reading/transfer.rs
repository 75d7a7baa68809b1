//! `bench transfer --json`.

use serde::Deserialize;

use super::BenchMachine;

#[derive(Debug, Deserialize)]
pub(crate) struct TransferFile {
    pub(crate) machine: BenchMachine,
    /// Smaller sizes, too small to judge speed by.
    pub(crate) quick: bool,
    pub(crate) runs: u64,
    pub(crate) transfers: Vec<FileTransfer>,
}

/// One case.
#[derive(Debug, Deserialize)]
pub(crate) struct FileTransfer {
    pub(crate) case: String,
    pub(crate) bytes: u64,
    pub(crate) ways: Vec<FileWay>,
}

/// One case, one way.
#[derive(Debug, Deserialize)]
pub(crate) struct FileWay {
    pub(crate) way: String,
    /// None where this way was not possible.
    pub(crate) stack: Option<MeasuredSpeed>,
    pub(crate) limits: Vec<LimitSpeed>,
}

/// Median time and speed.
#[derive(Debug, Deserialize)]
pub(crate) struct MeasuredSpeed {
    pub(crate) median_s: f64,
    pub(crate) gb_per_s: f64,
}

/// The same bytes, moved without weightcast.
#[derive(Debug, Deserialize)]
pub(crate) struct LimitSpeed {
    pub(crate) limit: String,
    #[serde(flatten)]
    pub(crate) speed: MeasuredSpeed,
}

//! `sim --scenario FILE --json`.

use serde::Deserialize;

#[derive(Debug, Deserialize)]
pub(crate) struct ScenarioFile {
    pub(crate) figure: String,
    pub(crate) cases: Vec<FileCase>,
}

/// One case: what is compared, and what was played.
#[derive(Debug, Deserialize)]
pub(crate) struct FileCase {
    pub(crate) case: String,
    pub(crate) rows: Vec<FileComparison>,
    pub(crate) outcome: FileOutcome,
}

/// A value beside what is reported of it.
#[derive(Debug, Deserialize)]
pub(crate) struct FileComparison {
    /// With its unit: `total stall (s)`.
    pub(crate) what: String,
    pub(crate) predicted: Option<f64>,
    pub(crate) reported: Option<f64>,
}

/// What a case came to.
#[derive(Debug, Deserialize)]
pub(crate) struct FileOutcome {
    pub(crate) stalls: Vec<FileStall>,
    pub(crate) links: Vec<FileLink>,
}

/// One shard's wait for a version.
#[derive(Debug, Deserialize)]
pub(crate) struct FileStall {
    pub(crate) stall_s: f64,
}

/// What went over a link, one way.
#[derive(Debug, Deserialize)]
pub(crate) struct FileLink {
    pub(crate) name: String,
    pub(crate) gb: f64,
}

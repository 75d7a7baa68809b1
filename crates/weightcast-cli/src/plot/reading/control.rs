//! `bench control --json`.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::BenchMachine;

#[derive(Debug, Deserialize)]
pub(crate) struct ControlFile {
    pub(crate) machine: BenchMachine,
    pub(crate) load_threads: u64,
    pub(crate) connected: Option<FileCrowd>,
    pub(crate) mixed: Vec<FileLoad>,
    pub(crate) herds: Vec<FileHerd>,
    pub(crate) failover: Option<FileFailover>,
    pub(crate) sweep: Vec<FileSweep>,
}

/// Sessions on their server.
#[derive(Debug, Deserialize)]
pub(crate) struct FileCrowd {
    pub(crate) sessions: u64,
    pub(crate) connect_s: f64,
    pub(crate) bytes_per_session: u64,
}

/// A mixed load. CPU is in shares of one core.
#[derive(Debug, Deserialize)]
pub(crate) struct FileLoad {
    pub(crate) asked_per_s: f64,
    pub(crate) all: FilePercentiles,
    pub(crate) kinds: BTreeMap<String, FilePercentiles>,
    pub(crate) server_cpu: f64,
    pub(crate) server_us_per_op: f64,
    pub(crate) load_cpu: f64,
}

/// Latencies of one kind of operation.
#[derive(Debug, Deserialize)]
pub(crate) struct FilePercentiles {
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
}

/// Groups that ask at once.
#[derive(Debug, Deserialize)]
pub(crate) struct FileHerd {
    pub(crate) call: String,
    pub(crate) groups: u64,
    pub(crate) seconds: f64,
    pub(crate) latency: FilePercentiles,
}

/// Sessions that lose their server.
#[derive(Debug, Deserialize)]
pub(crate) struct FileFailover {
    pub(crate) sessions: u64,
    pub(crate) lease_s: f64,
    pub(crate) first_s: f64,
    pub(crate) most_s: f64,
    pub(crate) all_s: f64,
}

/// One number of sessions of a sweep.
#[derive(Debug, Deserialize)]
pub(crate) struct FileSweep {
    pub(crate) connected: FileCrowd,
    pub(crate) mixed: FileLoad,
}

//! What lies in the files, as far as it is drawn: a file of structs per kind. Fields that nobody draws are skipped.

pub(super) mod control;
pub(super) mod demo;
pub(super) mod elastic;
pub(super) mod fanout;
pub(super) mod ray_loss;
pub(super) mod recording;
pub(super) mod scenario;
pub(super) mod transfer;

use serde::Deserialize;

/// The machine that a bench ran on.
#[derive(Debug, Deserialize)]
pub(crate) struct BenchMachine {
    cpu: String,
    cpus: u64,
    kernel: String,
}

impl BenchMachine {
    /// In one line.
    pub(crate) fn line(&self) -> String {
        format!("{}, {} CPUs, Linux {}", self.cpu, self.cpus, self.kernel)
    }
}

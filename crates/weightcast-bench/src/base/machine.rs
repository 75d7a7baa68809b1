//! The machine that a bench ran on: every report begins with it.

use std::fs;
use std::thread;

use serde::Serialize;

/// The processor and the kernel that a bench ran on.
#[derive(Debug, Serialize)]
pub(crate) struct Machine {
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) kernel: String,
}

/// The machine that this process runs on.
pub(crate) fn machine() -> Machine {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let info = read("/proc/cpuinfo");
    let cpu = info.lines().find_map(|l| l.strip_prefix("model name")?.split(": ").nth(1));
    Machine {
        cpu: cpu.unwrap_or("unknown").to_owned(),
        cpus: thread::available_parallelism().map_or(1, usize::from),
        kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
    }
}

//! What the host has to move bytes by.

use std::fs;
use std::path::Path;

use super::limits::ptrace_scope;
use crate::client::data_address::bind_address;
use crate::config::Options;
use crate::doctor::judgement::ways::WayFacts;
use crate::doctor::self_test;

/// Moves bytes to a second process, which `program` starts, and looks what else there is.
pub(in crate::doctor) fn ways(program: &[String], options: &Options) -> WayFacts {
    let ip = bind_address(options).map(|address| address.ip());
    let [direct, tcp] = self_test::trials(program, ip.map_err(|error| error.to_string()));
    WayFacts {
        direct,
        tcp,
        ptrace_scope: ptrace_scope(),
        rdma_devices: entries(Path::new("/sys/class/infiniband")),
        gpus: entries(Path::new("/proc/driver/nvidia/gpus")),
    }
}

/// How many entries a directory has; none, if there is no such directory.
fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, |entries| entries.flatten().count())
}

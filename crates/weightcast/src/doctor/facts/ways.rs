//! What the host has to move bytes by.

use std::fs;
use std::path::Path;

use super::limits::ptrace_scope;
use crate::client::data_address::bind_address;
use crate::config::Options;
use crate::doctor::judgement::ways::WayFacts;
use crate::doctor::self_test;

/// Which pages back shared memory: all choices, the one that holds in brackets.
const SHMEM_PAGES: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Moves bytes to a second process, which `program` starts, and looks what else there is.
pub(in crate::doctor) fn ways(program: &[String], options: &Options) -> WayFacts {
    let ip = bind_address(options).map(|address| address.ip());
    let [direct, tcp, shared] = self_test::trials(program, ip.map_err(|error| error.to_string()));
    WayFacts {
        direct,
        tcp,
        shared,
        shmem_pages: fs::read_to_string(SHMEM_PAGES).ok().as_deref().and_then(chosen),
        ptrace_scope: ptrace_scope(),
        rdma_devices: entries(Path::new("/sys/class/infiniband")),
        gpus: entries(Path::new("/proc/driver/nvidia/gpus")),
    }
}

/// How many entries a directory has; none, if there is no such directory.
fn entries(directory: &Path) -> usize {
    fs::read_dir(directory).map_or(0, |entries| entries.flatten().count())
}

/// The choice in brackets.
fn chosen(choices: &str) -> Option<String> {
    let (_, after) = choices.split_once('[')?;
    Some(after.split_once(']')?.0.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_choice_that_holds_stands_in_brackets() {
        for (choices, holds) in [
            ("always within_size advise [never] deny force\n", Some("never")),
            ("[always] never", Some("always")),
            ("always never", None),
            ("always [never", None),
            ("", None),
        ] {
            assert_eq!(chosen(choices).as_deref(), holds, "{choices}");
        }
    }
}

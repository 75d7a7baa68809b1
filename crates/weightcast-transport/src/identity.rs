//! Who a process is, so that a reader on the same host can tell that it reads the right one.

use std::fs;
use std::io;

/// Bytes of the nonce that proves a direct read.
pub(crate) const NONCE_BYTES: usize = 16;

/// What a data port tells about its process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// Process id, as its own pid namespace sees it.
    pub(crate) pid: u32,
    /// Start time in clock ticks since boot: tells a reused pid apart.
    pub(crate) start_time: u64,
    /// Digest of the host's boot id: another host is ruled out before its pid is tried.
    pub(crate) boot: [u8; 16],
    /// Where the nonce lies in the process.
    pub(crate) nonce_address: u64,
    /// The nonce: whoever reads it there reads this very process.
    pub(crate) nonce: [u8; NONCE_BYTES],
}

impl Identity {
    /// This process, with a nonce that lies at a stable address as long as the caller keeps it.
    pub(crate) fn of_this_process(nonce: &[u8; NONCE_BYTES]) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: start_time(pid).unwrap_or(0),
            boot: boot().unwrap_or([0; 16]),
            nonce_address: nonce.as_ptr().expose_provenance() as u64,
            nonce: *nonce,
        }
    }

    /// True if a process of this pid and start time runs on this boot of this host.
    pub(crate) fn is_local(&self) -> bool {
        boot().is_ok_and(|boot| boot == self.boot)
            && start_time(self.pid).is_ok_and(|start| start == self.start_time)
    }
}

/// A digest of the random id that the kernel draws at boot.
fn boot() -> io::Result<[u8; 16]> {
    let id = fs::read("/proc/sys/kernel/random/boot_id")?;
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(&id).as_bytes()[..16]);
    Ok(short)
}

/// Field 22 of `/proc/<pid>/stat`; the fields before it may hold spaces only inside parentheses.
fn start_time(pid: u32) -> io::Result<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(19);
    field.and_then(|ticks| ticks.parse().ok()).ok_or(io::ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_local_and_others_are_not() {
        let nonce = [7; NONCE_BYTES];
        let me = Identity::of_this_process(&nonce);
        assert!(me.is_local());
        assert!(!Identity { start_time: me.start_time + 1, ..me }.is_local());
        assert!(!Identity { boot: [0; 16], ..me }.is_local());
        assert!(!Identity { pid: u32::MAX, ..me }.is_local());
    }
}

//! What the system allows this process.

use std::fs;
use std::path::Path;
use std::time::Instant;

use rustix::process::{Resource, getrlimit};

use crate::doctor::judgement::limits::{ClockFacts, LimitFacts};

/// Readings of the clock that are compared.
const READINGS: usize = 10_000;
/// Where control groups tell the most memory that the process may have, and how much it has: version 2, and 1.
const GROUPS: [[&str; 2]; 2] = [
    ["/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"],
    ["/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes"],
];

/// The limits of this process and its host.
pub(in crate::doctor) fn limits() -> LimitFacts {
    let descriptors = getrlimit(Resource::Nofile);
    LimitFacts {
        descriptors: (descriptors.current, descriptors.maximum),
        memlock: getrlimit(Resource::Memlock).current,
        ptrace_scope: ptrace_scope(),
        shm: shm(),
        memory: memory(),
        cpus: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
        clock: clock(),
    }
}

/// Yama's, if the kernel has it.
pub(in crate::doctor) fn ptrace_scope() -> Option<u32> {
    number(Path::new("/proc/sys/kernel/yama/ptrace_scope")).and_then(|scope| scope.try_into().ok())
}

/// The number that a file of the kernel holds.
fn number(file: &Path) -> Option<u64> {
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn shm() -> Option<(u64, u64)> {
    let found = rustix::fs::statvfs("/dev/shm").ok()?;
    Some((found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize))
}

/// What the host has free, or the container may still take, if that is less.
fn memory() -> Option<u64> {
    let host = fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    let groups = GROUPS.iter().filter_map(|[most, used]| {
        Some(number(Path::new(most))?.saturating_sub(number(Path::new(used))?))
    });
    groups.chain(host).min()
}

/// `MemAvailable` of the kernel's table, in bytes.
fn available(table: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix(" kB")?.parse::<u64>().ok()?.checked_mul(1 << 10)
}

fn clock() -> ClockFacts {
    let readings: Vec<Instant> = (0..READINGS).map(|_| Instant::now()).collect();
    let pairs = || readings.windows(2).map(|pair| (pair[0], pair[1]));
    let steps = pairs().filter_map(|(one, next)| next.checked_duration_since(one));
    let step = steps.filter(|step| !step.is_zero()).min().unwrap_or_default();
    ClockFacts {
        backwards: pairs().any(|(one, next)| next < one),
        step_ns: u64::try_from(step.as_nanos()).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_tells_what_is_available() {
        let table = "MemTotal:       24000000 kB\nMemAvailable:    1024 kB\nBuffers: 7 kB\n";
        assert_eq!(available(table), Some(1 << 20));
        for table in ["", "MemAvailable: x kB", "MemAvailable: 7 MB", "Available: 7 kB"] {
            assert_eq!(available(table), None, "{table}");
        }
    }

    #[test]
    fn this_host_has_limits() {
        let found = limits();
        assert!(found.cpus >= 1 && !found.clock.backwards, "{found:?}");
        assert!(found.memory.is_some_and(|bytes| bytes > 0), "{found:?}");
        let (soft, hard) = found.descriptors;
        assert!(soft.unwrap_or(u64::MAX) <= hard.unwrap_or(u64::MAX) && soft != Some(0));
    }
}

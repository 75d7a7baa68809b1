//! What this process takes of its machine.

use std::fs;

use rustix::time::{ClockId, clock_gettime};

/// CPU, memory and descriptors; `None` where the system does not tell.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProcessUsage {
    /// Seconds on a CPU, over all threads.
    pub(super) cpu_seconds: f64,
    /// Bytes in memory.
    pub(super) resident_bytes: Option<u64>,
    pub(super) open_descriptors: Option<usize>,
}

/// Reads files of `/proc`: some microseconds, and milliseconds with ten thousand descriptors.
pub(super) fn of_this_process() -> ProcessUsage {
    let cpu = clock_gettime(ClockId::ProcessCPUTime);
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let descriptors = fs::read_dir("/proc/self/fd");
    ProcessUsage {
        cpu_seconds: cpu.tv_sec as f64 + cpu.tv_nsec as f64 / 1e9,
        resident_bytes: resident_bytes(&status),
        // Without the descriptor that lists them.
        open_descriptors: descriptors.ok().map(|list| list.count().saturating_sub(1)),
    }
}

/// Resident bytes, of the text of `/proc/PID/status`.
fn resident_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resident_memory_is_read_or_left_out() {
        let status = "Name:\tx\nVmHWM:\t  900 kB\nVmRSS:\t  123 kB\nThreads:\t1\n";
        assert_eq!(resident_bytes(status), Some(123 << 10));
        for other in ["", "VmRSS:\t 123\n", "VmRSS:\t x kB\n", "VmRSS:\t 18446744073709551615 kB"] {
            assert_eq!(resident_bytes(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_takes_something_of_each() {
        let before = of_this_process();
        let files: Vec<_> =
            (0..100).map(|_| fs::File::open("/proc/self/status").unwrap()).collect();
        let with = of_this_process();
        assert!(with.cpu_seconds > 0.0 && with.cpu_seconds >= before.cpu_seconds);
        assert!(with.resident_bytes.unwrap() > 1 << 20);
        assert!(with.open_descriptors.unwrap() >= files.len());
    }
}

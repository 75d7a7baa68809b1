//! Seconds, CPU seconds, memory; medians.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

/// Ticks a second of `/proc/PID/stat`: `USER_HZ`, the same on every Linux in use.
const TICKS: f64 = 100.0;

/// CPU seconds that a process has used, all of its threads, to 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read /proc/PID/stat")?;
    Ok(seconds_of(&stat))
}

/// The CPU seconds in a line of `/proc/PID/stat`.
fn seconds_of(stat: &str) -> f64 {
    // The name in parentheses may hold anything; utime and stime are the 12th and 13th behind it.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind.split_ascii_whitespace().skip(11).take(2);
    ticks.map(|t| t.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS
}

/// The largest growth of this process's resident memory since it was made.
pub(crate) struct MemoryPeak {
    before: u64,
}

impl MemoryPeak {
    /// Forgets earlier peaks. `None` where the kernel does not allow it.
    pub(crate) fn start() -> Option<Self> {
        fs::write("/proc/self/clear_refs", "5").ok()?;
        Some(Self { before: status_bytes("self", "VmRSS:")? })
    }

    /// Bytes by which resident memory has grown at most since the start.
    pub(crate) fn growth(&self) -> Option<u64> {
        Some(status_bytes("self", "VmHWM:")?.saturating_sub(self.before))
    }
}

/// Resident memory of a process in bytes.
pub(crate) fn resident_bytes(pid: u32) -> Result<u64> {
    status_bytes(&pid.to_string(), "VmRSS:").context("read VmRSS of /proc/PID/status")
}

fn status_bytes(process: &str, field: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    bytes_of(&status, field)
}

/// The bytes of a field of `/proc/PID/status`, which counts in KiB.
fn bytes_of(status: &str, field: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// What `work` returns, and the seconds it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed().as_secs_f64())
}

/// The middle value; of an even number of values the mean of the two in the middle; of no values zero.
pub(crate) fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[n / 2],
        n => f64::midpoint(sorted[n / 2 - 1], sorted[n / 2]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_tells_is_read_in_its_units() {
        let stat = |name: &str| {
            format!("7 ({name}) S 1 2 3 4 5 6 7 8 9 10 1250 250 1000 1000 20 0 1 0 99")
        };
        for name in ["weightcast", "a) b (c", "x y"] {
            assert_eq!(seconds_of(&stat(name)), 15.0, "{name}");
        }
        let status = "VmPeak:\t 9 kB\nVmHWM:\t 8 kB\nVmRSS:\t 3 kB\n";
        for (field, bytes) in [("VmRSS:", Some(3_072)), ("VmHWM:", Some(8_192)), ("VmX:", None)] {
            assert_eq!(bytes_of(status, field), bytes);
        }
    }

    #[test]
    fn work_is_timed_from_its_beginning() {
        let (took, seconds) = timed(|| {
            let start = Instant::now();
            while start.elapsed().as_micros() < 500 {}
            start.elapsed().as_secs_f64()
        });
        assert!(seconds >= took, "{seconds} {took}");
    }

    #[test]
    fn medians() {
        assert_eq!(median(&[]), 0.0);
        assert_eq!(median(&[3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(&[4.0, 1.0, 2.0, 3.0]), 2.5);
    }

    #[test]
    fn this_process_uses_cpu_time() {
        let before = cpu_seconds(std::process::id()).unwrap();
        let mut sum = 0_u64;
        while cpu_seconds(std::process::id()).unwrap() == before {
            sum = (0..1_000_000).fold(sum, |a, b| a ^ b);
        }
        assert!(cpu_seconds(u32::MAX).is_err());
    }
}

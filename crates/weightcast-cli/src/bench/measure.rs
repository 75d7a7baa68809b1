//! Seconds, CPU seconds, memory; medians.

use std::fs;
use std::time::Instant;

use anyhow::{Context, Result};

/// Ticks a second of `/proc/PID/stat`: `USER_HZ`, the same on every Linux in use.
const TICKS: f64 = 100.0;

/// CPU seconds that a process has used, all of its threads, to 10 ms.
pub(crate) fn cpu_seconds(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).context("read /proc/PID/stat")?;
    // The name in parentheses may hold anything; utime and stime are the 12th and 13th behind it.
    let behind = stat.rsplit(')').next().unwrap_or_default();
    let ticks = behind.split_ascii_whitespace().skip(11).take(2);
    Ok(ticks.map(|t| t.parse::<f64>().unwrap_or(0.0)).sum::<f64>() / TICKS)
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

    /// Bytes above the start.
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
    let line = status.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_ascii_whitespace().next()?.parse::<u64>().ok().map(|kib| kib << 10)
}

/// What `work` returns, and the seconds it took.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, f64) {
    let start = Instant::now();
    let value = work();
    (value, start.elapsed().as_secs_f64())
}

/// The middle one; of an even number the mean of the two in the middle. Of none, zero.
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

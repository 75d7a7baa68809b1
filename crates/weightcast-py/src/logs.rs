//! Events of the core, for Python's `logging`. A thread of Python's takes them: no thread of ours ever
//! waits for the GIL to say something.

use std::time::{Duration, UNIX_EPOCH};

use pyo3::prelude::*;
use weightcast::{LogLevel, LogLine};

use crate::exit::detached;

/// Level as Python numbers it, target, message, seconds since 1970, and how many lines were dropped before
/// this one.
type PythonLine = (u8, String, String, f64, u64);

/// Keeps events of the core from now on.
#[pyfunction]
pub(crate) fn log_to_queue() {
    weightcast::log_to_queue();
}

/// Keeps events of this level of Python's, and above.
#[pyfunction]
pub(crate) fn set_log_level(level: u32) {
    weightcast::set_log_level(match level {
        0..=10 => LogLevel::Debug,
        11..=20 => LogLevel::Info,
        21..=30 => LogLevel::Warn,
        31..=50 => LogLevel::Error,
        _ => LogLevel::Off,
    });
}

/// Takes the lines that wait; waits up to `limit` seconds for one. Comes back without any when the
/// interpreter ends.
#[pyfunction]
pub(crate) fn log_lines(py: Python<'_>, limit: f64) -> Vec<PythonLine> {
    let limit = Duration::try_from_secs_f64(limit).unwrap_or_default();
    detached(py, || weightcast::log_lines(limit)).into_iter().map(python_line).collect()
}

fn python_line(line: LogLine) -> PythonLine {
    let level = match line.level {
        LogLevel::Off => 100,
        LogLevel::Error => 40,
        LogLevel::Warn => 30,
        LogLevel::Info => 20,
        LogLevel::Debug => 10,
    };
    let at = line.at.duration_since(UNIX_EPOCH).unwrap_or_default();
    (level, line.target, line.message, at.as_secs_f64(), line.dropped)
}

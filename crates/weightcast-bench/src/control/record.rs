//! Latencies as they come in, by kind of operation.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use serde::Serialize;

/// Kinds of operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Operation {
    Heartbeat,
    Register,
    Replicate,
    Update,
    Describe,
    List,
    Publish,
    Unpublish,
}

/// Latencies and failures of all sessions of a run.
pub(crate) struct LatencyRecord {
    origin: Instant,
    taken: Mutex<Taken>,
}

/// Everything that was recorded since the last [`LatencyRecord::take`].
#[derive(Default)]
pub(crate) struct Taken {
    /// Nanoseconds from sending to the answer.
    pub(crate) latencies: BTreeMap<Operation, Vec<u64>>,
    /// The first few failures, in words.
    pub(crate) failures: Vec<String>,
    pub(crate) failed: u64,
}

/// Failures that are kept word for word.
const KEPT: usize = 4;

impl LatencyRecord {
    pub(crate) fn new() -> Self {
        Self { origin: Instant::now(), taken: Mutex::default() }
    }

    /// Nanoseconds since the run began.
    pub(crate) fn now(&self) -> u64 {
        self.origin.elapsed().as_nanos() as u64
    }

    /// Records that an operation sent at `sent_at` is answered now.
    pub(crate) fn answered(&self, kind: Operation, sent_at: u64) {
        let latency = self.now().saturating_sub(sent_at);
        self.add(kind, latency);
    }

    /// Records a latency that the caller has measured.
    pub(crate) fn add(&self, kind: Operation, nanos: u64) {
        self.with(|taken| taken.latencies.entry(kind).or_default().push(nanos));
    }

    pub(crate) fn failed(&self, what: String) {
        self.with(|taken| {
            taken.failed += 1;
            if taken.failures.len() < KEPT {
                taken.failures.push(what);
            }
        });
    }

    /// Takes everything that was recorded since the last call of `take`.
    pub(crate) fn take(&self) -> Taken {
        self.with(std::mem::take)
    }

    fn with<T>(&self, change: impl FnOnce(&mut Taken) -> T) -> T {
        change(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Latencies of one kind, or of all.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct LatencyFigures {
    pub(crate) count: usize,
    pub(crate) p50_ms: f64,
    pub(crate) p99_ms: f64,
    pub(crate) max_ms: f64,
}

impl LatencyFigures {
    pub(crate) fn of(mut nanos: Vec<u64>) -> Self {
        nanos.sort_unstable();
        let at = |share: f64| match nanos.len() {
            0 => 0.0,
            n => nanos[((n as f64 * share) as usize).min(n - 1)] as f64 / 1e6,
        };
        Self { count: nanos.len(), p50_ms: at(0.5), p99_ms: at(0.99), max_ms: at(1.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// All failures are counted, a few kept; what was taken is gone.
    #[test]
    fn what_was_recorded_is_taken_once() {
        for failures in [0, 1, KEPT - 1, KEPT, KEPT + 1, 3 * KEPT] {
            let record = LatencyRecord::new();
            record.add(Operation::List, 7);
            record.add(Operation::List, 5);
            record.add(Operation::Update, 9);
            (0..failures).for_each(|number| record.failed(number.to_string()));
            // A time of sending in the future counts as no latency.
            record.answered(Operation::Publish, u64::MAX);
            let taken = record.take();
            let latencies = BTreeMap::from([
                (Operation::List, vec![7, 5]),
                (Operation::Update, vec![9]),
                (Operation::Publish, vec![0]),
            ]);
            assert_eq!(taken.latencies, latencies);
            assert_eq!(taken.failed, failures as u64);
            let kept: Vec<String> =
                (0..failures.min(KEPT)).map(|number| number.to_string()).collect();
            assert_eq!(taken.failures, kept);
            let again = record.take();
            assert!(again.latencies.is_empty() && again.failures.is_empty() && again.failed == 0);
        }
    }

    #[test]
    fn percentiles() {
        let latency = LatencyFigures::of((1..=1000).rev().map(|ms| ms * 1_000_000).collect());
        assert_eq!((latency.p50_ms, latency.p99_ms, latency.max_ms), (501.0, 991.0, 1000.0));
        assert_eq!(LatencyFigures::of(Vec::new()).p99_ms, 0.0);
    }
}

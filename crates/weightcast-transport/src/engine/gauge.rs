//! Progress of a running transfer, source by source: for people, and so that a slow source can be noticed.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one read, by job. Empty until bytes begin to move.
#[derive(Debug, Default)]
pub struct Gauge {
    jobs: OnceLock<Jobs>,
}

#[derive(Debug)]
struct Jobs {
    /// Bytes of the whole transfer, including bytes of an earlier read that are kept.
    total: u64,
    /// Bytes that are still to come.
    left: Vec<AtomicU64>,
}

/// How far a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that have arrived and were served, including bytes of an earlier read that are kept.
    pub arrived: u64,
    /// Bytes that are still to come.
    pub left: u64,
    /// The job that has most of these.
    pub job: usize,
}

impl Gauge {
    /// How far the read is, once bytes move.
    pub fn look(&self) -> Option<Reading> {
        let jobs = self.jobs.get()?;
        let each = jobs.left.iter().map(|left| left.load(Ordering::Relaxed));
        let (left, most) = (each.clone().sum(), each.enumerate().max_by_key(|(_, left)| *left));
        let arrived = jobs.total.saturating_sub(left);
        Some(Reading { arrived, left, job: most.map_or(0, |(job, _)| job) })
    }

    /// Bytes begin to move: these for each job, beside the `kept` bytes. Called once per gauge.
    pub(crate) fn begin(&self, kept: u64, bytes: impl Iterator<Item = u64>) {
        let left: Vec<AtomicU64> = bytes.map(AtomicU64::new).collect();
        let planned: u64 = left.iter().map(|left| left.load(Ordering::Relaxed)).sum();
        let _ = self.jobs.set(Jobs { total: kept + planned, left });
    }

    pub(crate) fn arrived(&self, job: usize, bytes: u64) {
        if let Some(left) = self.jobs.get().and_then(|jobs| jobs.left.get(job)) {
            // A gauge that is used for two reads says nothing of the second.
            let less = |left: u64| Some(left.saturating_sub(bytes));
            let _ = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_how_far_a_read_is_and_who_is_behind() {
        let gauge = Gauge::default();
        assert_eq!(gauge.look(), None);
        gauge.begin(0, [100, 70].into_iter());
        assert_eq!(gauge.look(), Some(Reading { arrived: 0, left: 170, job: 0 }));
        gauge.arrived(0, 60);
        assert_eq!(gauge.look(), Some(Reading { arrived: 60, left: 110, job: 1 }));
    }

    #[test]
    fn it_counts_each_job_down_to_nothing() {
        let gauge = Gauge::default();
        gauge.arrived(0, 5);
        assert_eq!(gauge.look(), None, "nothing has begun");
        gauge.begin(0, [7, 0, 20].into_iter());
        let arrived = |job, bytes| {
            gauge.arrived(job, bytes);
            gauge.look().unwrap()
        };
        assert_eq!(arrived(2, 14), Reading { arrived: 14, left: 13, job: 0 });
        assert_eq!(arrived(0, 7), Reading { arrived: 21, left: 6, job: 2 });
        assert_eq!(arrived(3, 7), Reading { arrived: 21, left: 6, job: 2 }, "there is no such job");
        assert_eq!(arrived(1, 1), Reading { arrived: 21, left: 6, job: 2 }, "never below nothing");
        gauge.begin(0, [1_000].into_iter());
        assert_eq!(arrived(2, 100), Reading { left: 0, arrived: 27, ..gauge.look().unwrap() });
        let empty = Gauge::default();
        empty.begin(0, std::iter::empty());
        assert_eq!(empty.look(), Some(Reading { arrived: 0, left: 0, job: 0 }));
    }

    #[test]
    fn what_an_earlier_read_has_left_has_arrived_and_is_not_waited_for() {
        let gauge = Gauge::default();
        gauge.begin(30, [5, 10].into_iter());
        assert_eq!(gauge.look(), Some(Reading { arrived: 30, left: 15, job: 1 }));
        gauge.arrived(1, 10);
        assert_eq!(gauge.look(), Some(Reading { arrived: 40, left: 5, job: 0 }));
        let whole = Gauge::default();
        whole.begin(30, [0].into_iter());
        assert_eq!(whole.look(), Some(Reading { arrived: 30, left: 0, job: 0 }));
    }
}

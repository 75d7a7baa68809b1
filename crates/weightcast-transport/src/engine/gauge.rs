//! Progress of a running transfer, source by source: for people, and so that a slow source can be noticed.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes of one read, by job. Empty until bytes begin to move.
#[derive(Debug, Default)]
pub struct Gauge {
    jobs: OnceLock<Jobs>,
    ended: OnceLock<JobEnded>,
}

/// Called with the number of each job whose last byte has arrived.
struct JobEnded(Box<dyn Fn(usize) + Send + Sync>);

impl fmt::Debug for JobEnded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobEnded")
    }
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

    /// Has this called, by a thread of the read, with the number of each job whose last byte has arrived. Say this before
    /// the read begins; the first such call counts. Not called for a job without bytes, or whose read fails.
    pub fn on_end(&self, ended: impl Fn(usize) + Send + Sync + 'static) {
        let _ = self.ended.set(JobEnded(Box::new(ended)));
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
            let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
            let over = before.is_ok_and(|left| left > 0 && left <= bytes);
            if let (true, Some(JobEnded(tell))) = (over, self.ended.get()) {
                tell(job);
            }
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

    #[test]
    fn each_job_ends_once_with_its_last_byte() {
        let gauge = Gauge::default();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = std::sync::Arc::clone(&ended);
        gauge.on_end(move |job| told.lock().unwrap().push(job));
        gauge.begin(0, [10, 0, 20].into_iter());
        for (job, bytes, so_far) in [
            (0, 9, &[][..]),
            (2, 19, &[]),
            (1, 0, &[]),
            (2, 1, &[2]),
            (2, 1, &[2]),
            (0, 1, &[2, 0]),
            (0, 5, &[2, 0]),
        ] {
            gauge.arrived(job, bytes);
            assert_eq!(*ended.lock().unwrap(), so_far, "job {job}, {bytes} bytes");
        }
    }
}

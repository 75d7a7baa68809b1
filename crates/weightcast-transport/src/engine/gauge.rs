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
    /// Bytes that are still to come, of each job that has copies.
    left: Vec<AtomicU64>,
    /// Bytes that have come, from each job's source: those of siblings last.
    given: Vec<AtomicU64>,
    /// How many jobs siblings have.
    siblings: usize,
}

/// How far a read is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// Bytes that have arrived and were served, including bytes of an earlier read that are kept.
    pub arrived: u64,
    /// Bytes that are still to come.
    pub left: u64,
    /// The job that has most of these. Where several sources give them, the job of the source that has given
    /// least.
    pub job: usize,
}

impl Gauge {
    /// How far the read is, once bytes move.
    pub fn look(&self) -> Option<Reading> {
        let jobs = self.jobs.get()?;
        let each = jobs.left.iter().map(|left| left.load(Ordering::Relaxed));
        let (left, most) = (each.clone().sum(), each.enumerate().max_by_key(|(_, left)| *left));
        let arrived = jobs.total.saturating_sub(left);
        let givers = most.into_iter().flat_map(|(owner, _)| jobs.givers(owner));
        let least = givers.min_by_key(|job| jobs.given[*job].load(Ordering::Relaxed));
        Some(Reading { arrived, left, job: least.unwrap_or_default() })
    }

    /// Bytes that have come from each job's source. Empty until bytes move.
    pub fn given(&self) -> Vec<u64> {
        let jobs = self.jobs.get().into_iter().flat_map(|jobs| &jobs.given);
        jobs.map(|given| given.load(Ordering::Relaxed)).collect()
    }

    /// Has this called, by a thread of the read, with the number of each job whose last byte has arrived. Say this before
    /// the read begins; the first such call counts. Not called for a job without bytes, or whose read fails.
    pub fn on_end(&self, ended: impl Fn(usize) + Send + Sync + 'static) {
        let _ = self.ended.set(JobEnded(Box::new(ended)));
    }

    /// Bytes begin to move: these for each job, from so many sources together, beside the `kept` bytes. The
    /// last `siblings` jobs have one source each. Called once per gauge.
    pub(crate) fn begin(
        &self,
        kept: u64,
        bytes: impl Iterator<Item = u64>,
        stripes: usize,
        siblings: usize,
    ) {
        let left: Vec<AtomicU64> = bytes.map(AtomicU64::new).collect();
        let planned: u64 = left.iter().map(|left| left.load(Ordering::Relaxed)).sum();
        let sources = (left.len() - siblings) * stripes + siblings;
        let given = (0..sources).map(|_| AtomicU64::new(0)).collect();
        let _ = self.jobs.set(Jobs { total: kept + planned, left, given, siblings });
    }

    pub(crate) fn arrived(&self, job: usize, bytes: u64) {
        let Some(jobs) = self.jobs.get() else { return };
        let Some(given) = jobs.given.get(job) else { return };
        given.fetch_add(bytes, Ordering::Relaxed);
        let owner = jobs.owner(job);
        // A gauge that is used for two reads says nothing of the second.
        let less = |left: u64| Some(left.saturating_sub(bytes));
        let before = jobs.left[owner].fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        let over = before.is_ok_and(|left| left > 0 && left <= bytes);
        if let (true, Some(JobEnded(tell))) = (over, self.ended.get()) {
            jobs.givers(owner).for_each(tell);
        }
    }
}

impl Jobs {
    /// How many jobs have copies that other sources may give too, and how many jobs these sources have.
    fn striped(&self) -> (usize, usize) {
        (self.left.len() - self.siblings, self.given.len() - self.siblings)
    }

    /// The job whose copies a job's source gives.
    fn owner(&self, job: usize) -> usize {
        let (owners, striped) = self.striped();
        if job < striped { job % owners } else { owners + job - striped }
    }

    /// The jobs whose sources give the bytes of this one.
    fn givers(&self, owner: usize) -> impl Iterator<Item = usize> {
        let (owners, striped) = self.striped();
        match owner.checked_sub(owners) {
            Some(sibling) => (striped + sibling..striped + sibling + 1).step_by(1),
            None => (owner..striped).step_by(owners.max(1)),
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
        gauge.begin(0, [100, 70].into_iter(), 1, 0);
        assert_eq!(gauge.look(), Some(Reading { arrived: 0, left: 170, job: 0 }));
        gauge.arrived(0, 60);
        assert_eq!(gauge.look(), Some(Reading { arrived: 60, left: 110, job: 1 }));
    }

    #[test]
    fn it_counts_each_job_down_to_nothing() {
        let gauge = Gauge::default();
        gauge.arrived(0, 5);
        assert_eq!(gauge.look(), None, "nothing has begun");
        gauge.begin(0, [7, 0, 20].into_iter(), 1, 0);
        let arrived = |job, bytes| {
            gauge.arrived(job, bytes);
            gauge.look().unwrap()
        };
        assert_eq!(arrived(2, 14), Reading { arrived: 14, left: 13, job: 0 });
        assert_eq!(arrived(0, 7), Reading { arrived: 21, left: 6, job: 2 });
        assert_eq!(arrived(3, 7), Reading { arrived: 21, left: 6, job: 2 }, "there is no such job");
        assert_eq!(arrived(1, 1), Reading { arrived: 21, left: 6, job: 2 }, "never below nothing");
        gauge.begin(0, [1_000].into_iter(), 1, 0);
        assert_eq!(arrived(2, 100), Reading { left: 0, arrived: 27, ..gauge.look().unwrap() });
        let empty = Gauge::default();
        empty.begin(0, std::iter::empty(), 1, 0);
        assert_eq!(empty.look(), Some(Reading { arrived: 0, left: 0, job: 0 }));
    }

    /// Two jobs with copies, and two further sources of each.
    #[test]
    fn sources_that_give_together_are_counted_together_and_apart() {
        let gauge = Gauge::default();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = std::sync::Arc::clone(&ended);
        gauge.on_end(move |job| told.lock().unwrap().push(job));
        assert_eq!(gauge.given(), []);
        gauge.begin(5, [30, 20].into_iter(), 3, 0);
        for (job, bytes) in [(0, 10), (2, 3), (4, 5), (1, 12)] {
            gauge.arrived(job, bytes);
        }
        assert_eq!(gauge.given(), [10, 12, 3, 0, 5, 0]);
        // Twelve are left of the first, of which the second source has given least.
        assert_eq!(gauge.look(), Some(Reading { arrived: 35, left: 20, job: 2 }));
        assert!(ended.lock().unwrap().is_empty());
        gauge.arrived(3, 8);
        assert_eq!(*ended.lock().unwrap(), [1, 3, 5], "all that give it");
        gauge.arrived(4, 12);
        assert_eq!(*ended.lock().unwrap(), [1, 3, 5, 0, 2, 4]);
    }

    #[test]
    fn what_an_earlier_read_has_left_has_arrived_and_is_not_waited_for() {
        let gauge = Gauge::default();
        gauge.begin(30, [5, 10].into_iter(), 1, 0);
        assert_eq!(gauge.look(), Some(Reading { arrived: 30, left: 15, job: 1 }));
        gauge.arrived(1, 10);
        assert_eq!(gauge.look(), Some(Reading { arrived: 40, left: 5, job: 0 }));
        let whole = Gauge::default();
        whole.begin(30, [0].into_iter(), 1, 0);
        assert_eq!(whole.look(), Some(Reading { arrived: 30, left: 0, job: 0 }));
    }

    #[test]
    fn each_job_ends_once_with_its_last_byte() {
        let gauge = Gauge::default();
        let ended = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
        let told = std::sync::Arc::clone(&ended);
        gauge.on_end(move |job| told.lock().unwrap().push(job));
        gauge.begin(0, [10, 0, 20].into_iter(), 1, 0);
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

//! Progress of a read, for the session, which tells whether its source is slow, and for callers who wait.

use std::sync::{Arc, OnceLock};

use weightcast_protocol::session::ReadProgress;
use weightcast_transport::{Gauge, Reading};

/// Progress of one read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPace {
    pub(crate) gauge: Arc<Gauge>,
    /// Which shard of the assignment each job reads from. Jobs of siblings, the last ones, have none.
    shards: Arc<OnceLock<Vec<usize>>>,
}

impl ReadPace {
    /// Notes which shard each job reads from, once the jobs are known.
    pub(crate) fn of(&self, shards: impl Iterator<Item = usize>) {
        let _ = self.shards.set(shards.collect());
    }

    /// The progress; `None` until bytes move.
    pub(crate) fn look(&self) -> Option<ReadProgress> {
        let (reading, shards) = (self.gauge.look()?, self.shards.get()?);
        // Siblings, whose jobs come last, wait for the sources too.
        let shard = *shards.get(reading.job).or(shards.first())?;
        Some(ReadProgress { arrived: reading.arrived, left: reading.left, shard: shard as u32 })
    }
}

/// The read that was begun last, and its progress.
#[derive(Debug, Default)]
pub(crate) struct LatestRead {
    gauge: Arc<Gauge>,
    /// Progress of the read before, if this read continues that one.
    before: Option<Reading>,
}

impl LatestRead {
    /// A read begins. `keeps` if it continues the read before.
    pub(super) fn begin(&mut self, gauge: &Arc<Gauge>, keeps: bool) {
        self.before = self.look().filter(|_| keeps);
        self.gauge = Arc::clone(gauge);
    }

    /// Progress of the read. `None` before the first read, and for a new read before bytes move.
    pub(crate) fn look(&self) -> Option<Reading> {
        self.gauge.look().or(self.before)
    }

    /// Whether the gauge is that of the read.
    pub(crate) fn is_of(&self, gauge: &Arc<Gauge>) -> bool {
        Arc::ptr_eq(&self.gauge, gauge)
    }

    /// The gauge of the read.
    pub(crate) fn gauge(&self) -> Arc<Gauge> {
        Arc::clone(&self.gauge)
    }

    /// A read with this progress.
    #[cfg(test)]
    pub(crate) fn at(arrived: u64, left: u64) -> Self {
        Self { before: Some(Reading { arrived, left, job: 0 }), ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sibling_that_is_behind_is_told_as_the_first_source() {
        use weightcast_transport::{Auth, DataServer, Peer, Region, SourceJob, StridedCopy};
        let server = DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap();
        let export = server.exports().expose(1, vec![Region::allocate(8).unwrap()]);
        let soon = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let peer = Peer::connect(server.addr(), &Auth::default(), soon).unwrap();
        let job = |at, bytes| {
            let copies = vec![StridedCopy::contiguous(0, at, 0, at, bytes)];
            SourceJob { peer: &peer, export, generation: 1, copies }
        };
        let pace = ReadPace::default();
        assert_eq!(pace.look(), None);
        pace.of([7].into_iter());
        let options = weightcast_transport::TransferOptions {
            gauge: Arc::clone(&pace.gauge),
            siblings: 1,
            ..weightcast_transport::TransferOptions::default()
        };
        let target = [Region::allocate(8).unwrap()];
        weightcast_transport::read(&[job(0, 2), job(2, 6)], &target, &options).unwrap();
        let whole = ReadProgress { arrived: 8, left: 0, shard: 7 };
        assert_eq!(pace.look(), Some(whole), "of two jobs, the last of which is a sibling's");
    }

    #[test]
    fn a_read_that_goes_on_begins_where_the_one_before_was() {
        let mut latest = LatestRead::at(70, 30);
        let before = Some(Reading { arrived: 70, left: 30, job: 0 });
        assert_eq!(latest.look(), before);
        let (on, anew) = (Arc::new(Gauge::default()), Arc::new(Gauge::default()));
        latest.begin(&on, true);
        assert_eq!(latest.look(), before, "until its own bytes move");
        assert!(latest.is_of(&on) && !latest.is_of(&anew));
        latest.begin(&anew, false);
        assert_eq!(latest.look(), None);
        assert!(latest.is_of(&latest.gauge()) && !latest.is_of(&on));
    }
}

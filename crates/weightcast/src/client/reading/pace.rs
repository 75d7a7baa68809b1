//! Progress of the running read, from which the session tells whether its source is slow.

use std::sync::{Arc, OnceLock};

use weightcast_protocol::session::ReadProgress;
use weightcast_transport::Gauge;

/// Progress of one read.
#[derive(Clone, Debug, Default)]
pub(crate) struct ReadPace {
    pub(crate) gauge: Arc<Gauge>,
    /// Which shard of the assignment each job reads from.
    shards: Arc<OnceLock<Vec<usize>>>,
}

impl ReadPace {
    /// Notes which shard each job reads from, once the jobs are known.
    pub(crate) fn of(&self, shards: impl Iterator<Item = usize>) {
        let _ = self.shards.set(shards.collect());
    }

    /// The progress; `None` until bytes move.
    pub(crate) fn look(&self) -> Option<ReadProgress> {
        let reading = self.gauge.look()?;
        let shard = *self.shards.get()?.get(reading.job)?;
        Some(ReadProgress { arrived: reading.arrived, left: reading.left, shard: shard as u32 })
    }
}

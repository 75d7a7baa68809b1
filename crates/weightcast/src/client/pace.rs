//! How far the running read is, for the session, which looks whether its source is slow.

use std::sync::{Arc, OnceLock};

use weightcast_protocol::session::Progress;
use weightcast_transport::Gauge;

/// Of one read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    pub(crate) gauge: Arc<Gauge>,
    /// Which shard of the assignment each job reads from.
    shards: Arc<OnceLock<Vec<usize>>>,
}

impl Pace {
    /// The jobs are known.
    pub(crate) fn of(&self, shards: impl Iterator<Item = usize>) {
        let _ = self.shards.set(shards.collect());
    }

    /// How far it is, once bytes move.
    pub(crate) fn look(&self) -> Option<Progress> {
        let reading = self.gauge.look()?;
        let shard = *self.shards.get()?.get(reading.job)?;
        Some(Progress { arrived: reading.arrived, left: reading.left, shard: shard as u32 })
    }
}

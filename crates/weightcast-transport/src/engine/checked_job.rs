//! One job of a transfer: checked, cut, and the lane that carries it.

use super::job::SourceJob;
use super::options::ReadOptions;
use crate::base::error::TransportError;
use crate::base::holds::Holds;
use crate::base::limits::PIECE_BYTES;
use crate::base::patience::Patience;
use crate::lane::{Endpoint, LaneTask, OpenLane};
use crate::memory::region::Region;
use crate::piece::pieces::Pieces;
use crate::wire::description::ExportDescription;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// One job, checked and cut.
pub(super) struct CheckedJob<'a> {
    pub(super) source: usize,
    job: &'a SourceJob<'a>,
    description: Arc<ExportDescription>,
    pub(super) endpoint: &'a dyn Endpoint,
    pub(super) pieces: Pieces,
    /// Lanes that were opened for it.
    pub(super) lanes: AtomicUsize,
}

impl<'a> CheckedJob<'a> {
    /// Checks a job's copies, before any of them is made.
    pub(super) fn check(
        source: usize,
        job: &'a SourceJob<'a>,
        targets: &[Region],
        options: &ReadOptions,
    ) -> Result<Self, TransportError> {
        let patience = options.patience();
        patience.check("preparing the transfer")?;
        let description = job.peer.describe(job.export, job.generation, &patience)?;
        let region =
            |region: u32| description.regions.get(region as usize).map(|region| region.len);
        for (index, copy) in job.copies.iter().enumerate() {
            copy.check(index, region, targets, options.slots)?;
        }
        let endpoint = job.peer.endpoint(&description);
        endpoint.verify()?;
        let pieces = Pieces::cut(&[], PIECE_BYTES);
        Ok(Self { source, job, description, endpoint, pieces, lanes: AtomicUsize::new(0) })
    }

    /// A lane to its source, for one worker. `None` if others read all there is.
    pub(super) fn open<'r>(
        &'r self,
        targets: &'r [Region],
        holds: &'r Holds,
        patience: Patience<'r>,
    ) -> Result<Option<OpenLane<'r>>, TransportError> {
        if self.pieces.is_drawn() {
            return Ok(None);
        }
        let SourceJob { peer, export, generation, .. } = *self.job;
        let port = peer.port();
        let (description, pieces, lanes) = (&*self.description, &self.pieces, &self.lanes);
        let task = LaneTask {
            port,
            export,
            generation,
            description,
            pieces,
            targets,
            lanes,
            patience,
            holds,
        };
        let lane = self.endpoint.open(task)?;
        if lane.is_some() {
            self.lanes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(lane)
    }
}

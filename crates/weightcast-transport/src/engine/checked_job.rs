//! One job of a transfer: checked, and the lane that carries it.

use super::job::{SourceJob, TargetJob};
use super::options::TransferOptions;
use super::stock::Stock;
use crate::base::error::TransportError;
use crate::base::limits::HELPER_PATIENCE;
use crate::base::patience::Patience;
use crate::lane::{Endpoint, LaneTask, OpenLane, WriteEndpoint, WriteTask};
use crate::memory::region::Region;
use crate::piece::copy::StridedCopy;
use crate::piece::pieces::RunOffsets;
use crate::wire::description::ExportDescription;
use crate::wire::mac::GrantKey;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// One job, checked.
pub(super) struct CheckedJob<'a> {
    /// Index into the jobs.
    pub(super) number: usize,
    verb: JobVerb<'a>,
}

/// What is done with the pieces of a job, and over what lane.
enum JobVerb<'a> {
    Read { job: &'a SourceJob<'a>, description: Arc<ExportDescription>, endpoint: &'a dyn Endpoint },
    Write { job: &'a TargetJob<'a>, key: GrantKey, endpoint: &'a dyn WriteEndpoint },
}

impl<'a> CheckedJob<'a> {
    /// Checks the copies of a read, those of another job if it gives them in that one's place, before any is
    /// made.
    pub(super) fn read(
        number: usize,
        job: &'a SourceJob<'a>,
        copies: &[StridedCopy],
        targets: &[Region],
        options: &TransferOptions,
    ) -> Result<Self, TransportError> {
        let mut patience = options.patience();
        patience.check("preparing the transfer")?;
        if job.copies.is_empty() && !copies.is_empty() {
            patience = patience.at_most(HELPER_PATIENCE);
        }
        let description = job.peer.describe(job.export, job.generation, &patience)?;
        let region =
            |region: u32| description.regions.get(region as usize).map(|region| region.len);
        for (index, copy) in copies.iter().enumerate() {
            copy.check(index, region, targets, options.slots)?;
        }
        let endpoint = job.peer.endpoint(job.export, &description);
        endpoint.verify()?;
        Ok(Self { number, verb: JobVerb::Read { job, description, endpoint } })
    }

    /// Checks the copies of a write, before any of them is made.
    pub(super) fn write(
        number: usize,
        job: &'a TargetJob<'a>,
        sources: &[Region],
        options: &TransferOptions,
    ) -> Result<Self, TransportError> {
        options.patience().check("preparing the transfer")?;
        let source = |region: u32| sources.get(region as usize).map(|region| region.len() as u64);
        let target = |region: u32| job.grant.lens.get(region as usize).copied();
        for (index, copy) in job.copies.iter().enumerate() {
            copy.check_bounds(index, source, target, options.slots)?;
        }
        let key = GrantKey::new(&job.grant.secret);
        Ok(Self { number, verb: JobVerb::Write { job, key, endpoint: job.peer.writer() } })
    }

    /// A lane to the other end, for one worker that draws from a stock. `None` if others move all there is.
    /// `memory` is that of this process: targets of a read, sources of a write.
    pub(super) fn open<'r>(
        &'r self,
        stock: &'r Stock,
        memory: &'r [Region],
        options: &'r TransferOptions,
        patience: Patience<'r>,
    ) -> Result<Option<OpenLane<'r>>, TransportError> {
        let (pieces, lanes, holds) = (&stock.pieces, &stock.lanes, &options.holds);
        if pieces.is_drawn() {
            return Ok(None);
        }
        let lane = match &self.verb {
            JobVerb::Read { job, description, endpoint } => {
                let SourceJob { peer, export, generation, .. } = **job;
                let (port, targets, digests) = (peer.port(), memory, options.digests);
                endpoint.open(LaneTask {
                    port,
                    export,
                    generation,
                    description,
                    pieces,
                    targets,
                    digests,
                    lanes,
                    patience,
                    holds,
                })?
            }
            JobVerb::Write { job, key, endpoint } => {
                let (grant, sources) = (job.grant, memory);
                let task = WriteTask { grant, key, pieces, sources, lanes, patience, holds };
                endpoint.open_writer(task)?
            }
        };
        if lane.is_some() {
            lanes.fetch_add(1, Ordering::AcqRel);
        }
        Ok(lane)
    }

    /// Whether pieces are under way while others arrive, so that a worker of its own is worth it.
    pub(super) fn asks_ahead(&self) -> bool {
        match &self.verb {
            JobVerb::Read { endpoint, .. } => endpoint.asks_ahead(),
            JobVerb::Write { .. } => true,
        }
    }

    /// # Errors
    /// [`TransportError::SourceGone`] unless the other end is still that of the beginning. Every answer to a
    /// write proves that.
    pub(super) fn verify(&self) -> Result<(), TransportError> {
        match &self.verb {
            JobVerb::Read { endpoint, .. } => endpoint.verify(),
            JobVerb::Write { .. } => Ok(()),
        }
    }

    /// Reads over a test's endpoint.
    #[cfg(test)]
    pub(super) fn read_over(&mut self, over: &'a dyn Endpoint) {
        let JobVerb::Read { endpoint, .. } = &mut self.verb else { panic!("a write") };
        *endpoint = over;
    }

    /// Where a run lies in the memory of this process: its region, and its first byte there.
    pub(super) fn ours(&self, copy: &StridedCopy, run: RunOffsets) -> (usize, usize) {
        match &self.verb {
            JobVerb::Read { .. } => (copy.target_region as usize, run.target as usize),
            JobVerb::Write { .. } => (copy.source_region as usize, run.source as usize),
        }
    }
}

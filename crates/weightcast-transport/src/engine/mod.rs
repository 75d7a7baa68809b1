//! The transfer engine: many copies from many sources, a few threads, digests on the way.

use crate::copy::{Copy, SourceJob};
use crate::digest::Digest;
use crate::error::{ReadError, TransportError};
use crate::filling::Filling;
use crate::gauge::Gauge;
use crate::holds::Holds;
use crate::lane::{Endpoint, LaneTask, OpenLane};
use crate::limits::PIECE_BYTES;
use crate::patience::Patience;
use crate::pieces::Pieces;
use crate::region::Region;
use crate::wire::Description;
use run::RunningTransfer;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Instant;

mod run;

/// How a transfer runs.
#[derive(Clone, Debug)]
pub struct ReadOptions {
    /// Threads, and so streams over TCP. Every TCP source has one stream at least, as far as
    /// [`MAX_THREADS`] go.
    pub threads: usize,
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Raise it to give up.
    pub cancel: Arc<AtomicBool>,
    /// Grows by the bytes of every piece that arrived and was served. With `filling` it begins at
    /// the bytes that are kept.
    pub progress: Arc<AtomicU64>,
    /// Tells how much is still to come from whom. One for each read.
    pub gauge: Arc<Gauge>,
    /// Where progress is advertised while the targets are being filled. What is final there is not
    /// read again; the digests are then only of what was, so use those of the whole memory.
    pub filling: Option<Arc<Filling>>,
    /// Whether digests are made; without them all slots stay zero.
    pub digests: bool,
    /// Number of digests returned: one more than the largest slot of a copy.
    pub slots: usize,
    /// Where a test stops it.
    #[doc(hidden)]
    pub holds: Holds,
}

impl Default for ReadOptions {
    /// Two threads, digests into one slot, no deadline.
    fn default() -> Self {
        Self {
            threads: 2,
            deadline: None,
            cancel: Arc::default(),
            progress: Arc::default(),
            gauge: Arc::default(),
            filling: None,
            digests: true,
            slots: 1,
            holds: Holds::default(),
        }
    }
}

impl ReadOptions {
    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { deadline: self.deadline, cancel: Some(&self.cancel), stop: None }
    }
}

/// Makes all copies, each over the first lane of its source that carries it, and returns the digest of
/// each slot.
///
/// All bounds are checked on both sides before any byte moves. Copies into overlapping target bytes
/// end in no particular order.
///
/// # Errors
/// The first failure, with the index of its job. Target bytes may then be half-written, and nothing of
/// them may be used.
pub fn read(
    jobs: &[SourceJob<'_>],
    targets: &[Region],
    options: &ReadOptions,
) -> Result<Vec<Digest>, ReadError> {
    let mut routes = Vec::with_capacity(jobs.len());
    for (source, job) in jobs.iter().enumerate() {
        let route = Route::check(source, job, targets, options);
        routes.push(route.map_err(|kind| ReadError { source, kind })?);
    }
    let copies = jobs.iter().map(|job| job.copies.as_slice());
    let copies: Vec<Cow<'_, [Copy]>> = match &options.filling {
        Some(filling) => filling.begin(copies).into_iter().map(Cow::Owned).collect(),
        None => copies.map(Cow::Borrowed).collect(),
    };
    if options.filling.is_some() {
        let planned: u64 = jobs.iter().flat_map(|job| &job.copies).map(Copy::bytes).sum();
        let missing: u64 = copies.iter().flat_map(|copies| copies.iter()).map(Copy::bytes).sum();
        options.progress.store(planned - missing, Ordering::Relaxed);
    }
    let missing = copies.iter().map(|copies| copies.iter().map(Copy::bytes).sum());
    options.gauge.begin(missing);
    // Who reads from this reader waits for whole pieces.
    let size = options.filling.as_ref().map_or(PIECE_BYTES, |filling| filling.units().piece());
    let cut = |(route, copies): (&mut Route<'_>, &Cow<'_, [Copy]>)| {
        route.pieces = Pieces::cut(copies, size);
    };
    routes.iter_mut().zip(&copies).for_each(cut);
    RunningTransfer::new(routes, targets, options).execute()
}

/// One job, checked and cut.
struct Route<'a> {
    source: usize,
    job: &'a SourceJob<'a>,
    description: Arc<Description>,
    endpoint: &'a dyn Endpoint,
    pieces: Pieces,
    /// Lanes that were opened for it.
    lanes: AtomicUsize,
}

impl<'a> Route<'a> {
    /// Checks a job's copies, before any of them is made.
    fn check(
        source: usize,
        job: &'a SourceJob<'a>,
        targets: &[Region],
        options: &ReadOptions,
    ) -> Result<Self, TransportError> {
        let patience = options.patience();
        patience.check("preparing the transfer")?;
        let description = job.peer.describe(job.export, job.generation, &patience)?;
        let region = |region: u32| description.regions.get(region as usize).map(|r| r.1);
        for (index, copy) in job.copies.iter().enumerate() {
            copy.check(index, region, targets, options.slots)?;
        }
        let endpoint = job.peer.endpoint(&description);
        endpoint.verify()?;
        let pieces = Pieces::cut(&[], PIECE_BYTES);
        Ok(Self { source, job, description, endpoint, pieces, lanes: AtomicUsize::new(0) })
    }

    /// A lane to its source, for one worker. `None` if others read all there is.
    fn open<'r>(
        &'r self,
        targets: &'r [Region],
        holds: &'r Holds,
        patience: Patience<'r>,
    ) -> Result<Option<OpenLane<'r>>, TransportError> {
        if self.pieces.is_drawn() {
            return Ok(None);
        }
        let SourceJob { peer, export, generation, .. } = *self.job;
        let (description, pieces, lanes) = (&*self.description, &self.pieces, &self.lanes);
        let task = LaneTask {
            peer,
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

#[cfg(test)]
mod tests;

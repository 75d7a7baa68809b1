//! The transfer engine: many copies from many sources, a few threads, digests on the way.

use crate::connect::Direct;
use crate::copy::SourceJob;
use crate::digest::{Digest, digest_raw};
use crate::direct::DirectReader;
use crate::error::{ReadError, TransportError};
use crate::exports::lock;
use crate::limits::MAX_THREADS;
use crate::patience::Patience;
use crate::peer::Peer;
use crate::pieces::{Piece, Pieces};
use crate::region::Region;
use crate::tcp::TcpReader;
use crate::wire::Description;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Instant;

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
    /// Grows by the bytes of every piece that arrived and was served.
    pub progress: Arc<AtomicU64>,
    /// Whether digests are made; without them all slots stay zero.
    pub digests: bool,
    /// Number of digests returned: one more than the largest slot of a copy.
    pub slots: usize,
}

impl Default for ReadOptions {
    /// Two threads, digests into one slot, no deadline.
    fn default() -> Self {
        Self {
            threads: 2,
            deadline: None,
            cancel: Arc::default(),
            progress: Arc::default(),
            digests: true,
            slots: 1,
        }
    }
}

impl ReadOptions {
    pub(crate) fn patience(&self) -> Patience<'_> {
        Patience { deadline: self.deadline, cancel: Some(&self.cancel), stop: None }
    }
}

/// A way to carry out jobs. All ways pass one contract suite.
pub trait Transport: Sized {
    /// Makes all copies and returns the digest of each slot.
    ///
    /// All bounds are checked on both sides before any byte moves. Copies into overlapping target
    /// bytes end in no particular order.
    ///
    /// # Errors
    /// The first failure, with the index of its job. Target bytes may then be half-written, and
    /// nothing of them may be used.
    fn read(
        jobs: &[SourceJob<'_, Self>],
        targets: &[Region],
        options: &ReadOptions,
    ) -> Result<Vec<Digest>, ReadError>;
}

impl Transport for Peer {
    fn read(
        jobs: &[SourceJob<'_>],
        targets: &[Region],
        options: &ReadOptions,
    ) -> Result<Vec<Digest>, ReadError> {
        read(jobs, targets, options)
    }
}

/// Reads from peers: directly where the kernel permits, else over TCP. See [`Transport::read`].
///
/// # Errors
/// As [`Transport::read`].
pub fn read(
    jobs: &[SourceJob<'_>],
    targets: &[Region],
    options: &ReadOptions,
) -> Result<Vec<Digest>, ReadError> {
    let mut routes = Vec::with_capacity(jobs.len());
    for (source, job) in jobs.iter().enumerate() {
        let route = Route::prepare(job, targets, options);
        routes.push(route.map_err(|kind| ReadError { source, kind })?);
    }
    let run =
        Run { routes, targets, options, stop: AtomicBool::new(false), failed: Mutex::default() };
    run.execute()
}

/// One job, checked and cut.
struct Route<'a> {
    job: &'a SourceJob<'a>,
    description: Arc<Description>,
    pieces: Pieces,
}

impl<'a> Route<'a> {
    fn prepare(
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
        job.peer.direct().map_or(Ok(()), Direct::verify)?;
        let pieces = Pieces::cut(&job.copies);
        Ok(Self { job, description, pieces })
    }
}

/// A running transfer, shared by its workers.
struct Run<'a> {
    routes: Vec<Route<'a>>,
    targets: &'a [Region],
    options: &'a ReadOptions,
    /// Raised at the first failure, so that the other workers end too.
    stop: AtomicBool,
    failed: Mutex<Option<ReadError>>,
}

impl Run<'_> {
    fn execute(self) -> Result<Vec<Digest>, ReadError> {
        let workers = self.workers();
        let mut digests = vec![Digest::ZERO; self.options.slots];
        thread::scope(|scope| {
            let others: Vec<_> = (1..workers).map(|w| scope.spawn(move_worker(&self, w))).collect();
            let mut parts = vec![self.work(0)];
            parts.extend(others.into_iter().map(|t| t.join().expect("workers do not panic")));
            for part in parts {
                digests.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
        });
        let failed = lock(&self.failed).take();
        failed.map_or(Ok(()), Err)?;
        self.verify_alive()?;
        Ok(digests)
    }

    /// Threads as asked, at least one per TCP source, never more than there are pieces.
    fn workers(&self) -> usize {
        let pieces: usize = self.routes.iter().map(|route| route.pieces.count()).sum();
        let over_tcp = self.routes.iter().filter(|r| r.job.peer.direct().is_none()).count();
        self.options.threads.max(over_tcp).clamp(1, MAX_THREADS).min(pieces.max(1))
    }

    /// One worker: begins at a source of its own, then helps with the others.
    fn work(&self, worker: usize) -> Vec<Digest> {
        let slots = if self.options.digests { self.options.slots } else { 0 };
        let mut digests = vec![Digest::ZERO; slots];
        for turn in 0..self.routes.len() {
            let source = (worker + turn) % self.routes.len();
            let drained = self.drain(&self.routes[source], &mut digests);
            if let Err(kind) = drained {
                // Noted before the others are stopped: what they then report is no cause.
                lock(&self.failed).get_or_insert(ReadError { source, kind });
                self.stop.store(true, Ordering::Release);
                break;
            }
        }
        digests
    }

    /// Reads pieces of one source until none is left.
    fn drain(&self, route: &Route<'_>, digests: &mut [Digest]) -> Result<(), TransportError> {
        let patience = Patience { stop: Some(&self.stop), ..self.options.patience() };
        let Some(direct) = route.job.peer.direct() else {
            return self.drain_tcp(route, digests, patience);
        };
        let mut reader = DirectReader::new(route.job, direct, &route.description, self.targets);
        while let Some(piece) = route.pieces.draw() {
            patience.check("reading")?;
            reader.read(&route.pieces, piece)?;
            self.arrived(&route.pieces, piece, digests);
        }
        Ok(())
    }

    fn drain_tcp(
        &self,
        route: &Route<'_>,
        digests: &mut [Digest],
        patience: Patience<'_>,
    ) -> Result<(), TransportError> {
        if route.pieces.is_drawn() {
            return Ok(());
        }
        let stream = route.job.peer.pool().take(&patience)?;
        let mut reader = TcpReader::new(route.job, &route.pieces, self.targets, stream, patience);
        while let Some(piece) = reader.next()? {
            self.arrived(&route.pieces, piece, digests);
        }
        if let Some(stream) = reader.into_stream() {
            route.job.peer.pool().give_back(stream);
        }
        Ok(())
    }

    /// Digests a piece that was served, while it is still in the cache.
    fn arrived(&self, pieces: &Pieces, piece: &Piece, digests: &mut [Digest]) {
        if !digests.is_empty() {
            pieces.rows(piece, |copy, row, len| {
                let target = self.targets[copy.target_region as usize].address() + row.target;
                let target = std::ptr::with_exposed_provenance(target as usize);
                // SAFETY: checked to lie in the target region, which its owner keeps readable.
                let digest = unsafe { digest_raw(row.position, target, len) };
                digests[copy.slot as usize] += digest;
            });
        }
        self.options.progress.fetch_add(piece.bytes as u64, Ordering::Relaxed);
    }

    /// The processes read directly are still those that were probed.
    fn verify_alive(&self) -> Result<(), ReadError> {
        for (source, route) in self.routes.iter().enumerate() {
            let alive = route.job.peer.direct().map_or(Ok(()), Direct::verify);
            alive.map_err(|kind| ReadError { source, kind })?;
        }
        Ok(())
    }
}

/// A worker's closure, owning nothing but its number.
fn move_worker<'s>(run: &'s Run<'_>, worker: usize) -> impl FnOnce() -> Vec<Digest> + 's {
    move || run.work(worker)
}

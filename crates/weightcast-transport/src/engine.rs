//! The transfer engine: many copies from many sources, a few threads, digests on the way.

use crate::connect::Direct;
use crate::copy::{Copy, SourceJob};
use crate::digest::{Digest, digest_raw};
use crate::direct::DirectReader;
use crate::error::{ReadError, TransportError};
use crate::exports::lock;
use crate::filling::Filling;
use crate::gauge::Gauge;
use crate::limits::{MAX_THREADS, PIECE_BYTES};
use crate::patience::Patience;
use crate::peer::Peer;
use crate::pieces::{Piece, Pieces};
use crate::region::Region;
use crate::tcp::TcpReader;
use crate::wire::Description;
use std::borrow::Cow;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
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
    let run =
        Run { routes, targets, options, stop: AtomicBool::new(false), failed: Mutex::default() };
    run.execute()
}

/// One job, checked and cut.
struct Route<'a> {
    source: usize,
    job: &'a SourceJob<'a>,
    description: Arc<Description>,
    pieces: Pieces,
    /// Workers that have had a connection to it: they read until nothing is left, or all fails.
    streams: AtomicUsize,
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
        job.peer.direct().map_or(Ok(()), Direct::verify)?;
        let pieces = Pieces::cut(&[], PIECE_BYTES);
        Ok(Self { source, job, description, pieces, streams: AtomicUsize::new(0) })
    }
}

impl Route<'_> {
    /// Its source's memory, if that is the way to all it exports.
    fn direct(&self) -> Option<&Direct> {
        self.job.peer.direct().filter(|_| !self.description.is_computed())
    }

    /// A reader of its source's memory, if that is the way to it.
    fn direct_reader<'a>(&'a self, targets: &'a [Region]) -> Option<DirectReader<'a>> {
        let direct = self.direct()?;
        Some(DirectReader::new(self.job, direct, &self.description, targets))
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
        let over_tcp = self.routes.iter().filter(|r| r.direct().is_none()).count();
        self.options.threads.max(over_tcp).clamp(1, MAX_THREADS).min(pieces.max(1))
    }

    /// One worker: begins at a source of its own, then helps with the others.
    fn work(&self, worker: usize) -> Vec<Digest> {
        let slots = if self.options.digests { self.options.slots } else { 0 };
        let mut digests = vec![Digest::ZERO; slots];
        let in_order = self.options.filling.is_some();
        let done = if in_order { self.fill(&mut digests) } else { Ok(()) };
        let mut turns = (0..self.routes.len()).map(|turn| (worker + turn) % self.routes.len());
        let done = done.and_then(|()| turns.try_for_each(|s| self.drain(s, &mut digests)));
        if let Err(error) = done {
            // Noted before the others are stopped: what they then report is no cause.
            lock(&self.failed).get_or_insert(error);
            self.stop.store(true, Ordering::Release);
        }
        digests
    }

    /// Draws pieces of all direct sources in the order of the target's memory, so that what is
    /// final grows evenly and readers of this relay need not wait.
    fn fill(&self, digests: &mut [Digest]) -> Result<(), ReadError> {
        let direct = |route| Route::direct_reader(route, self.targets);
        let mut readers: Vec<_> = self.routes.iter().map(direct).collect();
        let next = |source: &usize| self.routes[*source].pieces.next_target();
        loop {
            let sources = (0..readers.len()).filter(|s| readers[*s].is_some());
            let source = sources.filter(|s| next(s).is_some()).min_by_key(|s| next(s));
            let Some(source) = source else { return Ok(()) };
            let reader = readers[source].as_mut().expect("chosen so");
            let drawn = self.draw(&self.routes[source], reader, digests);
            drawn.map_err(|kind| ReadError { source, kind })?;
        }
    }

    /// Reads the next piece of a direct source. False if there is none.
    fn draw(
        &self,
        route: &Route<'_>,
        reader: &mut DirectReader<'_>,
        digests: &mut [Digest],
    ) -> Result<bool, TransportError> {
        let Some(piece) = route.pieces.draw() else { return Ok(false) };
        let patience = self.patience();
        patience.check("reading")?;
        reader.wait(&route.pieces, piece, &patience)?;
        reader.read(&route.pieces, piece)?;
        self.arrived(route, piece, digests);
        Ok(true)
    }

    fn patience(&self) -> Patience<'_> {
        Patience { stop: Some(&self.stop), ..self.options.patience() }
    }

    /// Reads pieces of one source until none is left.
    fn drain(&self, source: usize, digests: &mut [Digest]) -> Result<(), ReadError> {
        let route = &self.routes[source];
        let drained = match route.direct_reader(self.targets) {
            Some(reader) => self.drain_direct(route, reader, digests),
            None => self.drain_tcp(route, digests),
        };
        drained.map_err(|kind| ReadError { source, kind })
    }

    fn drain_direct(
        &self,
        route: &Route<'_>,
        mut reader: DirectReader<'_>,
        digests: &mut [Digest],
    ) -> Result<(), TransportError> {
        while self.draw(route, &mut reader, digests)? {}
        Ok(())
    }

    fn drain_tcp(&self, route: &Route<'_>, digests: &mut [Digest]) -> Result<(), TransportError> {
        let patience = self.patience();
        if route.pieces.is_drawn() {
            return Ok(());
        }
        // Where the source has no place left, whoever has one reads all there is.
        let alone = || route.streams.load(Ordering::Acquire) == 0 && !route.pieces.is_drawn();
        let stream = match route.job.peer.pool().take(&patience, alone) {
            Err(TransportError::Full { .. }) if !alone() => return Ok(()),
            taken => taken?,
        };
        route.streams.fetch_add(1, Ordering::AcqRel);
        let filling = route.description.filling;
        let mut reader =
            TcpReader::new(route.job, &route.pieces, self.targets, stream, patience, filling);
        while let Some(piece) = reader.next()? {
            self.arrived(route, piece, digests);
        }
        if let Some(stream) = reader.into_stream() {
            route.job.peer.pool().give_back(stream);
        }
        Ok(())
    }

    /// Digests a piece that was served, while it is still in the cache.
    fn arrived(&self, route: &Route<'_>, piece: &Piece, digests: &mut [Digest]) {
        let pieces = &route.pieces;
        if !digests.is_empty() {
            pieces.rows(piece, |copy, row, len| {
                let target = self.targets[copy.target_region as usize].address() + row.target;
                let target = std::ptr::with_exposed_provenance(target as usize);
                // SAFETY: checked to lie in the target region, which its owner keeps readable.
                let digest = unsafe { digest_raw(row.position, target, len) };
                digests[copy.slot as usize] += digest;
            });
        }
        if let Some(filling) = &self.options.filling {
            pieces.rows(piece, |copy, row, len| {
                filling.arrived(copy.target_region, row.target, len as u64);
            });
        }
        self.options.progress.fetch_add(piece.bytes as u64, Ordering::Relaxed);
        self.options.gauge.arrived(route.source, piece.bytes as u64);
    }

    /// The processes read directly are still those that were probed.
    fn verify_alive(&self) -> Result<(), ReadError> {
        for (source, route) in self.routes.iter().enumerate() {
            let alive = route.direct().map_or(Ok(()), Direct::verify);
            alive.map_err(|kind| ReadError { source, kind })?;
        }
        Ok(())
    }
}

/// A worker's closure, owning nothing but its number.
fn move_worker<'s>(run: &'s Run<'_>, worker: usize) -> impl FnOnce() -> Vec<Digest> + 's {
    move || run.work(worker)
}

//! A transfer that runs: workers draw pieces and move them over lanes.

use super::{ReadOptions, Route};
use crate::digest::{Digest, digest_raw};
use crate::error::{ReadError, TransportError};
use crate::exports::lock;
use crate::holds::HoldPoint;
use crate::lane::{Lane, OpenLane};
use crate::limits::MAX_THREADS;
use crate::patience::Patience;
use crate::pieces::Piece;
use crate::region::Region;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// A running transfer, shared by its workers.
pub(super) struct RunningTransfer<'a> {
    routes: Vec<Route<'a>>,
    targets: &'a [Region],
    options: &'a ReadOptions,
    /// Raised at the first failure, so that the other workers end too.
    stop: AtomicBool,
    failed: Mutex<Option<ReadError>>,
}

impl<'a> RunningTransfer<'a> {
    pub(super) fn new(
        routes: Vec<Route<'a>>,
        targets: &'a [Region],
        options: &'a ReadOptions,
    ) -> Self {
        Self { routes, targets, options, stop: AtomicBool::new(false), failed: Mutex::default() }
    }

    pub(super) fn execute(self) -> Result<Vec<Digest>, ReadError> {
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

    /// Threads as asked, at least one for each source whose lanes ask ahead, never more than there are
    /// pieces.
    fn workers(&self) -> usize {
        let pieces: usize = self.routes.iter().map(|route| route.pieces.count()).sum();
        let ahead = self.routes.iter().filter(|route| route.endpoint.abilities().ahead).count();
        self.options.threads.max(ahead).clamp(1, MAX_THREADS).min(pieces.max(1))
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

    /// Draws pieces in the order of the target's memory from all sources whose lanes do not ask ahead,
    /// so that what is final grows evenly and readers of this relay need not wait.
    fn fill(&self, digests: &mut [Digest]) -> Result<(), ReadError> {
        let mut lanes = Vec::with_capacity(self.routes.len());
        for route in &self.routes {
            let ahead = route.endpoint.abilities().ahead;
            lanes.push(if ahead { None } else { self.open(route)? });
        }
        loop {
            let open = lanes.iter_mut().zip(&self.routes).filter_map(|(lane, route)| {
                Some((route.pieces.next_target()?, route, lane.as_mut()?))
            });
            let Some((_, route, lane)) = open.min_by_key(|(next, ..)| *next) else { return Ok(()) };
            let moved = self.step(route, &mut **lane, digests);
            moved.map_err(|kind| ReadError { source: route.source, kind })?;
        }
    }

    /// Reads pieces of one source until none is left.
    fn drain(&self, source: usize, digests: &mut [Digest]) -> Result<(), ReadError> {
        let route = &self.routes[source];
        let Some(mut lane) = self.open(route)? else { return Ok(()) };
        while self.step(route, &mut *lane, digests).map_err(|kind| ReadError { source, kind })? {}
        lane.close();
        Ok(())
    }

    fn open<'r>(&'r self, route: &'r Route<'_>) -> Result<Option<OpenLane<'r>>, ReadError> {
        let patience = Patience { stop: Some(&self.stop), ..self.options.patience() };
        let lane = route.open(self.targets, &self.options.holds, patience);
        lane.map_err(|kind| ReadError { source: route.source, kind })
    }

    /// Asks for as many pieces as the lane has room for, and takes one. False if there is none.
    fn step<'r>(
        &self,
        route: &'r Route<'_>,
        lane: &mut dyn Lane<'r>,
        digests: &mut [Digest],
    ) -> Result<bool, TransportError> {
        while lane.has_room() {
            let Some(piece) = route.pieces.draw() else { break };
            lane.submit(piece);
        }
        let Some(piece) = lane.poll()? else { return Ok(false) };
        self.arrived(route, piece, digests);
        Ok(true)
    }

    /// Digests a piece that was served, while it is still in the cache, and tells of it.
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
        self.options.holds.at(HoldPoint::Telling);
        if let Some(filling) = &self.options.filling {
            pieces.rows(piece, |copy, row, len| {
                filling.arrived(copy.target_region, row.target, len as u64);
            });
        }
        self.options.progress.fetch_add(piece.bytes as u64, Ordering::Relaxed);
        self.options.gauge.arrived(route.source, piece.bytes as u64);
    }

    /// The other ends are still those of the beginning.
    fn verify_alive(&self) -> Result<(), ReadError> {
        for (source, route) in self.routes.iter().enumerate() {
            route.endpoint.verify().map_err(|kind| ReadError { source, kind })?;
        }
        Ok(())
    }
}

/// A worker's closure, owning nothing but its number.
fn move_worker<'s>(
    run: &'s RunningTransfer<'_>,
    worker: usize,
) -> impl FnOnce() -> Vec<Digest> + 's {
    move || run.work(worker)
}

//! A transfer that runs: workers draw pieces and move them over lanes.

use super::checked_job::CheckedJob;
use super::options::TransferOptions;
use super::stock::Stock;
use crate::base::error::TransportError;
use crate::base::holds::HoldPoint;
use crate::base::limits::MAX_THREADS;
use crate::base::lock::lock;
use crate::base::patience::Patience;
use crate::base::processor;
use crate::lane::{Lane, OpenLane};
use crate::memory::digest::Digest;
use crate::memory::region::Region;
use crate::piece::pieces::{Piece, Pieces};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

/// How long a worker sleeps that waits for others.
const PAUSE: Duration = Duration::from_millis(1);

/// Why a transfer failed, and the index of the job that did.
pub(super) type JobError = (usize, TransportError);

/// A running transfer, shared by its workers.
pub(super) struct RunningTransfer<'a> {
    routes: Vec<CheckedJob<'a>>,
    /// What there is to move: of the first routes, and of as many others again that give it in their place;
    /// and of the last routes, which are those of siblings.
    stocks: Vec<Stock>,
    /// That of this process: targets of a read, sources of a write.
    memory: &'a [Region],
    options: &'a TransferOptions,
    /// Raised at the first failure, so that the other workers end too.
    stop: AtomicBool,
    failed: Mutex<Option<JobError>>,
    begun: Instant,
}

impl<'a> RunningTransfer<'a> {
    pub(super) fn new(
        routes: Vec<CheckedJob<'a>>,
        stocks: Vec<Stock>,
        memory: &'a [Region],
        options: &'a TransferOptions,
    ) -> Self {
        let (stop, failed) = (AtomicBool::new(false), Mutex::default());
        Self { routes, stocks, memory, options, stop, failed, begun: Instant::now() }
    }

    /// What a route moves pieces of, and which of its sources the route reads from.
    fn stock(&self, route: &CheckedJob<'_>) -> (&Stock, usize) {
        let owners = self.owners();
        match route.number.checked_sub(owners * self.options.stripes.max(1)) {
            Some(sibling) => (&self.stocks[owners + sibling], 0),
            None => (&self.stocks[route.number % owners], route.number / owners),
        }
    }

    /// How many stocks are not those of siblings.
    fn owners(&self) -> usize {
        self.stocks.len() - self.options.siblings
    }

    /// The routes to the sources, and those to siblings.
    fn routes(&self) -> (&[CheckedJob<'a>], &[CheckedJob<'a>]) {
        self.routes.split_at(self.routes.len() - self.options.siblings)
    }

    pub(super) fn execute(self) -> Result<Vec<Digest>, JobError> {
        let workers = self.workers();
        let mut digests = vec![Digest::ZERO; self.options.slots];
        thread::scope(|scope| {
            let (run, (begun, all_begun)) = (&self, mpsc::channel::<()>());
            let own = processor::current();
            let mut others = Vec::new();
            for worker in 1..workers {
                let begun = begun.clone();
                others.push(scope.spawn(move || {
                    processor::leave(own);
                    drop(begun);
                    run.work(worker)
                }));
            }
            others.extend(run.routes().1.iter().map(|route| scope.spawn(move || run.take(route))));
            // This thread makes room for those that were started on its processor, until they have left.
            drop(begun);
            let _all_hung_up = all_begun.recv();
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
        let stocks = &self.stocks[..self.owners()];
        let pieces: usize = stocks.iter().map(|stock| stock.pieces.count()).sum();
        let ahead = self.routes().0.iter().filter(|route| route.asks_ahead()).count();
        self.options.threads.max(ahead).clamp(1, MAX_THREADS).min(pieces.max(1))
    }

    /// Digests in which nothing has been counted.
    fn no_digests(&self) -> Vec<Digest> {
        vec![Digest::ZERO; if self.options.digests { self.options.slots } else { 0 }]
    }

    /// The worker that takes from one sibling what it brings. No other worker does: the sibling may wait for what
    /// the others are to bring.
    fn take(&self, route: &CheckedJob<'a>) -> Vec<Digest> {
        let mut digests = self.no_digests();
        let done = self.fill(std::slice::from_ref(route), &mut digests);
        self.note_end(done.and_then(|()| self.drain(route, &mut digests)));
        digests
    }

    /// One worker: begins at a source of its own, then helps with the others.
    fn work(&self, worker: usize) -> Vec<Digest> {
        let (mut digests, (sources, _)) = (self.no_digests(), self.routes());
        let in_order = self.options.filling.is_some() || self.options.entering.is_some();
        let mut done = if in_order { self.fill(sources, &mut digests) } else { Ok(()) };
        let mut drawn = None;
        while done.is_ok() {
            let mut turns = (0..sources.len()).map(|turn| (worker + turn) % sources.len());
            done = turns.try_for_each(|s| self.drain(&sources[s], &mut digests));
            let now = self.begun.elapsed();
            if !self.waits_for_others(*drawn.get_or_insert(now), now) {
                break;
            }
            thread::sleep(PAUSE);
        }
        self.note_end(done);
        digests
    }

    fn note_end(&self, done: Result<(), JobError>) {
        if let Err(error) = done {
            // Noted before the others are stopped: what they then report is no cause.
            lock(&self.failed).get_or_insert(error);
            self.stop.store(true, Ordering::Release);
        }
    }

    /// Whether pieces are still to come that may fall to this worker: others may be late with them, or found no
    /// place.
    fn waits_for_others(&self, drawn: Duration, now: Duration) -> bool {
        if self.stop.load(Ordering::Acquire) {
            return false;
        }
        let mut waits = false;
        for stock in &self.stocks {
            if stock.is_shared() && !stock.is_over() {
                stock.recall_late(drawn, now);
                waits = true;
            }
        }
        waits
    }

    /// Draws pieces from all of these whose lanes do not ask ahead: such as their sources are known to have, else in the
    /// order of the target's memory, so that what is final grows evenly.
    fn fill<'r>(
        &'r self,
        routes: &'r [CheckedJob<'a>],
        digests: &mut [Digest],
    ) -> Result<(), JobError> {
        let mut lanes = Vec::with_capacity(routes.len());
        for route in routes {
            let ahead = route.asks_ahead();
            lanes.push(if ahead { None } else { self.open(route)? });
        }
        loop {
            let open = lanes.iter_mut().zip(routes).filter_map(|(lane, route)| {
                let (pieces, lane) = (&self.stock(route).0.pieces, lane.as_mut()?);
                Some(((!pieces.has_ready(), pieces.next_target()?), route, lane))
            });
            let Some((_, route, lane)) = open.min_by_key(|(next, ..)| *next) else { break };
            // These lanes move a piece at once: none stays under way.
            let moved = self.step(route, &mut **lane, &mut Vec::new(), digests);
            moved.map_err(|kind| (route.number, kind))?;
        }
        for (route, _) in routes.iter().zip(lanes).filter(|(_, lane)| lane.is_some()) {
            self.stock(route).0.lane_ended();
        }
        Ok(())
    }

    /// Reads pieces of one source until none is left, or others are to give them.
    fn drain(&self, route: &CheckedJob<'_>, digests: &mut [Digest]) -> Result<(), JobError> {
        let (stock, of_stock) = self.stock(route);
        if stock.is_recalled(of_stock) {
            return Ok(());
        }
        let lane = match self.open(route) {
            Err((_, kind)) if self.is_recall(&kind, stock, of_stock) => None,
            lane => lane?,
        };
        let Some(mut lane) = lane else { return Ok(()) };
        let mut under_way = Vec::new();
        loop {
            match self.step(route, &mut *lane, &mut under_way, digests) {
                Ok(true) => {}
                Ok(false) => break,
                Err(kind) if self.is_recall(&kind, stock, of_stock) => {
                    // Once the lane is gone, nobody writes where these pieces go.
                    drop(lane);
                    stock.give_back(of_stock, under_way.into_iter());
                    stock.lane_ended();
                    return Ok(());
                }
                Err(kind) => return Err((route.number, kind)),
            }
        }
        lane.close();
        stock.lane_ended();
        stock.recall_slower_than(of_stock);
        Ok(())
    }

    /// Whether an error is the recall of its source, and nothing that ends the transfer.
    fn is_recall(&self, kind: &TransportError, stock: &Stock, source: usize) -> bool {
        let over = self.stop.load(Ordering::Acquire) || self.options.cancel.load(Ordering::Acquire);
        *kind == TransportError::Cancelled
            && stock.recalled(source).load(Ordering::Acquire)
            && !over
    }

    fn open<'r>(&'r self, route: &'r CheckedJob<'_>) -> Result<Option<OpenLane<'r>>, JobError> {
        let (stock, of_stock) = self.stock(route);
        // Others have what is read or copied at once before a recall is heard.
        let recall = route.asks_ahead().then(|| stock.recalled(of_stock));
        let patience = Patience { stop: Some(&self.stop), recall, ..self.options.patience() };
        let lane = route.open(stock, self.memory, self.options, patience);
        lane.map_err(|kind| (route.number, kind))
    }

    /// Asks for as many pieces as the lane has room for, and takes one of those under way. False if there is
    /// none.
    fn step<'r>(
        &'r self,
        route: &'r CheckedJob<'_>,
        lane: &mut dyn Lane<'r>,
        under_way: &mut Vec<&'r Piece>,
        digests: &mut [Digest],
    ) -> Result<bool, TransportError> {
        let (stock, of_stock) = self.stock(route);
        loop {
            let ready = !lane.look(under_way.is_empty())?;
            while lane.has_room() {
                let Some(piece) = stock.draw(of_stock, ready) else { break };
                under_way.push(piece);
                lane.submit(piece);
            }
            // Others may have drawn what was ready.
            if !ready || !under_way.is_empty() || stock.pieces.is_drawn() {
                break;
            }
        }
        let Some(piece) = lane.poll()? else { return Ok(false) };
        under_way.retain(|other| !std::ptr::eq(*other, piece));
        stock.arrived(of_stock, piece);
        let digested = !digests.is_empty() && lane.digested(digests);
        self.arrived(route, &stock.pieces, piece, if digested { &mut [] } else { digests });
        Ok(true)
    }

    /// Digests a piece that was served, while it is still in the cache, if somebody wants to know; and tells of it.
    fn arrived(
        &self,
        route: &CheckedJob<'_>,
        pieces: &Pieces,
        piece: &Piece,
        digests: &mut [Digest],
    ) {
        if !digests.is_empty() {
            pieces.rows(piece, |copy, row, len| {
                let (region, offset) = route.ours(copy, row);
                let digest = self.memory[region].digest(offset, len, row.position);
                digests[copy.slot as usize] += digest.expect("checked");
            });
        }
        self.options.holds.at(HoldPoint::Telling);
        let from_source = route.number < self.owners() * self.options.stripes.max(1);
        let entering = self.options.entering.as_ref().filter(|_| from_source);
        for filling in [entering, self.options.filling.as_ref()].into_iter().flatten() {
            pieces.rows(piece, |copy, row, len| {
                filling.arrived(copy.target_region, row.target, len as u64);
            });
        }
        self.options.gauge.arrived(route.number, piece.bytes as u64);
    }

    /// The other ends are still those of the beginning.
    fn verify_alive(&self) -> Result<(), JobError> {
        for route in &self.routes {
            route.verify().map_err(|kind| (route.number, kind))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::limits::{MIN_UNIT_BYTES, PIECE_BYTES};
    use crate::base::lock::{own_thread, sleeps_on};
    use crate::{
        Auth, DataServer, ExportId, Filling, Gauge, Holds, Peer, Reading, SourceJob, StridedCopy,
        Way,
    };
    use std::sync::Arc;

    fn server() -> DataServer {
        DataServer::bind(([127, 0, 0, 1], 0).into(), Auth::default()).unwrap()
    }

    fn peer(server: &DataServer, way: Way) -> Peer {
        let (auth, soon) = (Auth::default(), Instant::now() + Duration::from_secs(20));
        match way {
            Way::Reference => Peer::connect_within(server, &auth, soon),
            way => Peer::connect_by(way, server.addr(), &auth, soon),
        }
        .unwrap()
    }

    fn job(peer: &Peer, export: ExportId, copies: Vec<StridedCopy>) -> SourceJob<'_> {
        SourceJob { peer, export, generation: 1, copies }
    }

    /// A transfer of these jobs, in pieces of at most so many bytes.
    fn running<'a>(
        jobs: &'a [SourceJob<'a>],
        targets: &'a [Region],
        options: &'a TransferOptions,
        size: usize,
    ) -> RunningTransfer<'a> {
        let (stripes, each) = (options.stripes, jobs.len() / options.stripes);
        let stocks =
            jobs[..each].iter().map(|job| Stock::new(Pieces::cut(&job.copies, size), stripes));
        let routes = jobs.iter().enumerate().map(|(source, job)| {
            CheckedJob::read(source, job, &jobs[source % each].copies, targets, options).unwrap()
        });
        RunningTransfer::new(routes.collect(), stocks.collect(), targets, options)
    }

    /// As many as asked, one for each source over TCP, and none without a piece.
    #[test]
    fn a_transfer_has_the_threads_that_it_needs() {
        let server = server();
        let export = server.exports().expose(1, vec![Region::allocate(200).unwrap()]);
        let [over_tcp, within] = [Way::Tcp, Way::Reference].map(|way| peer(&server, way));
        let targets = [Region::allocate(200).unwrap()];
        let workers = |threads, tcp: usize, near: usize, pieces: u64| {
            let copies = || vec![StridedCopy::contiguous(0, 0, 0, 0, pieces)];
            let peers = [vec![&over_tcp; tcp], vec![&within; near]].concat();
            let jobs: Vec<_> = peers.into_iter().map(|peer| job(peer, export, copies())).collect();
            let options = TransferOptions { threads, ..TransferOptions::default() };
            running(&jobs, &targets, &options, 1).workers()
        };
        assert_eq!(
            [0, 1, 2, 63, 64, 65].map(|threads| workers(threads, 1, 0, 100)),
            [1, 1, 2, 63, 64, 64]
        );
        assert_eq!([0, 1, 2, 3, 5].map(|pieces| workers(3, 1, 0, pieces)), [1, 1, 2, 3, 3]);
        assert_eq!(workers(1, 3, 0, 100), 3);
        assert_eq!(workers(1, 0, 3, 100), 1, "these do not ask ahead");
        assert_eq!(workers(1, 2, 3, 100), 2);
        assert_eq!(workers(9, 2, 2, 2), 8, "pieces of all sources");
        assert_eq!(workers(1, 70, 0, 100), MAX_THREADS);
        assert_eq!(workers(4, 0, 0, 0), 1);
    }

    /// Two sources have every other unit each; whoever reads from the target waits for none long.
    #[test]
    fn memory_is_filled_from_the_front_whoever_has_what() {
        const UNITS: u64 = 8;
        const UNIT: u64 = MIN_UNIT_BYTES;
        for way in [Way::Reference, Way::Direct] {
            let server = server();
            let bytes: Vec<u8> = (0..UNITS * UNIT).map(|i| (i / UNIT) as u8 + 1).collect();
            let export = server.exports().expose(1, vec![Region::from_bytes(&bytes).unwrap()]);
            let peers = [peer(&server, way), peer(&server, way)];
            let copy = |unit: u64| StridedCopy::contiguous(0, unit * UNIT, 0, unit * UNIT, UNIT);
            let jobs = [1, 0].map(|first| {
                let copies = (0..UNITS).rev().filter(|unit| unit % 2 == first).map(copy);
                job(&peers[first as usize], export, copies.collect())
            });
            let target = Region::allocate(bytes.len()).unwrap();
            let filling = Arc::new(Filling::new(std::slice::from_ref(&target)));
            let (told, seen) = (Arc::new(Mutex::new(Vec::new())), Arc::clone(&filling));
            let tell = Arc::clone(&told);
            let holds = Holds::new(move |point| {
                if point == HoldPoint::Telling {
                    lock(&tell).push(seen.bits()[0]);
                }
            });
            let (threads, filling) = (1, Some(filling));
            let gauge = Arc::new(Gauge::default());
            let options =
                TransferOptions { threads, filling, holds, gauge, ..TransferOptions::default() };
            crate::read(&jobs, std::slice::from_ref(&target), &options).unwrap();
            let expected: Vec<u8> = (0..UNITS).map(|units| ((1_u32 << units) - 1) as u8).collect();
            assert_eq!(*lock(&told), expected, "{way:?}");
            assert!(target.to_vec() == bytes);
        }
    }

    /// Each failure names its job, when it is prepared, read, and looked at once more.
    #[test]
    fn whoever_fails_is_named_by_its_job() {
        let server = server();
        let len = 2 * PIECE_BYTES;
        let memory = Region::from_bytes(&vec![1; len]).unwrap();
        let copies = |at: usize| vec![StridedCopy::contiguous(0, 0, 0, at as u64, len as u64)];
        for way in [Way::Tcp, Way::Direct, Way::Reference] {
            let peer = peer(&server, way);
            let targets = [Region::allocate(3 * len).unwrap()];
            for bad in 0..3 {
                let exports = [(); 3].map(|()| server.exports().expose(1, vec![memory.clone()]));
                let jobs: [_; 3] = std::array::from_fn(|n| job(&peer, exports[n], copies(n * len)));
                let gauge = Arc::new(Gauge::default());
                let read = |jobs: &[SourceJob<'_>], threads| {
                    let gauge = Arc::clone(&gauge);
                    let options = TransferOptions { threads, gauge, ..TransferOptions::default() };
                    crate::read(jobs, &targets, &options)
                        .map_err(|error| (error.source, error.kind))
                };
                read(&jobs, 1).unwrap();
                let whole = Reading { arrived: 3 * len as u64, left: 0, job: 2 };
                assert_eq!(gauge.look(), Some(whole), "{way:?}: each was counted for its job");
                server.exports().fence(exports[bad]);
                let fenced = TransportError::Fenced { export: exports[bad] };
                for threads in [1, 3] {
                    assert_eq!(read(&jobs, threads), Err((bad, fenced.clone())), "{way:?}");
                }
                let stale = std::array::from_fn::<_, 3, _>(|n| SourceJob {
                    generation: if n == bad { 2 } else { 1 },
                    ..job(&peer, exports[n], if n == bad { Vec::new() } else { copies(n * len) })
                });
                let refused = read(&stale, 1).unwrap_err();
                assert_eq!(refused.0, bad, "{way:?}: {}", refused.1);
            }
        }
    }

    /// So that workers do not crowd at one source.
    #[test]
    fn each_worker_begins_at_a_source_of_its_own() {
        let server = server();
        let export = server.exports().expose(1, vec![Region::from_bytes(&[1; 2]).unwrap()]);
        let peer = peer(&server, Way::Reference);
        for worker in 0..7 {
            let targets = [Region::allocate(6).unwrap()];
            let (seen, memory) = (Arc::new(Mutex::new(Vec::new())), targets[0].clone());
            let tell = Arc::clone(&seen);
            let holds = Holds::new(move |point| {
                if point == HoldPoint::Telling {
                    lock(&tell).push(memory.to_vec());
                }
            });
            let options = TransferOptions { holds, ..TransferOptions::default() };
            let copies = |source: u64| vec![StridedCopy::contiguous(0, 0, 0, 2 * source, 2)];
            let jobs = [0, 1, 2].map(|source| job(&peer, export, copies(source)));
            let run = running(&jobs, &targets, &options, 1);
            run.work(worker);
            let mut expected = vec![0_u8; 6];
            let order = (0..3).map(|turn| 2 * ((worker + turn) % 3));
            let expected: Vec<Vec<u8>> = order
                .flat_map(|at| [at, at + 1])
                .map(|at| {
                    expected[at] = 1;
                    expected.clone()
                })
                .collect();
            assert_eq!(*lock(&seen), expected, "worker {worker}");
        }
    }

    /// While a worker cannot note why it failed it stops nobody: who is stopped notes that it was
    /// cancelled, and would be the first.
    #[test]
    fn no_worker_is_stopped_before_the_cause_is_noted() {
        std::fs::read("/proc/thread-self/syscall").expect("the kernel says where threads wait");
        let server = server();
        let memory = Region::from_bytes(&[1; 2]).unwrap();
        for way in [Way::Tcp, Way::Direct, Way::Reference] {
            let (peer, targets) = (peer(&server, way), [Region::allocate(2).unwrap()]);
            let export = server.exports().expose(1, vec![memory.clone()]);
            let job = job(&peer, export, vec![StridedCopy::contiguous(0, 0, 0, 0, 2)]);
            let options = TransferOptions::default();
            let run = running(std::slice::from_ref(&job), &targets, &options, 2);
            server.exports().fence(export);
            let (name, named) = std::sync::mpsc::channel();
            thread::scope(|scope| {
                let noted = lock(&run.failed);
                let worker = scope.spawn(|| {
                    name.send(own_thread()).unwrap();
                    run.work(0)
                });
                let worker_thread = named.recv().unwrap();
                while !worker.is_finished() && !sleeps_on(&worker_thread, &run.failed) {
                    thread::yield_now();
                }
                let (stopped, waits) = (run.stop.load(Ordering::Acquire), !worker.is_finished());
                drop(noted);
                assert!(waits && !stopped, "{way:?}");
            });
            let cause = (0, TransportError::Fenced { export });
            assert_eq!(*lock(&run.failed), Some(cause), "{way:?}");
            assert!(run.stop.load(Ordering::Acquire), "{way:?}: and then all are");
        }
    }
}

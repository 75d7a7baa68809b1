//! Asks shards for digests of their memory as it is now: a few shards at once, each one question
//! after the other, over their data ports. Every answer is of the exposure that the server named.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use weightcast_plan::{Cell, Layout, Run, runs};
use weightcast_protocol::message::SourceShard;
use weightcast_transport::{Digest, ExportId, Peer, RequestRefusal, TransportError};

use super::comparison::Watch;
use super::search::Question;
use crate::client::mismatch::ranges::{
    ASKED_BYTES, as_copy, at_the_target, batches, placed, split,
};
use crate::client::reading::route::Routes;
use crate::error::Error;
use crate::manifest;

/// Shards that are asked at once. A question keeps one thread of a worker busy that has other
/// things to do.
const AT_ONCE: usize = 8;
/// How long a shard may take for one question: many times what a busy one needs.
const ANSWER: Duration = Duration::from_secs(30);
/// How often the caller is asked whether to go on.
const TICK: Duration = Duration::from_millis(100);
/// Bytes of a question and its answer beside those of their extents: two headers and a name.
const FRAMES: u64 = 32;
/// Bytes of an extent in a question, and of its digest in the answer.
const EXTENT: u64 = 56 + 16;

/// One shard of one of the replicas.
pub(super) struct AskedShard {
    pub(super) replica: String,
    pub(super) number: u32,
    pub(super) layout: Arc<Layout>,
    pub(super) at: SourceShard,
}

/// All shards that may be asked, numbered in order.
pub(super) struct Asker<'a> {
    pub(super) shards: Vec<AskedShard>,
    routes: Routes,
    deadline: Instant,
    watch: Watch<'a>,
    stop: AtomicBool,
    digested: AtomicU64,
    moved: AtomicU64,
}

impl<'a> Asker<'a> {
    /// `moved` bytes were fetched before.
    pub(super) fn new(
        shards: Vec<AskedShard>,
        routes: Routes,
        deadline: Instant,
        moved: u64,
        watch: Watch<'a>,
    ) -> Self {
        Self {
            shards,
            routes,
            deadline,
            watch,
            stop: AtomicBool::new(false),
            digested: AtomicU64::new(0),
            moved: AtomicU64::new(moved),
        }
    }

    /// Bytes digested and bytes moved so far.
    pub(super) fn cost(&self) -> (u64, u64) {
        (self.digested.load(Ordering::Relaxed), self.moved.load(Ordering::Relaxed))
    }

    /// The digests of boxes of one shard's entries.
    pub(super) fn digests(&self, holder: usize, cells: &[Cell]) -> Result<Vec<Digest>, Error> {
        let shard = &self.shards[holder];
        let runs: Vec<Run> = runs(&shard.layout, cells)
            .iter()
            .flat_map(|run| split(&as_copy(run), ASKED_BYTES).collect::<Vec<_>>())
            .map(|copy| at_the_target(&copy))
            .collect();
        let mut digests = vec![Digest::ZERO; cells.len()];
        for batch in batches(&runs, |run| (run.bytes(), run.rows)) {
            let batch = &runs[batch];
            let extents: Vec<_> = batch.iter().map(placed).collect();
            let (peer, export) = self.reach(shard)?;
            let generation = shard.at.generation.0;
            let answers = peer.digests(export, generation, &extents, self.patience());
            let answers = answers.map_err(|error| refused(shard, &error))?;
            for (run, digest) in batch.iter().zip(answers) {
                digests[run.cell as usize] += digest;
            }
            let bytes = batch.iter().map(Run::bytes).sum();
            self.digested.fetch_add(bytes, Ordering::Relaxed);
            self.moved.fetch_add(FRAMES + EXTENT * extents.len() as u64, Ordering::Relaxed);
        }
        Ok(digests)
    }

    /// The digests of any boxes, in order.
    pub(super) fn answers(&self, questions: &[Question]) -> Result<Vec<Digest>, Error> {
        let mut of: BTreeMap<usize, (Vec<usize>, Vec<Cell>)> = BTreeMap::new();
        for (at, question) in questions.iter().enumerate() {
            let (places, cells) = of.entry(question.held.holder).or_default();
            places.push(at);
            cells.push(whole(question));
        }
        let of: Vec<_> = of.into_iter().collect();
        let answers = self.each(&of, |(holder, (_, cells))| self.digests(*holder, cells))?;
        let mut digests = vec![Digest::ZERO; questions.len()];
        for ((_, (places, _)), answers) in of.iter().zip(answers) {
            places.iter().zip(answers).for_each(|(at, digest)| digests[*at] = digest);
        }
        Ok(digests)
    }

    /// A shard's note of each of its entries, as sealed, or as verified after a read; nothing if
    /// there is no note yet.
    pub(super) fn note(&self, holder: usize) -> Result<Option<Vec<Digest>>, Error> {
        let shard = &self.shards[holder];
        let (peer, export) = self.reach(shard)?;
        let note = peer.note(export, shard.at.generation.0, self.patience());
        let note = note.map_err(|error| refused(shard, &error))?;
        let bytes = note.as_ref().map_or(0, Vec::len) as u64;
        self.moved.fetch_add(FRAMES + bytes, Ordering::Relaxed);
        Ok(note.and_then(|note| manifest::decode_parts(&note, shard.layout.entries().len())))
    }

    /// When to give up on one answer: a silent shard must not hold up the caller's interrupt.
    fn patience(&self) -> Instant {
        self.deadline.min(Instant::now() + ANSWER)
    }

    fn reach(&self, shard: &AskedShard) -> Result<(Arc<Peer>, ExportId), Error> {
        if self.stop.load(Ordering::Acquire) {
            return Err(Error::Interrupted);
        }
        if Instant::now() >= self.deadline {
            return Err(refused(shard, &TransportError::Timeout { what: "digests were computed" }));
        }
        let peer = self.routes.peer(&shard.at.data_address, self.deadline);
        let peer = peer.map_err(|reason| unverified(shard, &reason))?;
        Ok((peer, ExportId(shard.at.export.0).at(shard.at.generation.0)))
    }

    /// Works through a list on a few threads; meanwhile the calling thread asks whether to go on.
    /// Returns the results in order, or the first error.
    pub(super) fn each<T: Sync, R: Send>(
        &self,
        list: &[T],
        work: impl Fn(&T) -> Result<R, Error> + Sync,
    ) -> Result<Vec<R>, Error> {
        let next = AtomicUsize::new(0);
        let done: Mutex<BTreeMap<usize, R>> = Mutex::default();
        let failed: Mutex<Option<Error>> = Mutex::default();
        let (working, ended) = channel::<()>();
        thread::scope(|scope| {
            for _ in 0..AT_ONCE.min(list.len()) {
                let working = working.clone();
                scope.spawn(|| {
                    let _until_it_ends = working;
                    while let Some((at, item)) = take(&next, list) {
                        match work(item) {
                            Ok(result) => {
                                done.lock().expect("no panic while held").insert(at, result);
                            }
                            Err(error) => {
                                let mut failed = failed.lock().expect("no panic while held");
                                failed.get_or_insert(error);
                                // Only now: threads that are stopped fail too, and say no more than
                                // that.
                                self.stop.store(true, Ordering::Release);
                                return;
                            }
                        }
                    }
                });
            }
            drop(working);
            while ended.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if !(self.watch)(self.cost().0) {
                    self.stop.store(true, Ordering::Relaxed);
                }
            }
        });
        match failed.into_inner().expect("all threads have ended") {
            Some(error) => Err(error),
            None => Ok(done.into_inner().expect("all threads have ended").into_values().collect()),
        }
    }
}

fn take<'a, T>(next: &AtomicUsize, list: &'a [T]) -> Option<(usize, &'a T)> {
    let at = next.fetch_add(1, Ordering::Relaxed);
    list.get(at).map(|item| (at, item))
}

/// The box of a question as a cell that stands for itself.
fn whole(question: &Question) -> Cell {
    let (entry, slice) = (question.held.entry, question.slice.clone());
    Cell { entry, slice, copies: 1, counted: true }
}

fn refused(shard: &AskedShard, error: &TransportError) -> Error {
    match error {
        TransportError::Refused(
            RequestRefusal::UnknownExport | RequestRefusal::StaleGeneration,
        )
        | TransportError::Fenced { .. } => {
            unverified(shard, "no longer serves what the server says that it does: it moved on")
        }
        error => unverified(shard, &format!("did not answer: {error}")),
    }
}

fn unverified(shard: &AskedShard, reason: &str) -> Error {
    Error::Unverified {
        replica: shard.replica.clone(),
        reason: format!("shard {} at {} {reason}", shard.number, shard.at.data_address),
    }
}

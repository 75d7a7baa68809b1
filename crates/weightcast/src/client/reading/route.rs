//! A plan bound to a live source: copies between layouts become reads between addresses.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::{Span, info_span};
use weightcast_plan::{Codec, Plan};
use weightcast_protocol::ShardSums;
use weightcast_protocol::message::{Assignment, ReadFailure};
use weightcast_transport::limits::FULL_PATIENCE;
use weightcast_transport::{
    Auth, Digest, ExportId, Holds, Peer, ReadError, SourceJob, TransferOptions, TransportError, Way,
};

use super::bound_source::{BoundSource, bytes, strided};
use super::difference::difference;
use super::evidence::Evidence;
use super::networks::Networks;
use super::plan_files::PlanFiles;
use super::plans::Plans;
use super::reach;
use super::read::Read;
use super::source_spans::SourceSpans;
use super::taking::SharedRead;
use super::unchanged::content::{Experience, KnownContent};
use super::unchanged::{ComparedRead, LeftOut};
use crate::client::memory::registration::union;
use crate::client::threads;
use crate::client::updated::Transfer;
use crate::limits::CACHED_PEERS;

/// How long one source's data port may take to answer: another source may be quicker.
const CONNECT: Duration = Duration::from_secs(3);

/// Plans and reached peers of one handle, kept from one version to the next.
pub(crate) struct Routes {
    pub(in crate::client) auth: Auth,
    way: Way,
    networks: Networks,
    pub(in crate::client) plans: Plans,
    peers: Mutex<BTreeMap<String, Arc<Peer>>>,
    /// What the registered memory is known to have held last.
    content: Mutex<Option<Arc<KnownContent>>>,
    /// Threads that copy in one read.
    pub(in crate::client) threads: usize,
    /// Where tests stop the reads.
    pub(in crate::client) holds: Holds,
}

impl Routes {
    pub(crate) fn new(
        auth: Auth,
        way: Way,
        networks: Networks,
        plan_files: Option<PlanFiles>,
    ) -> Self {
        let (plans, peers) = (Plans::new(plan_files), Mutex::default());
        let (threads, holds) = (threads::copying(), Holds::default());
        Self { auth, way, networks, plans, peers, content: Mutex::default(), threads, holds }
    }

    /// Fills the registered memory from the assigned source and digests what arrived.
    pub(crate) fn read(&self, read: &Read<'_>) -> Result<ArrivedRead, ReadFailure> {
        let started = Instant::now();
        check_catalog(read)?;
        let layouts = read.assignment.layouts();
        // A relay's shards have what they have in the order of their memory: each is read by its like.
        let only = read.assignment.in_flight.then_some(read.registration.shard);
        let only = only.filter(|shard| layouts.len() > *shard);
        let (plan, plan_from) = info_span!("plan")
            .in_scope(|| self.plans.get(read.registration, &layouts, read.sources, only))?;
        let planned = started.elapsed();
        let bound = self.bind(&plan, read)?;
        read.pace.of(bound.iter().map(|bound| bound.shard));
        // Helpers are asked for bytes alone.
        let source = &bound[..bound.len() / read.assignment.stripes()];
        let comparison = self.plans.comparison(&plan, read.registration, read.sources);
        let compared = ComparedRead::new(read, &plan, comparison, source, self.content());
        let mut shared = SharedRead::new(read, &bound, |address, until| self.peer(address, until));
        let memory = read.memory.lock().expect("no panic while held");
        if read.cancel.load(Ordering::Acquire) {
            return Err(source_failure(0, "cancelled"));
        }
        let mut left_out = compared.look().ok_or_else(|| source_failure(0, "cancelled"))?;
        if let Some(shared) = &shared {
            shared.leave_out(&plan, &mut left_out);
        }
        let moving = Instant::now();
        let moved = self.move_from_all(read, &plan, &left_out, &bound, &mut shared)?;
        let MovedBytes { mut digests, kept, mut transfer } = moved;
        let digesting = info_span!("digest").entered();
        if kept {
            // The transfer has digested only the bytes of this read; earlier reads have brought the
            // rest.
            digests = read.registration.digest_all_on(threads::copying());
        } else {
            left_out.add_to(&plan, &mut digests);
            // Tied weights lie in memory once: digest them again for each further name.
            read.registration.digest(&plan.echoes, &mut digests);
        }
        drop(digesting);
        drop(memory);
        // Where siblings give nothing, further jobs of the sources bring their part.
        let rest = if shared.is_some_and(|shared| shared.takes()) { &[] } else { source };
        let shards = bound.iter().chain(rest).map(|bound| bound.shard);
        transfer.given = by_replica(read.assignment, shards.zip(read.pace.gauge.given()));
        transfer.unchanged = left_out.bytes(&plan);
        transfer.seconds = started.elapsed().as_secs_f64();
        (transfer.plan_seconds, transfer.plan_from) = (planned.as_secs_f64(), plan_from);
        Span::current().record("bytes", transfer.bytes).record("unchanged", transfer.unchanged);
        let moved = transfer.given.iter().sum::<u64>() + transfer.siblings;
        let experience = Experience::of(plan.bytes(), moved, moving.elapsed());
        let content = compared.content(&digests, experience);
        let (sums, note) = (read.registration.fold(&digests), read.registration.note(&digests));
        let evidence = Evidence {
            registration: Arc::clone(read.registration),
            assignment: read.assignment.clone(),
            sources: read.sources.to_vec(),
            plan: Arc::clone(&plan),
            digests,
            overwritten: Arc::clone(&read.cancel),
        };
        let in_place = !read.assignment.staged;
        Ok(ArrivedRead { sums, transfer, note, in_place, content, evidence })
    }

    /// Moves what is not left out; what a sibling does not give, the source does.
    fn move_from_all(
        &self,
        read: &Read<'_>,
        plan: &Plan,
        left_out: &LeftOut,
        bound: &[BoundSource],
        shared: &mut Option<SharedRead<'_>>,
    ) -> Result<MovedBytes, ReadFailure> {
        loop {
            let moved = self.move_bytes(read, plan, left_out, bound, shared.as_ref());
            let error = match moved {
                Ok(moved) => return Ok(moved),
                Err(error) => error,
            };
            match shared.as_mut().filter(|shared| error.source >= bound.len() && shared.takes()) {
                Some(shared) => shared.go_alone(&error.kind),
                None => {
                    let source = &bound[error.source % bound.len()];
                    return Err(self.failed(source, &error.kind, read));
                }
            }
        }
    }

    /// Moves what is not left out. An error of a job beyond the bound ones is a sibling's, or of a source in the place of
    /// one.
    fn move_bytes(
        &self,
        read: &Read<'_>,
        plan: &Plan,
        left_out: &LeftOut,
        bound: &[BoundSource],
        shared: Option<&SharedRead<'_>>,
    ) -> Result<MovedBytes, ReadError> {
        let stripes = read.assignment.stripes();
        let mut jobs = jobs(plan, left_out, bound, shared);
        let taken =
            shared.map(|shared| shared.jobs(plan, left_out, &bound[..bound.len() / stripes]));
        let taken = taken.unwrap_or_default();
        let siblings = taken.len();
        let mut spans: Vec<Span> = bound
            .iter()
            .zip(&jobs)
            .map(|(bound, job)| bound.span(read.assignment, bytes(job)))
            .collect();
        spans.extend(shared.map(|shared| shared.spans(&taken)).unwrap_or_default());
        jobs.extend(taken);
        let entering = shared.map(|shared| Arc::clone(&shared.entering().filling));
        let options = TransferOptions {
            threads: self.threads,
            deadline: Some(read.deadline),
            cancel: Arc::clone(&read.cancel),
            gauge: Arc::clone(&read.pace.gauge),
            filling: read.filling.clone(),
            entering: entering.clone(),
            siblings,
            digests: true,
            holds: self.holds.clone(),
            stripes,
            slots: read.registration.cells.len(),
        };
        let fillings = [read.filling.as_ref(), entering.as_ref()];
        let kept = fillings.into_iter().flatten().any(|filling| filling.progress().0 > 0);
        let sources = SourceSpans::new(spans.into_iter(), &read.pace.gauge);
        let digests = weightcast_transport::read(&jobs, &read.registration.regions, &options)?;
        drop(sources);
        let mut transfer = self.transfer(read, &jobs);
        if shared.is_some_and(SharedRead::takes) {
            transfer.siblings = read.pace.gauge.given().iter().skip(bound.len()).sum();
        }
        Ok(MovedBytes { digests, kept, transfer })
    }

    /// What these jobs have moved, and by which way.
    fn transfer(&self, read: &Read<'_>, jobs: &[SourceJob<'_>]) -> Transfer {
        let way = |job: &SourceJob<'_>| job.peer.way_to(job.export, job.generation);
        let given = read.pace.gauge.given();
        let came = |asked: Way| {
            let came = jobs.iter().zip(&given).filter(|(job, _)| way(job) == asked);
            came.map(|(_, bytes)| bytes).sum()
        };
        let first = jobs.first().map(|job| job.peer.why(job.export, job.generation));
        let held = read.registration.bytes();
        Transfer {
            bytes: held,
            verified: held,
            way: format!("{:?}", jobs.first().map_or(self.way, way)).to_lowercase(),
            way_reason: first.unwrap_or_default(),
            shared: came(Way::Shared),
            direct: came(Way::Direct),
            tcp: came(Way::Tcp),
            helpers: read.assignment.helpers.clone(),
            ..Transfer::default()
        }
    }

    /// What the memory is known to have held last.
    pub(super) fn content(&self) -> Option<Arc<KnownContent>> {
        self.content.lock().expect("no panic while held").clone()
    }

    /// The memory holds the version that a read has brought, by the word of the server.
    pub(in crate::client) fn remember(&self, content: KnownContent) {
        *self.content.lock().expect("no panic while held") = Some(Arc::new(content));
    }

    /// Whether anything is known of the memory.
    #[cfg(test)]
    pub(in crate::client) fn knows_content(&self) -> bool {
        self.content().is_some()
    }

    /// What was known of the memory led to nothing good, or is of other memory: the next read moves
    /// everything.
    pub(in crate::client) fn forget_content(&self) {
        self.content.lock().expect("no panic while held").take();
    }

    /// Forgets all plans and the content: the registered layout has changed.
    pub(crate) fn forget_plans(&self) {
        self.plans.forget();
        self.forget_content();
    }

    /// Reaches the sources that the plan reads from, and the same shards of each helper.
    fn bind(&self, plan: &Plan, read: &Read<'_>) -> Result<Vec<BoundSource>, ReadFailure> {
        let each = read.assignment.shards_each();
        let mut gives = vec![false; each];
        plan.copies.iter().for_each(|copy| gives[copy.source as usize] = true);
        let places = 0..read.assignment.shards.len();
        places
            .filter(|place| gives[place % each])
            .map(|index| {
                let shard = &read.assignment.shards[index];
                let peer = self.peer(&shard.data_address, read.deadline);
                let peer = peer.map_err(|e| source_failure(index, &e))?;
                let generation = shard.generation.0;
                let export = ExportId(shard.export.0).at(generation);
                Ok(BoundSource { shard: index, peer, export, generation })
            })
            .collect()
    }

    pub(crate) fn peer(&self, address: &str, deadline: Instant) -> Result<Arc<Peer>, String> {
        self.reach(address, deadline).map_err(|unreached| unreached.said)
    }

    /// The next use of this address makes a new connection, which has to show whether the peer is still there.
    pub(in crate::client) fn forget_peer(&self, address: &str) {
        self.peers.lock().expect("no panic while held").remove(address);
    }

    /// A peer that is connected to already, or is now.
    pub(in crate::client) fn reach(
        &self,
        address: &str,
        deadline: Instant,
    ) -> Result<Arc<Peer>, Unreached> {
        if let Some(peer) = self.peers.lock().expect("no panic while held").get(address) {
            return Ok(Arc::clone(peer));
        }
        let _entered = info_span!("connect", address).entered();
        let explained = |kind: Option<TransportError>, error: String| Unreached {
            kind,
            said: reach::explained(address, error),
        };
        let port = resolve(address).map_err(|said| Unreached { kind: None, said })?;
        self.networks.check(port).map_err(|e| explained(None, e.to_string()))?;
        let full = Instant::now() + FULL_PATIENCE;
        let peer = loop {
            let soon = deadline.min(Instant::now() + CONNECT);
            match Peer::connect_by(self.way, port, &self.auth, soon) {
                // A full port is alive, and will have a place: try again.
                Err(TransportError::Full { .. }) if Instant::now() < deadline.min(full) => {}
                connected => {
                    break connected.map_err(|e| {
                        let said = e.to_string();
                        explained(Some(e), said)
                    })?;
                }
            }
        };
        let peer = Arc::new(peer);
        let mut peers = self.peers.lock().expect("no panic while held");
        if peers.len() >= CACHED_PEERS {
            peers.clear();
        }
        peers.insert(address.to_owned(), Arc::clone(&peer));
        Ok(peer)
    }

    fn failed(&self, bound: &BoundSource, kind: &TransportError, read: &Read<'_>) -> ReadFailure {
        // After any failure, a new connection has to show whether the peer is still there.
        let address = &read.assignment.shards[bound.shard].data_address;
        self.forget_peer(address);
        match kind {
            // The target is at fault: no other source would do better.
            TransportError::ReadOnlyTarget { .. } | TransportError::UnwritableTarget { .. } => {
                ReadFailure::Layout { detail: kind.to_string() }
            }
            kind => source_failure(bound.shard, &kind.to_string()),
        }
    }
}

/// Why a peer was not reached.
#[derive(Debug)]
pub(in crate::client) struct Unreached {
    /// What its data port, or the lack of one, came to; `None`: nothing was tried.
    pub(in crate::client) kind: Option<TransportError>,
    /// The same for people.
    pub(in crate::client) said: String,
}

/// Bytes that have come.
struct MovedBytes {
    /// Of each cell, what has come now.
    digests: Vec<Digest>,
    /// Whether some had come before.
    kept: bool,
    transfer: Transfer,
}

/// A finished read.
pub(crate) struct ArrivedRead {
    pub(crate) sums: ShardSums,
    pub(crate) transfer: Transfer,
    /// The note for the export of the bytes that arrived.
    pub(crate) note: Vec<u8>,
    /// What is known of the memory once the version is committed.
    pub(crate) content: KnownContent,
    /// The bytes are in the registered memory, not beside it.
    pub(crate) in_place: bool,
    /// Used if the sums are not the publisher's.
    pub(crate) evidence: Evidence,
}

/// What each replica has given, the source first; `given` is by place in the assignment.
fn by_replica(assignment: &Assignment, given: impl Iterator<Item = (usize, u64)>) -> Vec<u64> {
    let mut each = vec![0; assignment.stripes()];
    for (place, bytes) in given {
        each[assignment.at(place as u32).0] += bytes;
    }
    each
}

/// A job for each source: all copies of the plan from there but those that are left out, and those
/// that siblings bring. One without copies still has to find that its source stands; helpers have
/// none of their own.
fn jobs<'a>(
    plan: &Plan,
    left_out: &LeftOut,
    bound: &'a [BoundSource],
    shared: Option<&SharedRead<'_>>,
) -> Vec<SourceJob<'a>> {
    // The transport asks for bytes as they are.
    let Codec::Raw = plan.codec;
    let moved = || plan.copies.iter().enumerate().filter(|(number, _)| !left_out.has(*number));
    let shards = bound.iter().map(|bound| bound.shard + 1).max().unwrap_or_default();
    let mut counts = vec![0; shards];
    moved().for_each(|(_, copy)| counts[copy.source as usize] += 1);
    let mut copies: Vec<Vec<_>> = counts.into_iter().map(Vec::with_capacity).collect();
    for (_, copy) in moved() {
        let copies = &mut copies[copy.source as usize];
        match shared {
            Some(shared) => copies.extend(shared.own(copy).iter().map(strided)),
            None => copies.push(strided(copy)),
        }
    }
    bound.iter().map(|bound| bound.job(std::mem::take(&mut copies[bound.shard]))).collect()
}

/// A data port's address: names are looked up, the first answer is taken.
pub(crate) fn resolve(address: &str) -> Result<SocketAddr, String> {
    let mut found = address.to_socket_addrs().map_err(|e| format!("{address}: {e}"))?;
    found.next().ok_or_else(|| format!("{address} has no address"))
}

fn source_failure(shard: usize, reason: &str) -> ReadFailure {
    ReadFailure::Source { shard: shard as u32, reason: reason.to_owned() }
}

/// The version's tensors must be the group's: every name, dtype and shape.
fn check_catalog(read: &Read<'_>) -> Result<(), ReadFailure> {
    if read.registration.catalog == read.assignment.catalog {
        return Ok(());
    }
    let theirs = union(read.sources).map_err(|e| ReadFailure::Layout { detail: e.to_string() })?;
    Err(ReadFailure::Layout { detail: difference(&read.registration.tensors, &theirs) })
}

#[cfg(test)]
pub(in crate::client) mod tests;

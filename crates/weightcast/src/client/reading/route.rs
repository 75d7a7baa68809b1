//! A plan bound to a live source: copies between layouts become reads between addresses.

use std::collections::BTreeMap;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tracing::{Span, info_span};
use weightcast_plan::{Layout, Plan};
use weightcast_protocol::ShardSums;
use weightcast_protocol::message::{Assignment, ReadFailure};
use weightcast_transport::limits::FULL_PATIENCE;
use weightcast_transport::{
    Auth, ExportId, Filling, Holds, Peer, SourceJob, StridedCopy, TransferOptions, TransportError,
    Way,
};

use super::difference::difference;
use super::evidence::Evidence;
use super::networks::Networks;
use super::pace::ReadPace;
use super::plan_files::PlanFiles;
use super::plans::Plans;
use super::reach;
use super::source_spans::SourceSpans;
use crate::client::memory::registration::{RegisteredShard, union};
use crate::client::threads;
use crate::client::updated::Transfer;
use crate::limits::CACHED_PEERS;

/// How long one source's data port may take to answer: another source may be quicker.
const CONNECT: Duration = Duration::from_secs(3);

/// Plans and reached peers of one handle, kept from one version to the next.
pub(crate) struct Routes {
    auth: Auth,
    way: Way,
    networks: Networks,
    plans: Plans,
    peers: Mutex<BTreeMap<String, Arc<Peer>>>,
    /// Threads that copy in one read.
    pub(in crate::client) threads: usize,
    /// Where tests stop the reads.
    pub(in crate::client) holds: Holds,
}

/// One read, while it runs.
pub(crate) struct Read<'a> {
    pub(crate) registration: &'a Arc<RegisteredShard>,
    pub(crate) assignment: &'a Assignment,
    /// Layouts of the sources' shards, in order.
    pub(crate) sources: &'a [Arc<Layout>],
    pub(crate) deadline: Instant,
    pub(crate) cancel: Arc<AtomicBool>,
    pub(crate) pace: ReadPace,
    /// Which units are final already; they may be served while the rest comes.
    pub(crate) filling: Option<Arc<Filling>>,
    /// Held while memory is written. Stopping a read waits for this lock, so nothing slow happens
    /// under it but the transfer and its digests.
    pub(crate) memory: &'a Mutex<()>,
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
        Self { auth, way, networks, plans, peers, threads, holds }
    }

    /// Fills the registered memory from the assigned source and digests what arrived.
    pub(crate) fn read(&self, read: &Read<'_>) -> Result<ArrivedRead, ReadFailure> {
        let started = Instant::now();
        check_catalog(read)?;
        let (plan, plan_from) = info_span!("plan")
            .in_scope(|| self.plans.get(read.registration, read.assignment, read.sources))?;
        let planned = started.elapsed();
        let (bound, copies): (Vec<_>, Vec<_>) = self.bind(&plan, read)?.into_iter().unzip();
        read.pace.of(bound.iter().map(|bound| bound.shard));
        let jobs: Vec<SourceJob<'_>> =
            bound.iter().zip(copies).map(|(bound, copies)| bound.job(copies)).collect();
        let options = TransferOptions {
            threads: self.threads,
            deadline: Some(read.deadline),
            cancel: Arc::clone(&read.cancel),
            gauge: Arc::clone(&read.pace.gauge),
            filling: read.filling.clone(),
            digests: true,
            holds: self.holds.clone(),
            slots: read.registration.cells.len(),
        };
        let _memory = read.memory.lock().expect("no panic while held");
        if read.cancel.load(Ordering::Acquire) {
            return Err(source_failure(0, "cancelled"));
        }
        let kept = read.filling.as_ref().is_some_and(|filling| filling.progress().0 > 0);
        let begun = bound.iter().map(|bound| bound.span(read.assignment));
        let sources = SourceSpans::new(begun, &read.pace.gauge);
        let mut digests = weightcast_transport::read(&jobs, &read.registration.regions, &options)
            .map_err(|e| self.failed(&bound[e.source], &e.kind, read))?;
        drop(sources);
        let digesting = info_span!("digest").entered();
        if kept {
            // The transfer has digested only the bytes of this read; earlier reads have brought the
            // rest.
            digests = read.registration.digest_all_on(threads::copying());
        } else {
            // Tied weights lie in memory once: digest them again for each further name.
            read.registration.digest(&plan.echoes, &mut digests);
        }
        drop(digesting);
        let bytes = read.registration.bytes();
        Span::current().record("bytes", bytes);
        let way = |job: &SourceJob<'_>| {
            let (export, generation) = (job.export, job.generation);
            (job.peer.way_to(export, generation), job.peer.why(export, generation).to_owned())
        };
        let (way, way_reason) = jobs.first().map_or((self.way, String::new()), way);
        let came = |asked: Way| {
            let so = bound.iter().filter(|bound| bound.way() == asked);
            so.map(|bound| bound.bytes).sum()
        };
        let transfer = Transfer {
            bytes,
            verified: bytes,
            seconds: started.elapsed().as_secs_f64(),
            plan_seconds: planned.as_secs_f64(),
            plan_from,
            way: format!("{way:?}").to_lowercase(),
            way_reason,
            direct: came(Way::Direct),
            tcp: came(Way::Tcp),
            helpers: read.assignment.helpers.clone(),
            ..Transfer::default()
        };
        let (sums, note) = (read.registration.fold(&digests), read.registration.note(&digests));
        let evidence = Evidence {
            registration: Arc::clone(read.registration),
            assignment: read.assignment.clone(),
            sources: read.sources.to_vec(),
            plan,
            digests,
            overwritten: Arc::clone(&read.cancel),
        };
        Ok(ArrivedRead { sums, transfer, note, in_place: !read.assignment.staged, evidence })
    }

    /// Forgets all plans: the registered layout has changed.
    pub(crate) fn forget_plans(&self) {
        self.plans.forget();
    }

    /// Reaches the sources that the plan reads from, and says which copies are made from each.
    fn bind(
        &self,
        plan: &Plan,
        read: &Read<'_>,
    ) -> Result<Vec<(BoundSource, Vec<StridedCopy>)>, ReadFailure> {
        let mut counts = vec![0; read.sources.len()];
        plan.copies.iter().for_each(|copy| counts[copy.source as usize] += 1);
        let mut copies: Vec<Vec<StridedCopy>> =
            counts.into_iter().map(Vec::with_capacity).collect();
        for c in &plan.copies {
            copies[c.source as usize].push(StridedCopy {
                source_region: c.source_buffer,
                source_offset: c.source_offset,
                source_pitch: c.source_pitch,
                target_region: c.target_buffer,
                target_offset: c.target_offset,
                target_pitch: c.target_pitch,
                row_bytes: c.row_bytes,
                rows: c.rows,
                slot: c.cell,
                position: c.position,
                position_pitch: c.position_pitch,
            });
        }
        let mut jobs = Vec::new();
        for (index, copies) in copies.into_iter().enumerate() {
            if copies.is_empty() {
                continue;
            }
            let shard = &read.assignment.shards[index];
            let peer = self.peer(&shard.data_address, read.deadline);
            let peer = peer.map_err(|e| source_failure(index, &e))?;
            let generation = shard.generation.0;
            let export = ExportId(shard.export.0).at(generation);
            let bytes = copies.iter().map(|copy| copy.row_bytes * copy.rows).sum();
            jobs.push((BoundSource { shard: index, peer, export, generation, bytes }, copies));
        }
        Ok(jobs)
    }

    pub(crate) fn peer(&self, address: &str, deadline: Instant) -> Result<Arc<Peer>, String> {
        if let Some(peer) = self.peers.lock().expect("no panic while held").get(address) {
            return Ok(Arc::clone(peer));
        }
        let _entered = info_span!("connect", address).entered();
        let explained = |error: String| reach::explained(address, error);
        let port = resolve(address)?;
        self.networks.check(port).map_err(|e| explained(e.to_string()))?;
        let full = Instant::now() + FULL_PATIENCE;
        let peer = loop {
            let soon = deadline.min(Instant::now() + CONNECT);
            match Peer::connect_by(self.way, port, &self.auth, soon) {
                // A full port is alive, and will have a place: try again.
                Err(TransportError::Full { .. }) if Instant::now() < deadline.min(full) => {}
                connected => break connected.map_err(|e| explained(e.to_string()))?,
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
        self.peers.lock().expect("no panic while held").remove(address);
        match kind {
            // The target is at fault: no other source would do better.
            TransportError::ReadOnlyTarget { .. } | TransportError::UnwritableTarget { .. } => {
                ReadFailure::Layout { detail: kind.to_string() }
            }
            kind => source_failure(bound.shard, &kind.to_string()),
        }
    }
}

/// A finished read.
pub(crate) struct ArrivedRead {
    pub(crate) sums: ShardSums,
    pub(crate) transfer: Transfer,
    /// The note for the export of the bytes that arrived.
    pub(crate) note: Vec<u8>,
    /// The bytes are in the registered memory, not beside it.
    pub(crate) in_place: bool,
    /// Used if the sums are not the publisher's.
    pub(crate) evidence: Evidence,
}

/// One shard of the source, reached, and the export to read.
struct BoundSource {
    shard: usize,
    peer: Arc<Peer>,
    export: ExportId,
    generation: u64,
    /// That are read there.
    bytes: u64,
}

impl BoundSource {
    /// The span in which this source is read.
    fn span(&self, assignment: &Assignment) -> Span {
        let (stripe, shard) = assignment.at(self.shard as u32);
        info_span!(
            "source",
            replica = assignment.sources()[stripe],
            shard,
            address = assignment.shards[self.shard].data_address,
            way = format!("{:?}", self.way()).to_lowercase(),
            bytes = self.bytes,
        )
    }

    /// How its bytes came.
    fn way(&self) -> Way {
        self.peer.way_to(self.export, self.generation)
    }

    fn job(&self, copies: Vec<StridedCopy>) -> SourceJob<'_> {
        SourceJob { peer: &self.peer, export: self.export, generation: self.generation, copies }
    }
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

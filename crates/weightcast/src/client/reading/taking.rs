//! What a read takes from siblings: shards of its group on its host, which bring a part of what it needs.
//!
//! A sibling that does not come, or fails, costs its part and nothing else: the source gives that instead.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tracing::{Span, info_span};
use weightcast_plan::{Copy, Plan};
use weightcast_protocol::session::Division;
use weightcast_transport::{ExportId, Peer, SourceJob, StridedCopy, TransportError, Way};

use super::bound_source::{BoundSource, bytes, strided};
use super::entering::EnteringBytes;
use super::read::Read;
use super::unchanged::LeftOut;
use crate::client::memory::siblings::{Siblings, taken_from};

/// How long a sibling may take to begin its part: it was told to when this shard was.
const MEETING: Duration = Duration::from_secs(2);

/// A read's part of what the shards of its host bring together.
pub(super) struct SharedRead<'a> {
    siblings: &'a Siblings,
    entering: &'a EnteringBytes,
    /// Whether this shard brings its part apart from the rest.
    divided: bool,
    /// From whom the rest is taken. `None`: from the source too.
    met: Option<Vec<BoundSibling>>,
}

/// A sibling, reached.
struct BoundSibling {
    shard: u32,
    peer: Arc<Peer>,
    export: ExportId,
    generation: u64,
}

impl<'a> SharedRead<'a> {
    /// Waits a moment for the siblings that this shard takes from. `None`: the host's shards share nothing, or each
    /// reads for itself, and nobody takes.
    pub(super) fn new(
        read: &'a Read<'_>,
        sources: &[BoundSource],
        reach: impl Fn(&str, Instant) -> Result<Arc<Peer>, String>,
    ) -> Option<Self> {
        let siblings = read.registration.siblings.as_deref()?;
        let entering = read.entering?;
        // Memory of a source on this host is as near as that of a sibling.
        let near = sources.iter().all(|source| source.peer.way() != Way::Tcp);
        let division = siblings.sharing().divide(near);
        let takes = division == Division::Shared;
        let met = if takes { meet(read, siblings, entering, reach) } else { None };
        Some(Self { siblings, entering, divided: division != Division::Whole, met })
    }

    pub(super) fn entering(&self) -> &EnteringBytes {
        self.entering
    }

    /// Whether anything is taken from siblings. If not, the source gives that.
    pub(super) fn takes(&self) -> bool {
        self.met.is_some()
    }

    /// A sibling has failed: the source gives the rest.
    pub(super) fn go_alone(&mut self, error: &TransportError) {
        tracing::warn!(%error, "a shard of this group on this host gives nothing: the source does");
        self.met = None;
    }

    /// Leaves out of shared cells only those that are left out whole: what others bring is cut differently.
    pub(super) fn leave_out(&self, plan: &Plan, left_out: &mut LeftOut) {
        if !self.divided {
            return;
        }
        left_out.whole(plan, |cell| self.siblings.shares.is_shared(cell));
    }

    /// Of this copy of the plan, the parts that this shard brings.
    pub(super) fn own(&self, copy: &Copy) -> Vec<Copy> {
        if self.divided { self.siblings.shares.entered(copy) } else { vec![*copy] }
    }

    /// Jobs for what siblings bring: one for each, or for each of the sources.
    pub(super) fn jobs<'b>(
        &'b self,
        plan: &Plan,
        left_out: &LeftOut,
        sources: &'b [BoundSource],
    ) -> Vec<SourceJob<'b>> {
        if !self.divided {
            return Vec::new();
        }
        let Some(met) = &self.met else { return self.rest_of_sources(plan, left_out, sources) };
        let mut moved =
            vec![false; plan.copies.iter().map(|c| c.cell + 1).max().unwrap_or(0) as usize];
        for (number, copy) in plan.copies.iter().enumerate() {
            moved[copy.cell as usize] |= !left_out.has(number);
        }
        let taken = |shard: u32| {
            let of = self.siblings.shares.taken().iter().filter(move |taken| taken.shard == shard);
            of.flat_map(|taken| &taken.copies)
        };
        let job = |sibling: &'b BoundSibling| {
            let copies = taken(sibling.shard).filter(|copy| moved[copy.cell as usize]);
            SourceJob {
                peer: &sibling.peer,
                export: sibling.export,
                generation: sibling.generation,
                copies: copies.map(strided).collect(),
            }
        };
        met.iter().map(job).collect()
    }

    fn rest_of_sources<'b>(
        &self,
        plan: &Plan,
        left_out: &LeftOut,
        sources: &'b [BoundSource],
    ) -> Vec<SourceJob<'b>> {
        let of = |source: &BoundSource| -> Vec<StridedCopy> {
            let copies = plan.copies.iter().enumerate();
            let moved = copies.filter(|(number, copy)| {
                copy.source as usize == source.shard && !left_out.has(*number)
            });
            moved
                .flat_map(|(_, copy)| self.siblings.shares.left(copy))
                .map(|c| strided(&c))
                .collect()
        };
        sources.iter().map(|source| source.job(of(source))).collect()
    }

    /// The spans in which the jobs run.
    pub(super) fn spans(&self, jobs: &[SourceJob<'_>]) -> Vec<Span> {
        let span = |(number, job): (usize, &SourceJob<'_>)| {
            let shard = self.met.as_ref().map(|met| met[number].shard);
            info_span!("sibling", shard, bytes = bytes(job))
        };
        jobs.iter().enumerate().map(span).collect()
    }
}

/// Reaches all siblings that this shard takes from. `None` if one of them does not come.
fn meet(
    read: &Read<'_>,
    siblings: &Siblings,
    entering: &EnteringBytes,
    reach: impl Fn(&str, Instant) -> Result<Arc<Peer>, String>,
) -> Option<Vec<BoundSibling>> {
    let _entered = info_span!("meet siblings").entered();
    let until = read.deadline.min(Instant::now() + MEETING);
    let mut met = Vec::new();
    for taken in siblings.shares.taken() {
        let port = siblings.port(taken.shard)?;
        let address = port.data_address.as_str();
        let peer = match reach(address, until) {
            Ok(peer) => peer,
            Err(why) => {
                let shard = taken.shard;
                tracing::warn!(
                    shard,
                    address,
                    why,
                    "a shard of this group on this host is out of reach: what both hold enters the host twice"
                );
                siblings.sharing().leave_alone();
                return None;
            }
        };
        let export = taken_from(port.memory, entering.opening);
        let generation = entering.opening.since.0;
        if let Err(error) = peer.wait_for(export, generation, until, &read.cancel) {
            tracing::debug!(shard = taken.shard, %error, "a shard of this group on this host has not begun");
            return None;
        }
        met.push(BoundSibling { shard: taken.shard, peer, export, generation });
    }
    Some(met)
}

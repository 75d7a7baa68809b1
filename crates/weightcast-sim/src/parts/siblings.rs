//! What a shard brings into its host for its siblings, and what it takes from them.
//!
//! In a job the parts follow from the layouts (`weightcast_plan::HostShares`). Here all shards of a replicated group hold
//! all chunks, lie on one host, and bring them in turns.

use std::collections::BTreeSet;
use std::sync::Arc;

use weightcast_protocol::message::Sibling;
use weightcast_protocol::session::{Division, Opening, ReadOrder, SiblingSharing};
use weightcast_protocol::{Safeguards, Span, Time};

/// How long a sibling may take to begin its part.
const MEETING: Span = Span::from_millis(2_000);

/// A shard's siblings, and what it shares with them.
#[derive(Clone, Debug, Default)]
pub(crate) struct SiblingChunks {
    /// As the server has told them, this shard among them.
    told: Arc<[Sibling]>,
    pub(crate) sharing: SiblingSharing,
    /// Chunks that are here since the opening, by place.
    pub(crate) there: Vec<bool>,
    /// They are beside the registered memory.
    pub(crate) beside: bool,
    /// How the running read is divided.
    division: Option<Division>,
    /// SiblingChunks that have begun their part of it.
    met: BTreeSet<u32>,
    /// By when all have to.
    pub(crate) meet_by: Time,
}

impl SiblingChunks {
    /// Memory is registered: the server tells who is on the host.
    pub(crate) fn registered(told: &Arc<[Sibling]>, safeguards: Safeguards) -> Self {
        let sharing = SiblingSharing::new(safeguards);
        Self { told: Arc::clone(told), sharing, ..Self::default() }
    }

    /// Whether there are any.
    pub(crate) fn any(&self) -> bool {
        self.told.len() > 1
    }

    /// A read of so many chunks begins, from a source that may be on this host.
    pub(crate) fn begin(&mut self, order: &ReadOrder, near: bool, chunks: u32, now: Time) {
        let before = self.sharing.open();
        self.division = None;
        if !self.any() {
            return;
        }
        if self.sharing.begin(order) != before {
            self.there = vec![false; chunks as usize];
        }
        self.beside = order.assignment.staged;
        self.division = Some(self.sharing.divide(near));
        self.met.clear();
        self.meet_by = now + MEETING;
    }

    /// What siblings take now.
    pub(crate) fn open(&self) -> Option<Opening> {
        self.sharing.open()
    }

    /// Whether siblings may take the chunk at this place of the registered memory, or of memory beside it.
    pub(crate) fn give(&self, place: u32, beside: bool) -> bool {
        let there = self.there.get(place as usize).is_some_and(|there| *there);
        self.open().is_some() && self.beside == beside && there
    }

    /// The sibling that brings the chunk at this place to shard number `own`. `None`: the source gives it.
    pub(crate) fn bringing(&self, place: u32, own: u32) -> Option<&Sibling> {
        let by = self.told.get(place as usize % self.told.len().max(1))?;
        (self.division == Some(Division::Shared) && by.shard != own).then_some(by)
    }

    /// The chunk at this place has come.
    pub(crate) fn arrived(&mut self, place: u32) {
        if self.open().is_some()
            && let Some(there) = self.there.get_mut(place as usize)
        {
            *there = true;
        }
    }

    /// A sibling has begun its part.
    pub(crate) fn meets(&mut self, shard: u32) {
        self.met.insert(shard);
    }

    /// Whether a sibling has begun its part.
    pub(crate) fn has_met(&self, shard: u32) -> bool {
        self.met.contains(&shard)
    }

    /// A sibling gives nothing: the source gives the rest of this read.
    pub(crate) fn go_alone(&mut self) {
        self.division = Some(Division::Alone);
    }
}

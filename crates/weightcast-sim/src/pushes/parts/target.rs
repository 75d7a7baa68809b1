//! A target: its machine, its memory, and its data port.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::push::{PushGrant, PushNumber, PushTarget, TargetId};
use weightcast_protocol::{Generation, Safeguards, Time};

use crate::pushes::options::CHUNKS;
use crate::pushes::parts::queue::SimWrite;

/// What memory has whose bytes are of no version.
pub(crate) const SPOILED: u64 = u64::MAX;

/// A target's place: who lives there, and its memory.
#[derive(Debug)]
pub(crate) struct SimTarget {
    pub(crate) id: TargetId,
    pub(crate) alive: bool,
    pub(crate) asleep: bool,
    pub(crate) machine: PushTarget,
    /// Grants that the data port knows as open.
    pub(crate) port: BTreeMap<u64, PushGrant>,
    /// The version that each chunk's bytes are of.
    pub(crate) memory: Vec<[u64; CHUNKS]>,
    /// The version that is served.
    pub(crate) serves: Option<u64>,
    /// When the platform knows that the target is dead, or that it is there.
    pub(crate) known: Time,
    /// It has left: the platform lists it no more.
    pub(crate) left: bool,
    pub(crate) cut_until: Time,
    /// The newest order that arrived, as the world saw it, and when a word of that push's driver last did.
    pub(crate) heard: (PushNumber, u64),
    pub(crate) heard_at: Time,
    /// Pushes after which this target was ready.
    pub(crate) ready: BTreeSet<PushNumber>,
    /// When something last struck it, or ceased to.
    pub(crate) upset_at: Time,
}

impl SimTarget {
    /// A place where nobody lives yet.
    pub(crate) fn absent(parcels: usize, safeguards: Safeguards) -> Self {
        Self {
            id: TargetId(0),
            alive: false,
            asleep: false,
            machine: PushTarget::new(TargetId(0), Generation(0), safeguards),
            port: BTreeMap::new(),
            memory: vec![[SPOILED; CHUNKS]; parcels],
            serves: None,
            known: Time(0),
            left: false,
            cut_until: Time(0),
            heard: Default::default(),
            heard_at: Time(0),
            ready: BTreeSet::new(),
            upset_at: Time(0),
        }
    }

    /// Whether the port lets a write in: only its sender has the grant's secret.
    pub(crate) fn admits(&self, write: &SimWrite) -> Option<&PushGrant> {
        let grant = self.port.get(&write.grant)?;
        let own = self.alive && self.id == write.target && grant.sender == write.sender;
        let current = grant.generation == write.generation;
        let covered = grant.parcels.contains(&write.parcel);
        (own && current && covered).then_some(grant)
    }

    /// Parcels that are not this version.
    pub(crate) fn differing(&self, version: u64) -> BTreeSet<u32> {
        let numbered = (0..).zip(&self.memory);
        let wrong = numbered.filter(|(_, chunks)| chunks.iter().any(|chunk| *chunk != version));
        wrong.map(|(number, _)| number).collect()
    }

    /// Whether messages reach it.
    pub(crate) fn is_reached(&self, now: Time) -> bool {
        self.cut_until <= now
    }

    /// Whether the platform lists it.
    pub(crate) fn is_listed(&self, now: Time) -> bool {
        !self.left && self.alive == (self.known <= now) && self.id != TargetId(0)
    }
}

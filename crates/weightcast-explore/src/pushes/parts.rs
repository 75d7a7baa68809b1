//! What a state is made of: drivers, targets, senders, and what is under way between them.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::push::{
    ParcelsWritten, PushDriver, PushGrant, PushNumber, PushOrder, PushReport, PushSender,
    PushTarget, SendRefused, SenderId, TargetId,
};
use weightcast_protocol::{Generation, Time};

/// What memory has whose bytes are of no version.
pub(super) const TORN: u64 = u64::MAX;
/// More lives than a target's place has.
const LIVES: u64 = 100;

/// A driver and its clock.
#[derive(Clone, Debug)]
pub(super) struct DrivingPush {
    /// None once the push is over.
    pub(super) machine: Option<PushDriver>,
    pub(super) now: Time,
    pub(super) alive: bool,
    /// Has a successor.
    pub(super) followed: bool,
    /// The count of the newest word that each target was heard to say.
    pub(super) heard: BTreeMap<TargetId, u64>,
    /// Targets that have joined, and when.
    pub(super) joined: BTreeMap<TargetId, Time>,
    /// Places of the senders of which the driver was ever told that they hold its version.
    pub(super) holders: BTreeSet<usize>,
    /// Senders of whose death the driver knows.
    pub(super) buried: BTreeSet<usize>,
}

/// A target, its memory and its data port.
#[derive(Clone, Debug)]
pub(super) struct FilledTarget {
    pub(super) id: TargetId,
    pub(super) alive: bool,
    pub(super) asleep: bool,
    pub(super) left: bool,
    pub(super) machine: PushTarget,
    pub(super) now: Time,
    /// Grants that the data port knows as open.
    pub(super) port: BTreeMap<u64, PushGrant>,
    /// The version that each parcel's bytes are of.
    pub(super) memory: Vec<u64>,
    /// The version that is served.
    pub(super) serves: Option<u64>,
    /// It is about to stop serving.
    pub(super) pausing: bool,
    /// What comparisons have found of which the machine does not know yet.
    pub(super) compared: BTreeMap<Generation, BTreeSet<u32>>,
    /// The newest order that arrived.
    pub(super) heard: (PushNumber, u64),
    /// Pushes after which the target was ready.
    pub(super) ready: BTreeSet<PushNumber>,
    /// A fault has struck it.
    pub(super) struck: bool,
}

/// Writes under one grant.
#[derive(Clone, Debug)]
pub(super) struct WriteJob {
    pub(super) grant: PushGrant,
    /// Parcels that are still to write.
    pub(super) parcels: BTreeSet<u32>,
    /// A write is under way.
    pub(super) waits: bool,
}

/// A sender, its memory and its writes.
#[derive(Clone, Debug)]
pub(super) struct WritingSender {
    pub(super) alive: bool,
    pub(super) stalled: bool,
    pub(super) machine: PushSender,
    /// The version that the memory has.
    pub(super) memory: u64,
    pub(super) jobs: Vec<WriteJob>,
    /// Answers that came while the sender stood still.
    pub(super) answers: Vec<(PushWrite, bool)>,
    /// A fault has struck it.
    pub(super) struck: bool,
}

/// One write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PushWrite {
    pub(super) target: TargetId,
    pub(super) grant: u64,
    pub(super) generation: Generation,
    pub(super) from: usize,
    pub(super) parcel: u32,
    /// The version whose bytes are written.
    pub(super) content: u64,
    /// Whether the sender hears how the write went.
    pub(super) answered: bool,
}

/// What is under way. Whatever goes to a target's place reaches whoever lives there then.
#[derive(Clone, Debug)]
pub(super) enum PushWire {
    /// To a target.
    Order(PushOrder),
    /// To the driver of this number.
    Report { driver: u64, report: PushReport },
    /// To a sender.
    Grant(PushGrant),
    /// To a target.
    Word(ParcelsWritten),
    /// To a driver.
    Refusal(SendRefused),
    /// To a data port.
    Write(PushWrite),
}

/// The name of the worker at a target's place.
pub(super) fn target_id(place: usize, life: u64) -> TargetId {
    TargetId((place as u64 + 1) * LIVES + life)
}

/// Where a target lives, or has lived.
pub(super) fn place_of(target: TargetId) -> usize {
    (target.0 / LIVES) as usize - 1
}

/// The life of a target at its place.
pub(super) fn life_of(target: TargetId) -> u64 {
    target.0 % LIVES
}

pub(super) fn sender_id(place: usize) -> SenderId {
    SenderId(place as u64 + 1)
}

pub(super) fn place_of_sender(sender: SenderId) -> usize {
    sender.0 as usize - 1
}

impl DrivingPush {
    /// Targets at which the push is not over.
    pub(super) fn open(&self) -> Vec<TargetId> {
        self.machine.iter().flat_map(PushDriver::open).collect()
    }
}

impl FilledTarget {
    /// The grant under which a data port lets a write in: only its sender has the grant's secret.
    pub(super) fn admits(&self, write: &PushWrite) -> Option<&PushGrant> {
        let grant = self.port.get(&write.grant)?;
        let own = self.alive && self.id == write.target;
        let right = grant.sender == sender_id(write.from) && grant.generation == write.generation;
        (own && right && grant.parcels.contains(&write.parcel)).then_some(grant)
    }

    /// Parcels that are not this version.
    pub(super) fn differing(&self, version: u64) -> BTreeSet<u32> {
        let numbered = (0..).zip(&self.memory);
        numbered.filter(|(_, content)| **content != version).map(|(number, _)| number).collect()
    }
}

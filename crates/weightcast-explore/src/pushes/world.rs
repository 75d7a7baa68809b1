//! A state of a push: drivers, targets, senders, what is under way, faults so far.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use weightcast_protocol::push::{PushSender, PushTarget, TargetId};
use weightcast_protocol::server::Violation;
use weightcast_protocol::{Epoch, Generation, Time, Version};

use super::parts::{
    DrivingPush, FilledTarget, PushWire, TORN, WritingSender, sender_id, target_id,
};
use super::{PushBounds, PushFaults};
use crate::hashed::Hashed;
use crate::invariants::Broken;

/// One state.
#[derive(Clone, Debug)]
pub struct PushState {
    /// By number, from one on.
    pub(super) drivers: Vec<Hashed<DrivingPush>>,
    pub(super) targets: Vec<Hashed<FilledTarget>>,
    pub(super) senders: Vec<Hashed<WritingSender>>,
    /// By their hash: what is said twice is on its way once.
    pub(super) wires: BTreeMap<u64, Hashed<PushWire>>,
    /// Faults that have happened.
    pub(super) spent: PushFaults,
    /// What the last step has shown.
    pub(super) seen: BTreeSet<&'static str>,
    /// The first invariant that broke.
    pub(super) broken: Option<Broken>,
}

pub(super) fn version(number: u64) -> Version {
    Version { epoch: Epoch(1), number }
}

impl PushState {
    /// All targets serve what they have loaded; the first driver pushes version 1, which all senders hold.
    pub(super) fn new(bounds: &PushBounds) -> Self {
        let target = |place| Hashed::new(FilledTarget::new(target_id(place, 1), bounds).serving());
        let sender = |place| Hashed::new(WritingSender::new(place, bounds));
        let mut state = Self {
            drivers: Vec::new(),
            targets: (0..bounds.targets as usize).map(target).collect(),
            senders: (0..bounds.senders as usize).map(sender).collect(),
            wires: BTreeMap::new(),
            spent: PushFaults::default(),
            seen: BTreeSet::new(),
            broken: None,
        };
        state.start_driver(bounds);
        state
    }

    /// Puts something on its way.
    pub(super) fn send(&mut self, wire: PushWire) {
        let wire = Hashed::new(wire);
        let mut hasher = DefaultHasher::new();
        wire.hash(&mut hasher);
        self.wires.insert(hasher.finish(), wire);
    }

    /// Notes what has been seen in this step.
    pub(super) fn sees(&mut self, what: &'static str) {
        self.seen.insert(what);
    }

    /// Notes an invariant that does not hold, unless another one has broken before.
    pub(super) fn breaks(&mut self, invariant: &'static str, detail: impl FnOnce() -> String) {
        self.broken.get_or_insert_with(|| Broken { invariant, detail: detail() });
    }

    pub(super) fn validated(&mut self, valid: Result<(), Violation>) {
        if let Err(violation) = valid {
            self.breaks(violation.invariant, || violation.detail);
        }
    }
}

impl FilledTarget {
    /// A process that has just started.
    pub(super) fn new(id: TargetId, bounds: &PushBounds) -> Self {
        Self {
            id,
            alive: true,
            asleep: false,
            left: false,
            machine: PushTarget::new(id, Generation(0), bounds.safeguards),
            now: Time(0),
            port: BTreeMap::new(),
            memory: vec![TORN; bounds.parcels as usize],
            serves: None,
            pausing: false,
            compared: BTreeMap::new(),
            heard: Default::default(),
            ready: BTreeSet::new(),
            struck: false,
        }
    }

    /// The same, with the weights that it has loaded.
    fn serving(self) -> Self {
        Self { memory: vec![0; self.memory.len()], serves: Some(0), ..self }
    }
}

impl WritingSender {
    fn new(place: usize, bounds: &PushBounds) -> Self {
        let mut machine = PushSender::new(sender_id(place), bounds.safeguards);
        machine.hold(version(1));
        Self {
            alive: true,
            stalled: false,
            machine,
            memory: 1,
            jobs: Vec::new(),
            answers: Vec::new(),
            struck: false,
        }
    }
}

impl PartialEq for PushState {
    fn eq(&self, other: &Self) -> bool {
        hash(self) == hash(other)
    }
}

fn hash(state: &PushState) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

impl Hash for PushState {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.drivers, &self.targets, &self.senders).hash(state);
        self.wires.keys().for_each(|wire| wire.hash(state));
        (self.spent, &self.seen).hash(state);
        self.broken.as_ref().map(|broken| broken.invariant).hash(state);
    }
}

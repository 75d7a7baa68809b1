//! Events that are still to happen in a world of updates.

use std::collections::BTreeMap;

use weightcast_protocol::Time;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, ServingNotice, StepAnswer, StepOrder, UpdateAttempt,
};

use crate::updates::options::UpdateFault;

/// One life of an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct EngineLife {
    pub(crate) engine: usize,
    pub(crate) life: u32,
}

/// Who gives an order, or asks the register.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum UpdateAsker {
    /// The driver at this place of the world's list.
    Driver(usize),
    /// An engine, by itself.
    Engine(EngineLife),
}

/// An event of a world of updates.
#[derive(Clone, Debug, Hash)]
pub(crate) enum UpdateEvent {
    /// An order arrives at a worker.
    Order { to: EngineLife, worker: u32, from: UpdateAsker, order: Box<StepOrderKey> },
    /// An answer arrives.
    Answer {
        to: UpdateAsker,
        from: EngineLife,
        worker: u32,
        attempt: UpdateAttempt,
        answer: Box<AnswerKey>,
        /// When it left.
        sent: Time,
    },
    /// A question arrives at the register.
    Ask { from: UpdateAsker, question: FleetQuestion },
    /// The register's word arrives.
    Told { to: UpdateAsker, asked: FleetQuestion, answer: FleetAnswer },
    /// A worker's notice arrives at the table of routing leases.
    Notice(Box<ServingNotice>),
    /// The workers of an engine say what they serve.
    Notices(EngineLife),
    /// A worker makes the next change of its step.
    Change { at: EngineLife, worker: u32, attempt: UpdateAttempt },
    /// An engine runs a forward pass, and looks at its timers.
    Pass(EngineLife),
    /// A driver looks at its timers, and at what is to be done.
    Tick(usize),
    /// An engine starts.
    EngineStarts(usize),
    /// An engine wakes.
    EngineWakes(EngineLife),
    /// A driver starts.
    DriverStarts,
    /// The last driver starts, after the faults.
    DriverComes,
    /// A driver that lived beside another one dies.
    DriverEnds(usize),
    /// The trainer has a new version, or goes back to an earlier one.
    Published,
    /// The world is looked at.
    Look,
    /// A fault strikes.
    Fault(UpdateFault),
    /// Faults cease.
    Calm,
}

/// An order, so that events can be hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StepOrderKey(pub(crate) StepOrder);

impl std::hash::Hash for StepOrderKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0.attempt, self.0.step, self.0.version).hash(state);
    }
}

/// An answer, so that events can be hashed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AnswerKey(pub(crate) StepAnswer);

impl std::hash::Hash for AnswerKey {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        std::mem::discriminant(&self.0).hash(state);
    }
}

/// Events by time; those of one instant in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct UpdateQueue {
    events: BTreeMap<(Time, u64), UpdateEvent>,
    planned: u64,
}

impl UpdateQueue {
    pub(crate) fn plan(&mut self, at: Time, event: UpdateEvent) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, UpdateEvent)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

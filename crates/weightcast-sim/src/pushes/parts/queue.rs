//! Events that are still to happen in a world of pushes.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::push::{
    ParcelsWritten, PushGrant, PushOrder, PushReport, SendRefused, SenderId, TargetId,
};
use weightcast_protocol::{Generation, Time};

use crate::pushes::options::PushFault;

/// One write on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SimWrite {
    /// The target's place; whoever lives there now gets the write.
    pub(crate) place: usize,
    pub(crate) target: TargetId,
    pub(crate) grant: u64,
    pub(crate) generation: Generation,
    /// The sender's place, and who it was.
    pub(crate) from: usize,
    pub(crate) sender: SenderId,
    pub(crate) parcel: u32,
    pub(crate) chunk: usize,
    /// The version whose bytes these are, as the sender's memory was.
    pub(crate) content: u64,
    /// Whether the sender hears how it went.
    pub(crate) answered: bool,
}

/// An event of a world of pushes. Whatever goes to a place reaches whoever lives there then.
#[derive(Clone, Debug, Hash)]
pub(crate) enum PushEvent {
    /// An order arrives at a target's place.
    Order { place: usize, order: PushOrder },
    /// A report arrives at the driver of this number.
    Report { driver: u64, report: PushReport },
    /// A grant's name arrives at a sender's place.
    Grant { place: usize, grant: PushGrant },
    /// A sender's word arrives at a target's place.
    Word { place: usize, word: ParcelsWritten },
    /// A sender's refusal arrives at the driver of this number.
    Refusal { driver: u64, refused: SendRefused },
    /// A write arrives at a data port.
    Lands(SimWrite),
    /// A sender hears how its write went.
    Answered { write: SimWrite, done: bool },
    /// A sender goes on writing, if it is the same one still.
    Writes { place: usize, sender: SenderId },
    /// A target has stopped serving.
    Paused { place: usize, target: TargetId },
    /// A target has compared its memory.
    Verified { place: usize, target: TargetId, generation: Generation, differing: BTreeSet<u32> },
    /// A target looks at its timers, and serves.
    TargetTick { place: usize, target: TargetId },
    /// A target starts.
    TargetStarts(usize),
    /// A target wakes.
    TargetWakes { place: usize, target: TargetId },
    /// A sender starts.
    SenderStarts(usize),
    /// A sender's memory has the newest version.
    SenderSteps { place: usize, sender: SenderId },
    /// A driver looks at its timers, and at what is to be done.
    DriverTick(usize),
    /// A driver starts.
    DriverStarts,
    /// A driver that lived beside another one dies.
    DriverEnds(usize),
    /// The trainer has a new version.
    Published,
    /// The world is looked at.
    Look,
    /// A fault strikes.
    Fault(PushFault),
    /// Faults cease.
    Calm,
}

/// Events by time; those of one instant in the order in which they were planned.
#[derive(Debug, Default)]
pub(crate) struct PushQueue {
    events: BTreeMap<(Time, u64), PushEvent>,
    planned: u64,
}

impl PushQueue {
    pub(crate) fn plan(&mut self, at: Time, event: PushEvent) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, PushEvent)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

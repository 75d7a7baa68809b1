//! The world's future: events in order of time, then of being planned.

use std::collections::BTreeMap;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, ConnectionId, Generation, Nonce, OpSeq, Term, TermProof, Time};

use crate::settings::fault_kinds::FaultKind;
use crate::settings::strike::Strike;

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    /// Which process.
    pub(crate) process: usize,
    /// How often it has been started, or has opened a new session.
    pub(crate) life: u32,
}

/// One life of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    /// The machine that it runs on.
    pub(crate) host: usize,
    /// How often it has been started.
    pub(crate) life: u32,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum WorldEvent {
    /// To a server.
    Server(Seat, ServerStep),
    /// A message arrives at the server that the stream leads to.
    ToServer(ConnectionId, ClientMessage),
    /// To a process.
    Process(Life, ProcessStep),
    /// A fault.
    Fault(FaultKind),
    /// A fault that is written down.
    Strike(Strike),
    /// Faults cease.
    Quiet,
}

/// Something that happens to a server.
#[derive(Clone, Debug, Hash)]
pub(crate) enum ServerStep {
    /// Its timer is due.
    Timer,
    /// It notices that a stream broke.
    Gone(ConnectionId),
    /// A session of another server tells it of its term.
    Probe { client: Life, told: TermProof },
    /// It starts, and knows nothing.
    Start,
}

/// Something that happens to a process.
#[derive(Clone, Debug, Hash)]
pub(crate) enum ProcessStep {
    /// Its session's timer is due.
    Timer,
    /// A message arrives from a server, sent in this term.
    Message(ConnectionId, Term, ServerMessage),
    /// A server has answered which term it acts in.
    Probed { server: usize, told: Term, acts: Option<TermProof> },
    /// The stream of this number, of those that it asked for, is open, or could not be opened.
    Connected(u64, Option<ConnectionId>),
    /// It notices that a stream broke.
    Gone(ConnectionId),
    /// Its program goes on.
    Act,
    /// It has written its memory anew and publishes it under this number.
    Written(u64),
    /// It has digested its memory.
    Digested(Generation),
    /// It has summed what it is to show of the memory held at this generation.
    Proved(Generation, Nonce),
    /// The next chunk of its read.
    Chunk(OpSeq, Attempt),
    /// It has copied the memory that it held at this generation.
    Copied(Generation),
    /// It has found memory for the seed that it was asked for, or found that there is none.
    Seeded(u64),
    /// It has copied into its memory what it had read beside it.
    Installed(OpSeq, Attempt),
    /// It closes its session.
    Close,
    /// It starts, with a new session.
    Start,
}

/// Events in order.
#[derive(Debug, Default)]
pub(crate) struct EventQueue {
    events: BTreeMap<(Time, u64), WorldEvent>,
    planned: u64,
}

impl EventQueue {
    pub(crate) fn plan(&mut self, at: Time, event: WorldEvent) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, WorldEvent)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

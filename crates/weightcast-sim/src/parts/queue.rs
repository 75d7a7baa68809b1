//! The events that are still to happen, by time. Events of one instant happen in the order in which they were planned.

use std::collections::BTreeMap;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, ConnectionId, Generation, Nonce, OpSeq, Term, TermProof, Time};

use crate::settings::fault_kinds::FaultKind;
use crate::settings::strike::Strike;

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Life {
    /// Index of the process.
    pub(crate) process: usize,
    /// Number of the life: grows with each start of the process and with each new session.
    pub(crate) life: u32,
}

/// One life of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Seat {
    /// Index of the machine that the server runs on.
    pub(crate) host: usize,
    /// Number of the life: grows with each start of the server.
    pub(crate) life: u32,
}

/// An event of the world.
#[derive(Clone, Debug)]
pub(crate) enum WorldEvent {
    /// Something happens to a server.
    Server(Seat, ServerStep),
    /// A message arrives at the server that the stream leads to.
    ToServer(ConnectionId, ClientMessage),
    /// Something happens to a process.
    Process(Life, ProcessStep),
    /// A fault of this kind strikes; its victim is drawn when it does.
    Fault(FaultKind),
    /// A fault strikes whose victim and end are written down.
    Strike(Strike),
    /// Faults cease.
    Quiet,
}

/// Something that happens to a server.
#[derive(Clone, Debug, Hash)]
pub(crate) enum ServerStep {
    /// The timer of the server is due.
    Timer,
    /// The server notices that a stream broke.
    Gone(ConnectionId),
    /// A session of another server tells the server of that one's term.
    Probe { client: Life, told: TermProof },
    /// The server starts, and knows nothing.
    Start,
}

/// Something that happens to a process.
#[derive(Clone, Debug, Hash)]
pub(crate) enum ProcessStep {
    /// The timer of the process's session is due.
    Timer,
    /// A message arrives from a server, sent in this term.
    Message(ConnectionId, Term, ServerMessage),
    /// A server has answered which term it acts in.
    Probed { server: usize, told: Term, acts: Option<TermProof> },
    /// The stream that was asked for under this number is open, or could not be opened.
    Connected(u64, Option<ConnectionId>),
    /// The process notices that a stream broke.
    Gone(ConnectionId),
    /// The program of the process takes its next action.
    Act,
    /// The memory is written anew, and is published under this number.
    Written(u64),
    /// The memory held at this generation is digested.
    Digested(Generation),
    /// The sample that a server asked for, of the memory held at this generation, is summed.
    Proved(Generation, Nonce),
    /// The next chunk of the running read arrives.
    Chunk(OpSeq, Attempt),
    /// The memory held at this generation is copied aside.
    Copied(Generation),
    /// Memory for the seed that was asked for under this number is found, or there is none.
    Seeded(u64),
    /// What a staged update had read is copied into place.
    Installed(OpSeq, Attempt),
    /// The process closes its session.
    Close,
    /// The process starts, with a new session.
    Start,
}

/// Events that are still to happen.
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

//! The world's future: events in order of time, then of being planned.

use std::collections::BTreeMap;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, ConnectionId, Generation, OpSeq, Time};

use crate::fault_kinds::FaultKind;

/// One life of one process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Life {
    /// Which process.
    pub(crate) process: usize,
    /// How often it has been started, or has opened a new session.
    pub(crate) life: u32,
}

/// Something that happens.
#[derive(Clone, Debug)]
pub(crate) enum Event {
    /// The server's timer is due.
    ServerTimer,
    /// A message arrives at the server.
    ToServer(ConnectionId, ClientMessage),
    /// The server notices that a stream broke.
    ServerGone(ConnectionId),
    /// To a process.
    Process(Life, Step),
    /// A fault.
    Fault(FaultKind),
    /// Faults cease.
    Quiet,
}

/// Something that happens to a process.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    /// Its session's timer is due.
    Timer,
    /// A message arrives from the server.
    Message(ConnectionId, ServerMessage),
    /// A stream is open, or could not be opened.
    Connected(Option<ConnectionId>),
    /// It notices that a stream broke.
    Gone(ConnectionId),
    /// Its program goes on.
    Act,
    /// It has written its memory anew and publishes it under this number.
    Written(u64),
    /// It has digested its memory.
    Digested(Generation),
    /// The next chunk of its read.
    Chunk(OpSeq, Attempt),
    /// It closes its session.
    Close,
    /// It starts, with a new session.
    Start,
}

/// Events in order.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    events: BTreeMap<(Time, u64), Event>,
    planned: u64,
}

impl Queue {
    pub(crate) fn plan(&mut self, at: Time, event: Event) {
        self.planned += 1;
        self.events.insert((at, self.planned), event);
    }

    pub(crate) fn pop(&mut self) -> Option<(Time, Event)> {
        self.events.pop_first().map(|((at, _), event)| (at, event))
    }
}

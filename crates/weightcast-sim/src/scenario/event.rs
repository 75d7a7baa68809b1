//! What happens in a play, in order of time.

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, ConnectionId, Generation, OpSeq};

use super::flows::End;
use super::worker::{Task, WorkerLife};

/// Something that happens.
#[derive(Debug)]
pub(super) enum ScenarioEvent {
    ToServer(ConnectionId, ClientMessage),
    ServerGone(ConnectionId),
    ServerTimer,
    /// A step of the script is due.
    Script(usize),
    /// A process starts.
    Start(usize),
    /// A flow has brought everything that was asked for, or another unit.
    End(End),
    Worker(WorkerLife, Happening),
}

/// Something that happens to a worker.
#[derive(Debug)]
pub(super) enum Happening {
    Connected(ConnectionId),
    Message(ConnectionId, ServerMessage),
    Gone(ConnectionId),
    Timer,
    /// The published memory is digested.
    Sealed(Generation),
    /// A task begins, or goes on.
    Task(Task),
    /// The worker's source has this many units.
    Told(OpSeq, Attempt, u32),
    /// The worker gives its source up, for this reason.
    Lost(OpSeq, Attempt, &'static str),
}

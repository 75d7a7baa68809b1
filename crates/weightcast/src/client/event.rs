//! Everything that happens to a session, and how its calls are answered.

use std::sync::{Arc, mpsc as reply};
use std::time::Duration;

use tonic::Status;
use weightcast_protocol::engine_update::{
    FleetAnswer, FleetQuestion, RoutingAnswer, RoutingQuestion,
};
use weightcast_protocol::message::{Answer, Call, ReadFailure, ServerMessage};
use weightcast_protocol::{
    Attempt, CallError, Generation, Nonce, OpSeq, ShardSums, Span, Term, TermProof, Version,
};

use crate::client::connection;
use crate::client::memory::reservations::FillGuard;
use crate::client::mismatch::refusal::FoundRefusal;
use crate::client::reading::evidence::Evidence;
use crate::client::reading::route::ArrivedRead;
use crate::client::reading::staging::Installed;
use crate::client::updated::Transfer;
use crate::error::Error;
use crate::recordings::WrittenRecording;

/// The answer to a call and what the call moved, or how the call failed.
pub(crate) type CallReply = Result<(Answer, Transfer), FailedCall>;

/// A failed call, with what may explain the failure.
pub(crate) struct FailedCall {
    pub(crate) error: CallError,
    /// Evidence of the read, if its digests differed.
    pub(crate) evidence: Option<Box<Evidence>>,
    /// The search for the difference, if the publication was refused.
    pub(crate) refusal: Option<Arc<FoundRefusal>>,
}

/// A call that has not ended.
pub(crate) struct AwaitedCall {
    pub(crate) filling: Option<FillGuard>,
    pub(crate) reply: reply::Sender<CallReply>,
}

impl AwaitedCall {
    /// Ends the call. The fill guard goes first: a caller that has its answer may reuse the memory.
    pub(crate) fn end(self, result: CallReply) {
        drop(self.filling);
        let _ = self.reply.send(result);
    }
}

impl From<CallError> for FailedCall {
    fn from(error: CallError) -> Self {
        Self { error, evidence: None, refusal: None }
    }
}

/// Everything that happens to the session.
pub(crate) enum Event {
    Call {
        call: Call,
        deadline: Span,
        /// Keeps the memory that the call may fill reserved until it has ended.
        filling: Option<FillGuard>,
        /// The call's span, under which its reads are traced.
        span: tracing::Span,
        reply: reply::Sender<CallReply>,
    },
    /// Answered once the session is open, or will never be.
    AwaitOpen {
        reply: reply::Sender<Result<(), CallError>>,
    },
    /// Answered once what is published is sealed by all shards and accepted, or refused.
    AwaitSeal {
        reply: reply::Sender<Result<(), FailedCall>>,
    },
    Close {
        deadline: Span,
        reply: reply::Sender<()>,
    },
    Connected {
        stream: u64,
        result: Result<connection::ServerStream, Status>,
    },
    Frame {
        stream: u64,
        message: ServerMessage,
    },
    StreamEnded {
        stream: u64,
        reason: String,
    },
    Sealed {
        generation: Generation,
        sums: ShardSums,
        note: Vec<u8>,
    },
    /// A sample of the memory was summed.
    Proved {
        generation: Generation,
        nonce: Nonce,
        sum: u64,
    },
    /// Published memory could not be digested: the digesting task failed, which is a bug.
    SealFailed {
        generation: Generation,
        reason: String,
    },
    Probed {
        server: usize,
        told: Term,
        /// The term in which the server acts; `None` if the server is passive.
        acts: Option<TermProof>,
    },
    /// An offload ended with an error.
    OffloadFailed {
        version: Version,
        generation: Generation,
        reason: String,
    },
    /// An offload was published, and the server has let go of it since.
    OffloadOver {
        version: Version,
        generation: Generation,
    },
    /// A seed ended with an error.
    SeedFailed {
        ask: u64,
        reason: String,
    },
    /// Answered once the session is over.
    AwaitEnd {
        reply: reply::Sender<Option<CallError>>,
    },
    /// Answered with where the last minutes of the session were written.
    Record {
        reply: reply::Sender<Result<WrittenRecording, Error>>,
    },
    /// Answered with what the register of the model's fleet says, by the deadline.
    AskFleet {
        model: String,
        question: FleetQuestion,
        deadline: Duration,
        reply: reply::Sender<Result<FleetAnswer, Error>>,
    },
    /// Answered with what the table of routing leases says, by the deadline.
    AskRouting {
        model: String,
        question: RoutingQuestion,
        deadline: Duration,
        reply: reply::Sender<Result<RoutingAnswer, Error>>,
    },
    ReadDone {
        seq: OpSeq,
        attempt: Attempt,
        result: Result<Box<ArrivedRead>, ReadFailure>,
    },
    /// The bytes that were read beside the registered memory have been copied into it.
    Installed {
        seq: OpSeq,
        attempt: Attempt,
        installed: Installed,
    },
}

//! Everything that happens to a session, and how its calls are answered.

use std::sync::{Arc, mpsc as reply};

use tonic::Status;
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

/// What a call came to, with what it moved.
pub(crate) type CallReply = Result<(Answer, Transfer), FailedCall>;

/// How a call failed, with what may tell why.
pub(crate) struct FailedCall {
    pub(crate) error: CallError,
    /// Of the read that the error is about, if it is about one.
    pub(crate) evidence: Option<Box<Evidence>>,
    /// Of what was published, if that was refused.
    pub(crate) refusal: Option<Arc<FoundRefusal>>,
}

/// A call that has not ended.
pub(crate) struct AwaitedCall {
    pub(crate) filling: Option<FillGuard>,
    pub(crate) reply: reply::Sender<CallReply>,
}

impl AwaitedCall {
    /// It has ended: nothing fills the memory any more, and whoever waits is told.
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
    /// It was not digested: the code that does so has failed.
    SealFailed {
        generation: Generation,
        reason: String,
    },
    Probed {
        server: usize,
        told: Term,
        /// The term in which it acts, if it is not passive.
        acts: Option<TermProof>,
    },
    /// An offload came to nothing.
    OffloadFailed {
        version: Version,
        generation: Generation,
        reason: String,
    },
    /// An offload was made, and let go of since.
    OffloadOver {
        version: Version,
        generation: Generation,
    },
    /// A seed came to nothing.
    SeedFailed {
        ask: u64,
        reason: String,
    },
    /// Answered once the session is over.
    AwaitEnd {
        reply: reply::Sender<Option<CallError>>,
    },
    ReadDone {
        seq: OpSeq,
        attempt: Attempt,
        result: Result<Box<ArrivedRead>, ReadFailure>,
    },
    /// What was read beside the registered memory is in it.
    Installed {
        seq: OpSeq,
        attempt: Attempt,
        installed: Installed,
    },
}

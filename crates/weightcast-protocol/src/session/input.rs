//! What happens to a session, as values: what a recording is made of.

use serde::{Deserialize, Serialize};

use crate::message::{Call, ReadFailure, ServerMessage};
use crate::session::Session;
use crate::session::pace::ReadProgress;
use crate::{
    Attempt, CallError, Generation, Nonce, OpSeq, ShardSums, Span, Term, TermProof, Time, Version,
};

/// One thing that happens to a session. Each variant is the input of [`Session`] that has its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "the fields are the arguments")]
pub enum SessionInput {
    /// [`Session::call`].
    Call { call: Call, deadline: Span },
    /// [`Session::close`].
    Close { deadline: Span },
    /// [`Session::handle_connected`].
    Connected,
    /// [`Session::handle_disconnected`].
    Disconnected,
    /// [`Session::handle_message`].
    Message(Box<ServerMessage>),
    /// [`Session::handle_probed`].
    Probed { server: usize, told: Term, acts: Option<TermProof> },
    /// [`Session::handle_refused`].
    Refused { error: CallError },
    /// [`Session::handle_read`].
    Read { seq: OpSeq, attempt: Attempt, result: Result<ShardSums, ReadFailure> },
    /// [`Session::handle_progress`].
    Progress { seq: OpSeq, attempt: Attempt, progress: ReadProgress },
    /// [`Session::handle_installed`].
    Installed { seq: OpSeq, attempt: Attempt },
    /// [`Session::handle_sealed`].
    Sealed { generation: Generation, sums: ShardSums },
    /// [`Session::handle_seal_failed`].
    SealFailed { generation: Generation, reason: String },
    /// [`Session::handle_proved`].
    Proved { generation: Generation, nonce: Nonce, sum: u64 },
    /// [`Session::handle_offload_failed`].
    OffloadFailed { version: Version, generation: Generation, reason: String },
    /// [`Session::handle_offload_over`].
    OffloadOver { version: Version, generation: Generation },
    /// [`Session::handle_seed_failed`].
    SeedFailed { ask: u64 },
    /// [`Session::handle_timeout`].
    Timeout,
}

impl Session {
    /// Lets something happen. What [`Session::call`] returns is for those who call it themselves.
    pub fn take(&mut self, now: Time, input: SessionInput) {
        match input {
            SessionInput::Call { call, deadline } => drop(self.call(now, call, deadline)),
            SessionInput::Close { deadline } => self.close(now, deadline),
            SessionInput::Connected => self.handle_connected(now),
            SessionInput::Disconnected => self.handle_disconnected(now),
            SessionInput::Message(message) => self.handle_message(now, *message),
            SessionInput::Probed { server, told, acts } => {
                self.handle_probed(now, server, told, acts);
            }
            SessionInput::Refused { error } => self.handle_refused(error),
            SessionInput::Read { seq, attempt, result } => {
                self.handle_read(now, seq, attempt, result);
            }
            SessionInput::Progress { seq, attempt, progress } => {
                self.handle_progress(now, seq, attempt, progress);
            }
            SessionInput::Installed { seq, attempt } => self.handle_installed(now, seq, attempt),
            SessionInput::Sealed { generation, sums } => self.handle_sealed(now, generation, sums),
            SessionInput::SealFailed { generation, reason } => {
                self.handle_seal_failed(now, generation, &reason);
            }
            SessionInput::Proved { generation, nonce, sum } => {
                self.handle_proved(now, generation, nonce, sum);
            }
            SessionInput::OffloadFailed { version, generation, reason } => {
                self.handle_offload_failed(now, version, generation, reason);
            }
            SessionInput::OffloadOver { version, generation } => {
                self.handle_offload_over(now, version, generation);
            }
            SessionInput::SeedFailed { ask } => self.handle_seed_failed(now, ask),
            SessionInput::Timeout => self.handle_timeout(now),
        }
    }
}

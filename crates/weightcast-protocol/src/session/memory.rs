//! The shard's memory: what it holds, when it is served, and when it may change (S2, S3).
//!
//! [`ShardMemory::make_mutable`] is the only way to memory that may change. It fences first and
//! moves the generation, so that no reader can take new bytes for old.

use serde::{Deserialize, Serialize};

use super::assigned::{AssignedRead, Staging};
use super::host::{Output, Outputs};
use super::offload::Offload;
use crate::message::{ClientMessage, Holding, Witnesses};
use crate::{
    CallError, ContentDigest, Generation, Nonce, Safeguard, Safeguards, ShardSums, Version,
};

/// The content of the memory, and how it is served.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct ShardMemory {
    safeguards: Safeguards,
    generation: Generation,
    exposed: Exposure,
    held: Option<Version>,
    /// Logical tensors of what was published or assigned last.
    pub(super) catalog: ContentDigest,
    /// `unpublish` was called.
    pub(super) withdrawn: bool,
    seal: Seal,
    /// Set once a server has accepted or refused the content.
    verdict: Option<Result<(), CallError>>,
    /// The read of a call that ran out of time; the next call may continue it.
    left: Option<AssignedRead>,
    pub(super) offload: Offload,
}

/// How much of the memory is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
enum Exposure {
    #[default]
    Nothing,
    /// The part that has been read so far.
    Filling,
    All,
}

/// The digests of the content that was published or committed.
#[derive(Clone, Debug, Serialize, Deserialize)]
enum Seal {
    /// There are no digests.
    None,
    /// The digests are being computed.
    Running(Generation),
    /// The digests were sent. They are sent again after each reconnect, since the server does not
    /// acknowledge each shard's digests.
    Sent(ShardSums),
}

impl ShardMemory {
    pub(super) fn new(safeguards: Safeguards) -> Self {
        Self {
            safeguards,
            generation: Generation(1),
            exposed: Exposure::Nothing,
            held: None,
            catalog: ContentDigest::default(),
            withdrawn: false,
            seal: Seal::None,
            verdict: None,
            left: None,
            offload: Offload::default(),
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.held
    }

    /// Whether a version is held, at this generation.
    pub(super) fn holds_at(&self, generation: Generation) -> bool {
        self.held.is_some() && self.generation == generation
    }

    /// Whether a server has refused the content.
    pub(super) fn refused(&self) -> bool {
        matches!(self.verdict, Some(Err(_)))
    }

    /// Whether the content is accepted, once that is decided. Memory that holds nothing counts as
    /// accepted.
    pub(super) fn verdict(&self) -> Option<Result<(), CallError>> {
        match self.held {
            Some(_) => self.verdict.clone(),
            None => Some(Ok(())),
        }
    }

    /// What the session announces of its content to a server of a newer term.
    pub(super) fn holding(&self) -> Option<Holding> {
        let sums = match self.seal {
            Seal::Sent(sums) => Some(sums),
            Seal::None | Seal::Running(_) => None,
        };
        let (catalog, refused, withdrawn) = (self.catalog, self.refused(), self.withdrawn);
        self.held.map(|version| Holding { version, catalog, sums, refused, withdrawn })
    }
}

/// When the memory is served, and when it may change.
impl ShardMemory {
    /// The memory is served at the present generation from now on.
    pub(super) fn expose(&mut self, outputs: &mut Outputs) {
        if self.exposed != Exposure::All {
            self.exposed = Exposure::All;
            outputs.push_back(Output::Expose(self.generation));
        }
    }

    /// Serves what is read from now on, at the present generation.
    pub(super) fn expose_filling(&mut self, outputs: &mut Outputs) {
        self.exposed = Exposure::Filling;
        outputs.push_back(Output::ExposeFilling(self.generation));
    }

    /// The memory may change from now on: it holds nothing, and no reader can accept its bytes
    /// (S3).
    pub(super) fn make_mutable(&mut self, outputs: &mut Outputs) {
        self.forget_left(outputs);
        self.stop_serving(outputs);
        self.held = None;
        self.seal = Seal::None;
        self.verdict = None;
        self.withdrawn = false;
    }

    /// No reader can accept bytes of the memory any more; its content stays (S3).
    pub(super) fn stop_serving(&mut self, outputs: &mut Outputs) {
        self.offload.stop(outputs);
        if !self.safeguards.on(Safeguard::SourceFence) {
            return;
        }
        if std::mem::take(&mut self.exposed) != Exposure::Nothing {
            outputs.push_back(Output::Fence(self.generation));
        }
        self.generation = self.generation.next();
    }

    /// A call ran out of time. Keeps the read, so that the next call can continue it.
    pub(super) fn leave(&mut self, read: AssignedRead) {
        self.left = Some(read);
    }

    /// Whether this read continues the read that was left. If not, the left read is forgotten.
    pub(super) fn take_up_left(&mut self, read: &AssignedRead, outputs: &mut Outputs) -> bool {
        let goes_on = self.left.take_if(|left| read.goes_on_after(left)).is_some();
        self.forget_left(outputs);
        goes_on
    }

    /// Forgets the read that was left.
    pub(super) fn forget_left(&mut self, outputs: &mut Outputs) {
        if self.left.take().is_some_and(|left| left.staging == Staging::Beside) {
            outputs.push_back(Output::Unstage);
        }
    }
}

/// What the memory holds.
impl ShardMemory {
    /// A publish was answered. New content has to be digested.
    pub(super) fn published(&mut self, version: Version, fresh: bool, outputs: &mut Outputs) {
        self.held = Some(version);
        if fresh {
            self.seal = Seal::Running(self.generation);
            outputs.push_back(Output::Seal(self.generation));
        }
    }

    /// A transfer was committed.
    pub(super) fn committed(&mut self, version: Version, sums: Option<ShardSums>) {
        self.held = Some(version);
        self.seal = sums.map_or(Seal::None, Seal::Sent);
        self.verdict = Some(Ok(()));
    }

    /// Whether the content published at this generation is being digested.
    pub(super) fn is_being_sealed(&self, generation: Generation) -> bool {
        matches!(self.seal, Seal::Running(running) if running == generation)
    }

    /// The published content is digested.
    pub(super) fn sealed(&mut self, sums: ShardSums) {
        self.seal = Seal::Sent(sums);
    }

    /// The message that tells the server the digests.
    pub(super) fn seal_message(&self) -> Option<ClientMessage> {
        let Seal::Sent(sums) = self.seal else { return None };
        Some(ClientMessage::Sealed { generation: self.generation, sums })
    }

    /// The server has accepted the content. It may say so again.
    pub(super) fn accepted(&mut self, generation: Generation) {
        if self.holds_at(generation) {
            self.verdict.get_or_insert(Ok(()));
        }
    }

    /// The server refused the content. The memory stays immutable until `unpublish` is answered.
    /// The server repeats the error with the next call, so that all shards see it at the same call.
    pub(super) fn content_refused(
        &mut self,
        generation: Generation,
        error: CallError,
        witnesses: Box<Witnesses>,
        outputs: &mut Outputs,
    ) {
        if self.exposed == Exposure::All && self.generation == generation {
            self.stop_serving(outputs);
            self.verdict = Some(Err(error));
            outputs.push_back(Output::Refused { witnesses });
        }
    }

    /// The server asks the shard to show its bytes. The runtime sums a sample.
    pub(super) fn challenged(&self, generation: Generation, nonce: Nonce, outputs: &mut Outputs) {
        if self.holds_at(generation) {
            outputs.push_back(Output::Prove { generation, nonce });
        }
    }

    /// The server asks to copy the memory aside. Returns the report, if the copying has failed.
    pub(super) fn asked_to_offload(
        &mut self,
        version: Version,
        generation: Generation,
        outputs: &mut Outputs,
    ) -> Option<ClientMessage> {
        let holds = (self.held, self.generation) == (Some(version), generation);
        self.offload.asked(version, generation, holds, outputs)
    }
}

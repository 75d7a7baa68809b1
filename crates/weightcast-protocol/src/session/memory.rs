//! The shard's memory: when it is served, and when it may change (S2, S3).
//!
//! Every way to "mutable" goes through [`Session::make_mutable`]: it fences first and moves the
//! generation, so that no reader can take new bytes for old.

use super::{Output, Session, SessionState};
use crate::message::{ClientMessage, Witnesses};
use crate::{CallError, Generation, Safeguard, ShardSums, Span, Time, Version};

/// What the memory holds and how it is served.
#[derive(Clone, Debug)]
pub(super) struct ShardMemory {
    generation: Generation,
    exposed: Exposure,
    held: Option<Version>,
    seal: Seal,
    /// The server has accepted the content, or refused it.
    verdict: Option<Result<(), CallError>>,
}

/// How much of the memory is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Exposure {
    #[default]
    Nothing,
    /// What has been read so far.
    Filling,
    All,
}

/// The digests of what was published.
#[derive(Clone, Debug)]
enum Seal {
    /// Nothing was published.
    None,
    /// They are being computed.
    Running(Generation),
    /// They were sent; again after each reconnect, since nothing acknowledges them.
    Sent(ShardSums),
}

impl ShardMemory {
    pub(super) fn new() -> Self {
        Self {
            generation: Generation(1),
            exposed: Exposure::Nothing,
            held: None,
            seal: Seal::None,
            verdict: None,
        }
    }

    pub(super) fn generation(&self) -> Generation {
        self.generation
    }

    pub(super) fn version(&self) -> Option<Version> {
        self.held
    }

    /// Whether all of the memory is served.
    pub(super) fn exposed(&self) -> bool {
        self.exposed == Exposure::All
    }

    /// Whether a server has refused the content.
    pub(super) fn refused(&self) -> bool {
        matches!(self.verdict, Some(Err(_)))
    }

    /// Digests of what is held, once they are known.
    pub(super) fn sums(&self) -> Option<ShardSums> {
        match self.seal {
            Seal::Sent(sums) => Some(sums),
            Seal::None | Seal::Running(_) => None,
        }
    }

    pub(super) fn state(&self) -> SessionState {
        match self.held {
            Some(_) if self.refused() => SessionState::Refused,
            Some(_) => SessionState::Holding,
            None => SessionState::Empty,
        }
    }
}

impl Session {
    /// The memory is served at the present generation from now on.
    pub(super) fn expose(&mut self) {
        if self.memory.exposed != Exposure::All {
            self.memory.exposed = Exposure::All;
            self.outputs.push_back(Output::Expose(self.memory.generation));
        }
    }

    /// What is read from now on is served at the present generation, as far as it has come.
    pub(super) fn expose_filling(&mut self) {
        self.memory.exposed = Exposure::Filling;
        self.outputs.push_back(Output::ExposeFilling(self.memory.generation));
    }

    /// The memory may change from now on: it holds nothing and nobody can read it (S3).
    pub(super) fn make_mutable(&mut self) {
        let left = self.left.take();
        self.discard(left);
        self.stop_serving();
        self.memory.held = None;
        self.memory.seal = Seal::None;
        self.memory.verdict = None;
        self.withdrawn = false;
    }

    /// Nobody can read the memory any more; its content stays (S3).
    pub(super) fn stop_serving(&mut self) {
        self.stop_offload();
        if !self.config.safeguards.on(Safeguard::SourceFence) {
            return;
        }
        if std::mem::take(&mut self.memory.exposed) != Exposure::Nothing {
            self.outputs.push_back(Output::Fence(self.memory.generation));
        }
        self.memory.generation = self.memory.generation.next();
    }

    /// A publish was answered.
    pub(super) fn published(&mut self, version: Version, fresh: bool) {
        self.memory.held = Some(version);
        if fresh {
            self.memory.seal = Seal::Running(self.memory.generation);
            self.outputs.push_back(Output::Seal(self.memory.generation));
        }
    }

    /// A transfer was committed.
    pub(super) fn committed(&mut self, version: Version, sums: Option<ShardSums>) {
        self.memory.held = Some(version);
        self.memory.seal = sums.map_or(Seal::None, Seal::Sent);
        self.memory.verdict = Some(Ok(()));
    }

    /// Whether what is held is accepted, once that is decided: all shards have digested it, and it
    /// is what the version stands for. Nothing to decide is as good.
    pub fn verdict(&self) -> Option<Result<(), CallError>> {
        match self.memory.held {
            Some(_) => self.memory.verdict.clone(),
            None => Some(Ok(())),
        }
    }

    /// The published memory has been digested. Void if it was published anew meanwhile.
    pub fn handle_sealed(&mut self, now: Time, generation: Generation, sums: ShardSums) {
        self.tick(now);
        if matches!(self.memory.seal, Seal::Running(running) if running == generation) {
            self.memory.seal = Seal::Sent(sums);
            self.send_seal();
        }
    }

    /// The published memory can't be digested, which is a bug of whoever does it: as nobody could
    /// ever read it, nor give it up, the shard leaves its group.
    pub fn handle_seal_failed(&mut self, now: Time, generation: Generation, reason: &str) {
        self.tick(now);
        if matches!(self.memory.seal, Seal::Running(running) if running == generation) {
            let open = &self.config.open;
            let reason = format!("shard {} can't digest what it published: {reason}", open.shard);
            let error = CallError::GroupBroken { replica: open.replica.clone(), reason };
            self.send(ClientMessage::Close { deadline: Span(0) });
            self.fail(error);
        }
    }

    pub(super) fn send_seal(&mut self) {
        if let Seal::Sent(sums) = self.memory.seal {
            let generation = self.memory.generation;
            self.send(ClientMessage::Sealed { generation, sums });
        }
    }

    /// The server has accepted what is held. It may say so again.
    pub(super) fn accept_content(&mut self, generation: Generation) {
        if self.memory.held.is_some() && self.memory.generation == generation {
            self.memory.verdict.get_or_insert(Ok(()));
        }
    }

    /// The server refused the content. The memory stays immutable until `unpublish` says so; the
    /// error comes back from the server with the next call, for all shards at the same place.
    pub(super) fn refuse_content(
        &mut self,
        generation: Generation,
        error: CallError,
        witnesses: Box<Witnesses>,
    ) {
        if self.memory.exposed == Exposure::All && self.memory.generation == generation {
            self.stop_serving();
            self.memory.verdict = Some(Err(error));
            self.outputs.push_back(Output::Refused { witnesses });
        }
    }
}

//! The shard's memory: when it is served, and when it may change (S2, S3).
//!
//! Every way to "mutable" goes through [`Session::make_mutable`]: it fences first and moves the
//! generation, so that no reader can take new bytes for old.

use super::{Output, Session, SessionState};
use crate::message::{ClientMessage, Witnesses};
use crate::{CallError, Generation, Safeguard, ShardSums, Span, Time, Version};

/// What the memory holds and how it is served.
#[derive(Clone, Debug)]
pub(super) struct Copy {
    generation: Generation,
    exposed: Exposed,
    held: Option<Version>,
    seal: Seal,
    /// The server has accepted the content, or refused it.
    verdict: Option<Result<(), CallError>>,
}

/// How much of the memory is served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Exposed {
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

impl Copy {
    pub(super) fn new() -> Self {
        Self {
            generation: Generation(1),
            exposed: Exposed::Nothing,
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
        self.exposed == Exposed::All
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
            Some(_) if self.refused() => SessionState::Fenced,
            Some(_) => SessionState::Holding,
            None => SessionState::Empty,
        }
    }
}

impl Session {
    /// The memory is served at the present generation from now on.
    pub(super) fn expose(&mut self) {
        if self.copy.exposed != Exposed::All {
            self.copy.exposed = Exposed::All;
            self.outputs.push_back(Output::Expose(self.copy.generation));
        }
    }

    /// What is read from now on is served at the present generation, as far as it has come.
    pub(super) fn expose_filling(&mut self) {
        self.copy.exposed = Exposed::Filling;
        self.outputs.push_back(Output::ExposeFilling(self.copy.generation));
    }

    /// The memory may change from now on: it holds nothing and nobody can read it (S3).
    pub(super) fn make_mutable(&mut self) {
        let left = self.left.take();
        self.discard(left);
        self.stop_serving();
        self.copy.held = None;
        self.copy.seal = Seal::None;
        self.copy.verdict = None;
        self.withdrawn = false;
    }

    /// Nobody can read the memory any more; its content stays (S3).
    pub(super) fn stop_serving(&mut self) {
        self.stop_offload();
        if !self.config.safeguards.on(Safeguard::SourceFence) {
            return;
        }
        if std::mem::take(&mut self.copy.exposed) != Exposed::Nothing {
            self.outputs.push_back(Output::Fence(self.copy.generation));
        }
        self.copy.generation = self.copy.generation.next();
    }

    /// A publish was answered.
    pub(super) fn published(&mut self, version: Version, fresh: bool) {
        self.copy.held = Some(version);
        if fresh {
            self.copy.seal = Seal::Running(self.copy.generation);
            self.outputs.push_back(Output::Seal(self.copy.generation));
        }
    }

    /// A transfer was committed.
    pub(super) fn committed(&mut self, version: Version, sums: Option<ShardSums>) {
        self.copy.held = Some(version);
        self.copy.seal = sums.map_or(Seal::None, Seal::Sent);
        self.copy.verdict = Some(Ok(()));
    }

    /// Whether what is held is accepted, once that is decided: all shards have digested it, and it
    /// is what the version stands for. Nothing to decide is as good.
    pub fn verdict(&self) -> Option<Result<(), CallError>> {
        match self.copy.held {
            Some(_) => self.copy.verdict.clone(),
            None => Some(Ok(())),
        }
    }

    /// The published memory has been digested. Void if it was published anew meanwhile.
    pub fn handle_sealed(&mut self, now: Time, generation: Generation, sums: ShardSums) {
        self.tick(now);
        if matches!(self.copy.seal, Seal::Running(running) if running == generation) {
            self.copy.seal = Seal::Sent(sums);
            self.send_seal();
        }
    }

    /// The published memory can't be digested, which is a bug of whoever does it: as nobody could
    /// ever read it, nor give it up, the shard leaves its group.
    pub fn handle_seal_failed(&mut self, now: Time, generation: Generation, reason: &str) {
        self.tick(now);
        if matches!(self.copy.seal, Seal::Running(running) if running == generation) {
            let open = &self.config.open;
            let reason = format!("shard {} can't digest what it published: {reason}", open.shard);
            let error = CallError::GroupBroken { replica: open.replica.clone(), reason };
            self.send(ClientMessage::Close { deadline: Span(0) });
            self.fail(error);
        }
    }

    pub(super) fn send_seal(&mut self) {
        if let Seal::Sent(sums) = self.copy.seal {
            let generation = self.copy.generation;
            self.send(ClientMessage::Sealed { generation, sums });
        }
    }

    /// The server has accepted what is held. It may say so again.
    pub(super) fn accept_copy(&mut self, generation: Generation) {
        if self.copy.held.is_some() && self.copy.generation == generation {
            self.copy.verdict.get_or_insert(Ok(()));
        }
    }

    /// The server refused the content. The memory stays immutable until `unpublish` says so; the
    /// error comes back from the server with the next call, for all shards at the same place.
    pub(super) fn refuse_copy(
        &mut self,
        generation: Generation,
        error: CallError,
        witnesses: Box<Witnesses>,
    ) {
        if self.copy.exposed == Exposed::All && self.copy.generation == generation {
            self.stop_serving();
            self.copy.verdict = Some(Err(error));
            self.outputs.push_back(Output::Refused { witnesses });
        }
    }
}

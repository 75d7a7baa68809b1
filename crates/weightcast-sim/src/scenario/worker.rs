//! One shard's process.

use std::collections::{BTreeSet, VecDeque};

use weightcast_protocol::session::Session;
use weightcast_protocol::{Attempt, ExportId, OpSeq, Span, Time, Version};
use weightcast_testkit::VirtualHost;

use super::setting::Verb;

/// One life of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct WorkerLife {
    pub(super) worker: usize,
    pub(super) life: u32,
}

/// A worker, alive or not.
#[derive(Debug, Default)]
pub(super) struct Worker {
    pub(super) life: u32,
    /// None while there is no process.
    pub(super) session: Option<Session>,
    /// What the session has asked for.
    pub(super) host: VirtualHost<FlowRead>,
    pub(super) export: ExportId,
    /// How many units of the memory are filled: the first ones.
    pub(super) filled: u32,
    /// Readers that wait here for units still to come.
    pub(super) followers: BTreeSet<usize>,
    pub(super) timer_at: Option<Time>,
    pub(super) todo: VecDeque<Task>,
    pub(super) running: Option<Running>,
    /// The number of the request that the seed was asked for under, if this is a seed.
    pub(super) ask: Option<u64>,
}

/// Something that a worker is to do.
#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) what: TaskKind,
    pub(super) measured: bool,
    /// When the first call of the task was made.
    pub(super) began: Option<Time>,
    /// How long the calls of the task have taken so far.
    pub(super) stalled: Span,
}

/// What a task does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TaskKind {
    Register,
    Publish(u64),
    Unpublish,
    Replicate,
    /// Polls until it holds the version.
    Update {
        version: u64,
        every: Span,
    },
}

/// A task whose call waits for its answer.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub(super) task: Task,
    pub(super) since: Time,
    /// The call unpublishes the version held before, so that the task can publish.
    pub(super) clears: bool,
}

/// A read that runs.
#[derive(Clone, Debug)]
pub(super) struct FlowRead {
    pub(super) seq: OpSeq,
    pub(super) attempt: Attempt,
    pub(super) version: Version,
    /// The worker that is read; its process may be gone.
    pub(super) source: usize,
    /// How many units were here before the read began: the first ones.
    pub(super) kept: u32,
    /// The source is gone or does not answer.
    pub(super) lost: bool,
}

impl TaskKind {
    /// The task of a verb; none for `Kill`, which is no call.
    pub(super) fn of(verb: Verb, version: Option<u64>, every_s: Option<f64>) -> Option<Self> {
        let version = version.unwrap_or_default();
        match verb {
            Verb::Publish => Some(Self::Publish(version)),
            Verb::Unpublish => Some(Self::Unpublish),
            Verb::Replicate | Verb::Join => Some(Self::Replicate),
            Verb::Update => Some(Self::Update { version, every: seconds(every_s.unwrap_or(1.0)) }),
            Verb::Kill => None,
        }
    }
}

impl Task {
    pub(super) fn new(what: TaskKind, measured: bool) -> Self {
        Self { what, measured, began: None, stalled: Span(0) }
    }
}

impl Worker {
    /// Tasks that have not ended.
    pub(super) fn tasks(&self) -> usize {
        self.todo.len() + usize::from(self.running.is_some())
    }
}

/// Seconds as a span.
pub(super) fn seconds(seconds: f64) -> Span {
    Span((seconds * 1e9).round() as u64)
}

/// Bytes of a unit of progress, as the transports cut a shard: into 256 units, within bounds
/// (`weightcast-transport/src/base/limits.rs`).
pub(super) fn unit_bytes(shard_bytes: u64) -> u64 {
    (shard_bytes / 256).clamp(256 << 10, 16 << 20)
}

//! Stages of calls, for traces. Nothing is decided by them.

use std::collections::{BTreeMap, VecDeque};

use crate::{Incarnation, OpSeq, TraceId, Version};

/// What a group's call is waiting for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallStage {
    /// The group's other shards, which have not called.
    Group,
    /// A version, and a source of it.
    Choose,
    /// Readers of the copy that the group gives up.
    Drain,
    /// The shards, which read.
    Read,
    /// The shards, which copy a staged version into place.
    Install,
    /// The verdict on the bytes that were read.
    Commit,
    /// A version, a condition, or digests.
    Wait,
    /// Nothing: the call has its answer, with this outcome ([`Answer::outcome`](crate::message::Answer::outcome)
    /// or [`CallError::name`](crate::CallError::name)), or `lost`, if the server forgot the group.
    Ended(&'static str),
}

/// A call that has come to another stage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StageChange {
    /// The call's name in traces.
    pub trace: TraceId,
    /// The new stage.
    pub stage: CallStage,
    /// The call and its group. `None` at the end.
    pub of: Option<StagedCall>,
}

/// A call, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StagedCall {
    /// The model's name.
    pub model: String,
    /// The replica's name.
    pub replica: String,
    /// The call, as a person would write it.
    pub call: String,
    /// The version that a transfer brings, once it is chosen.
    pub version: Option<Version>,
    /// The replicas that the group reads from.
    pub sources: Vec<String>,
}

/// The stage that was last told of each group with a pending call, and the changes that the runtime has
/// not taken.
#[derive(Clone, Default)]
pub(in crate::server) struct Stages {
    pub(in crate::server) told: BTreeMap<Incarnation, (OpSeq, TraceId, CallStage)>,
    pub(in crate::server) changes: VecDeque<StageChange>,
}

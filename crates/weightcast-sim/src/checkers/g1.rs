//! G1: all shards of a group get the same answer to the same call.

use std::collections::BTreeMap;

use weightcast_protocol::message::Answer;
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct SameAnswer {
    answers: BTreeMap<(Incarnation, OpSeq), (u32, Result<Answer, CallError>)>,
}

impl Checker for SameAnswer {
    fn name(&self) -> &'static str {
        "G1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Done { who, seq, result, .. } = fact else { return None };
        if leaves_the_group(result) {
            return None;
        }
        let place = (who.incarnation?, *seq);
        let own = || (who.shard, (*result).clone());
        let (shard, first) = self.answers.entry(place).or_insert_with(own);
        (first != *result).then(|| {
            format!("call {seq}: shard {shard} got {first:?}, shard {} {result:?}", who.shard)
        })
    }
}

/// How a call fails whose handle was closed, or whose session was refused until its deadline.
const LEAVING: [&str; 5] = [
    "closed during the call",
    "has to wait until the clients",
    "is open in another process",
    "was told to go",
    "is not wanted any more",
];

/// Errors with which a shard leaves its group: nobody can promise that all others leave as well.
pub(super) fn leaves_the_group(result: &Result<Answer, CallError>) -> bool {
    if let Err(CallError::Misuse { detail }) = result
        && LEAVING.iter().any(|why| detail.contains(why))
    {
        return true;
    }
    matches!(
        result,
        Err(CallError::GroupBroken { .. }
            | CallError::GroupDiverged { .. }
            | CallError::ServerUnreachable { .. }
            | CallError::InDoubt { .. })
    )
}

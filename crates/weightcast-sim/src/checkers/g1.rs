//! G1: all shards of a group get the same answer to the same call.

mod called;
mod verdict;

use std::collections::BTreeMap;

use weightcast_protocol::message::Answer;
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

pub(super) use called::AllCalled;
pub(super) use verdict::OneVerdict;

#[derive(Default)]
pub(super) struct SameAnswer {
    answers: BTreeMap<(Incarnation, OpSeq), (u32, Result<Answer, CallError>)>,
}

impl Checker for SameAnswer {
    fn name(&self) -> &'static str {
        "G1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Done { who, seq, result, leaves, .. } = fact else { return None };
        // A shard that leaves its group fails its own call. Its siblings may stay, or may have been
        // answered before, so the answers may differ.
        if *leaves && result.as_ref().is_err_and(parts) {
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

/// Whether an error says that a shard parts from its group, because the group is at its end or out
/// of reach. Any other error is an answer, whatever becomes of the shard.
fn parts(error: &CallError) -> bool {
    use CallError::{GroupBroken, GroupDiverged, InDoubt, Misuse, ServerUnreachable};
    matches!(
        error,
        GroupBroken { .. }
            | GroupDiverged { .. }
            | InDoubt { .. }
            | Misuse { .. }
            | ServerUnreachable { .. }
    )
}

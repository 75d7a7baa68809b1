//! G5: a call that is made again is answered as it was, and nothing is done again.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

type Result = std::result::Result<Answer, CallError>;

/// What a server has said of each call, to whichever shard.
#[derive(Default)]
pub(super) struct OneAnswer {
    said: BTreeMap<(Incarnation, OpSeq), Result>,
}

impl Checker for OneAnswer {
    fn name(&self) -> &'static str {
        "G5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Said { who, message: ServerMessage::Answered { seq, result }, .. } = fact else {
            return None;
        };
        // Not what came of the call: the group is at its end.
        if matches!(result, Err(CallError::GroupBroken { .. } | CallError::GroupDiverged { .. })) {
            return None;
        }
        let before = self.said.entry((who.incarnation?, *seq)).or_insert_with(|| result.clone());
        (before != result).then(|| {
            format!("call {seq} was answered {before:?}, and shard {} {result:?}", who.shard)
        })
    }
}

//! G5: a call that is made again is answered as it was, and nothing is done again.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

type Result = std::result::Result<Answer, CallError>;

/// What a server has said of each call, to whichever shard.
#[derive(Default)]
pub(super) struct OneAnswer {
    said: BTreeMap<(Incarnation, OpSeq), Result>,
    /// Groups that were told that they are at their end.
    over: BTreeSet<Incarnation>,
}

impl OneAnswer {
    fn answered(
        &mut self,
        group: Incarnation,
        shard: u32,
        seq: OpSeq,
        result: &Result,
    ) -> Option<String> {
        let before = self.said.get(&(group, seq));
        let ends = is_end(result);
        // Only what was not answered yet, or not well, is answered with the end of the group. One that has
        // failed is, if the shard now calls something else, or comes back.
        let wrong = match before {
            Some(before) if ends => before.is_ok(),
            Some(before) => before != result && !is_end(before) || is_end(before) && result.is_ok(),
            None => self.over.contains(&group) && result.is_ok(),
        };
        let wrong = wrong
            .then(|| format!("call {seq} was answered {before:?}, and shard {shard} {result:?}"));
        self.over.extend(ends.then_some(group));
        self.said.entry((group, seq)).or_insert_with(|| result.clone());
        wrong
    }
}

/// Not what came of a call: the group is at its end.
fn is_end(result: &Result) -> bool {
    matches!(result, Err(CallError::GroupBroken { .. } | CallError::GroupDiverged { .. }))
}

impl Checker for OneAnswer {
    fn name(&self) -> &'static str {
        "G5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Said { who, message, .. } = fact else { return None };
        let group = who.incarnation?;
        match message {
            ServerMessage::Answered { seq, result } => {
                self.answered(group, who.shard, *seq, result)
            }
            ServerMessage::Broken { .. } => {
                self.over.insert(group);
                None
            }
            _ => None,
        }
    }
}

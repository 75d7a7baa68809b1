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
        let Fact::Done { who, seq, result, leaves, .. } = fact else { return None };
        // A shard that leaves its group fails what it was calling: nobody can promise that all
        // others leave as well, or have not been answered before.
        if *leaves && result.is_err() {
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

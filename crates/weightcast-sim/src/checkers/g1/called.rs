//! G1: a good answer needs that every shard of the group has made the call. So once a shard has
//! left, no call that it has not made ends well at another shard.

use std::collections::BTreeMap;

use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::{Incarnation, OpSeq, Time};

use crate::checkers::{Checker, Fact};

#[derive(Default)]
pub(in crate::checkers) struct AllCalled {
    /// The last call of each shard that a server has heard.
    called: BTreeMap<(Incarnation, u32), OpSeq>,
}

impl Checker for AllCalled {
    fn name(&self) -> &'static str {
        "G1"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, .. }, .. } => {
                let called = self.called.entry((who.incarnation?, who.shard)).or_insert(*seq);
                *called = (*called).max(*seq);
                None
            }
            Fact::Done { who, seq, result: Ok(_), .. } => {
                let group = who.incarnation?;
                let has = |shard: &u32| self.called.get(&(group, *shard)).is_some_and(|c| c >= seq);
                let missing = (0..who.num_shards).find(|shard| !has(shard))?;
                let shard = who.shard;
                Some(format!(
                    "call {seq} ended well at shard {shard}, shard {missing} has not made it"
                ))
            }
            _ => None,
        }
    }
}

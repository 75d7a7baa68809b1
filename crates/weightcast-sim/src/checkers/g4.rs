//! G4: a shard returns Ok from a transfer only if all shards of its group had read everything.

use std::collections::BTreeSet;

use weightcast_protocol::message::{Answer, ClientMessage};
use weightcast_protocol::{Incarnation, OpSeq, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct AllOrNone {
    prepared: BTreeSet<(Incarnation, OpSeq, u32)>,
}

impl Checker for AllOrNone {
    fn name(&self) -> &'static str {
        "G4"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Prepared { seq, .. }, .. } => {
                self.prepared.insert((who.incarnation?, *seq, who.shard));
                None
            }
            Fact::Done { who, seq, result: Ok(Answer::Committed { .. }), .. } => {
                let incarnation = who.incarnation?;
                let unread = |shard: &u32| !self.prepared.contains(&(incarnation, *seq, *shard));
                (0..who.num_shards).find(unread).map(|shard| {
                    format!("shard {} returned Ok, shard {shard} has not read", who.shard)
                })
            }
            _ => None,
        }
    }
}

//! L1: every call ends by its deadline, or within the second after it that the session waits; and one
//! that ends because its deadline has passed does not end before.

use std::collections::BTreeMap;

use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct InTime {
    /// The earliest deadline that a shard has told a server of.
    until: BTreeMap<(Incarnation, OpSeq), Time>,
}

impl Checker for InTime {
    fn name(&self) -> &'static str {
        "L1"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, deadline, .. }, .. } => {
                let until = self.until.entry((who.incarnation?, *seq)).or_insert(now + *deadline);
                *until = (*until).min(now + *deadline);
                None
            }
            Fact::Done { who, seq, due: Some(due), .. } if now > *due => {
                let late = (now - *due).0 / 1_000_000;
                Some(format!("call {seq} of shard {} ended {late} ms late", who.shard))
            }
            Fact::Done { who, seq, result: Err(CallError::Timeout { .. }), .. } => {
                let until = *self.until.get(&(who.incarnation?, *seq))?;
                let early = (until - now).0 / 1_000_000;
                (now < until).then(|| {
                    format!("call {seq} of shard {} ran out of time {early} ms early", who.shard)
                })
            }
            _ => None,
        }
    }
}

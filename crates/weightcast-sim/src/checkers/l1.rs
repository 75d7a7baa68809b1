//! L1: every call ends by its deadline, or within the second after it that the session waits; and one
//! that ends because its deadline has passed does not end before. When all is well again, no call runs out
//! of time but one that waits: for what it is to wait for, for a version, or for its turn to read it.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct InTime {
    /// The earliest deadline that a shard has told a server of.
    until: BTreeMap<(Incarnation, OpSeq), Time>,
    /// When each call began, and whether it needs nothing that may not be there.
    began: BTreeMap<(Incarnation, OpSeq), (Time, bool)>,
    /// Since when all must be well.
    settled: Option<Time>,
}

impl InTime {
    /// Whether a call that ran out of time began when all was well, and waited for what must come then.
    fn in_vain(&self, place: (Incarnation, OpSeq), waiting_for: &str) -> bool {
        let began = self.began.get(&place).zip(self.settled);
        began.is_some_and(|((began, prompt), settled)| {
            *began >= settled && (*prompt || waiting_for.ends_with("to call"))
        })
    }
}

/// Whether a call waits for nobody but its group, its readers, its digests and its copy's offload.
fn is_prompt(call: &Call) -> bool {
    use Call::{List, Publish, Register, Unpublish, Unregister};
    matches!(call, List | Publish { .. } | Register { .. } | Unpublish | Unregister)
}

impl Checker for InTime {
    fn name(&self) -> &'static str {
        "L1"
    }

    fn observe(&mut self, now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Looked { settled: Some(_), .. } => {
                self.settled.get_or_insert(now);
                None
            }
            Fact::Heard { who, message: ClientMessage::Call { seq, deadline, call }, .. } => {
                self.began.entry((who.incarnation?, *seq)).or_insert((now, is_prompt(call)));
                let until = self.until.entry((who.incarnation?, *seq)).or_insert(now + *deadline);
                *until = (*until).min(now + *deadline);
                None
            }
            Fact::Done { who, seq, due: Some(due), .. } if now > *due => {
                let late = (now - *due).0 / 1_000_000;
                Some(format!("call {seq} of shard {} ended {late} ms late", who.shard))
            }
            Fact::Done {
                who, seq, result: Err(CallError::Timeout { waiting_for, .. }), ..
            } => {
                if self.in_vain((who.incarnation?, *seq), waiting_for) {
                    let shard = who.shard;
                    return Some(format!(
                        "call {seq} of shard {shard} waited in vain: {waiting_for}"
                    ));
                }
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

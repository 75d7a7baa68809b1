//! L1: every call ends by its deadline, or within the second after it that the session waits. A
//! call that times out does not end before its deadline. When all is well again, only calls that
//! wait may time out: for a condition, for a version, or for their turn to read it. A call may also
//! time out waiting for a shard of its group, if its deadline is shorter than the shards are apart.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Span, Time};

use super::{Checker, Fact};

pub(super) struct InTime {
    /// The longest time between the first and the last shard of a call: two pauses. A shard pauses
    /// after an answer, and after a call that ends at each shard by itself.
    apart: Span,
    /// The earliest deadline that a shard has told a server of.
    until: BTreeMap<(Incarnation, OpSeq), Time>,
    /// When a server first heard each call, and whether the call is prompt ([`is_prompt`]).
    began: BTreeMap<(Incarnation, OpSeq), (Time, bool)>,
    /// Since when all must be well.
    settled: Option<Time>,
}

impl InTime {
    pub(super) fn new(longest_pause: Span) -> Self {
        let apart = longest_pause.scaled(2, 1);
        Self { apart, until: BTreeMap::new(), began: BTreeMap::new(), settled: None }
    }

    /// Whether a call that timed out began when all was well, and waited for something that must
    /// come then.
    fn in_vain(&self, place: (Incarnation, OpSeq), waiting_for: &str) -> bool {
        let began = self.began.get(&place).zip(self.settled);
        began.is_some_and(|((began, prompt), settled)| {
            let until = self.until.get(&place).copied().unwrap_or_default();
            let vain = match waiting_for.ends_with("to call") {
                true => until > *began + self.apart,
                false => *prompt,
            };
            *began >= settled && vain
        })
    }
}

/// Whether a call waits only for its group, its readers, its digests and the offload of its copy.
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

#[cfg(test)]
mod tests {
    use weightcast_protocol::Term;

    use super::super::{ActingTerms, Who};
    use super::*;

    const BEGAN: Time = Time(100);

    /// Whether the checker complains about a call that began at `BEGAN` and timed out.
    fn in_vain(settled: bool, call: Call, deadline: u64, waiting_for: &str) -> bool {
        let mut checker = InTime::new(Span(10));
        let who =
            Who { incarnation: Some(Incarnation::default()), process: 0, shard: 0, num_shards: 2 };
        if settled {
            let fact = Fact::Looked {
                settled: Some(ActingTerms { acting: &[], sessions: &[] }),
                disagreements: &[],
            };
            assert_eq!(checker.observe(Time(1), &fact), None);
        }
        let (seq, deadline) = (OpSeq(1), Span(deadline));
        let message = ClientMessage::Call { seq, deadline, call };
        checker.observe(BEGAN, &Fact::Heard { who, term: Term(7), message: &message });
        let waiting_for = waiting_for.to_owned();
        let (call, detail) = ("call".to_owned(), String::new());
        let result = Err(CallError::Timeout { call, waiting_for, detail });
        let (foreign, due, term, leaves) = (None, None, None, false);
        let done = Fact::Done { who, seq, result: &result, foreign, due, term, leaves };
        checker.observe(BEGAN + deadline, &done).is_some()
    }

    #[test]
    fn a_deadline_shorter_than_two_pauses_may_pass_before_the_last_shard_calls() {
        for (settled, call, deadline, waiting_for, expected) in [
            (true, Call::Unpublish, 20, "shard 1 of replica r to call", false),
            (true, Call::Unpublish, 21, "shard 1 of replica r to call", true),
            (false, Call::Unpublish, 21, "shard 1 of replica r to call", false),
            (true, Call::Unpublish, 20, "readers of replica r", true),
            (true, update(), 21, "shard 1 of replica r to call", true),
            (true, update(), 21, "a free source of version 1", false),
        ] {
            assert_eq!(in_vain(settled, call, deadline, waiting_for), expected, "{waiting_for}");
        }
    }

    fn update() -> Call {
        Call::Replicate { selector: weightcast_protocol::Selector::Latest }
    }
}

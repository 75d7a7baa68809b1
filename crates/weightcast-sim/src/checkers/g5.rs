//! G5: a call that is made again gets the same answer, and has no second effect.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::{CallError, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

type Result = std::result::Result<Answer, CallError>;

/// The first answer that a server gave to each call, whichever shard got it.
#[derive(Default)]
pub(super) struct OneAnswer {
    said: BTreeMap<(Incarnation, OpSeq), Result>,
    /// Groups that were told that they are at their end.
    over: BTreeSet<Incarnation>,
    /// Groups of earlier terms that have come over to this one.
    here: BTreeSet<Incarnation>,
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
        // The end of the group is the answer only to a call that was not answered yet, or not well.
        // A call that failed may get it when the shard then makes another call, or comes back.
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

/// Whether a result says only that the group is at its end.
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
            ServerMessage::Recovered => {
                self.here.insert(group);
                None
            }
            // The group's time to come over has passed. If the group has not heard of that, it may
            // still come.
            ServerMessage::Opened { ticket, .. } if ticket.proof.term != group.term => {
                if !self.here.contains(&group) {
                    self.over.remove(&group);
                }
                None
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Who;
    use super::*;
    use weightcast_protocol::{Epoch, Span, Term, TermProof, Ticket};

    const TERM: Term = Term(7);

    fn says(checker: &mut OneAnswer, founded: Term, message: &ServerMessage) -> bool {
        let incarnation = Some(Incarnation { term: founded, number: 1 });
        let who = Who { incarnation, process: 0, shard: 0, num_shards: 1 };
        checker.observe(Time(0), &Fact::Said { who, term: TERM, message }).is_none()
    }

    #[test]
    fn only_a_group_that_has_not_come_over_yet_may_come_after_its_end() {
        for (founded, came_over, comes, right) in [
            (Term(3), false, true, true),
            (Term(3), false, false, false),
            (Term(3), true, true, false),
            (TERM, false, true, false),
        ] {
            let mut checker = OneAnswer::default();
            let error = CallError::Misuse { detail: "its lease ran out".into() };
            if came_over {
                assert!(says(&mut checker, founded, &ServerMessage::Recovered));
            }
            assert!(says(&mut checker, founded, &ServerMessage::Broken { error }));
            let proof = TermProof { term: TERM, ..TermProof::default() };
            let incarnation = Incarnation { term: founded, number: 1 };
            let (epoch, held, mac) = (Epoch(0), None, Default::default());
            let ticket = Ticket { proof, incarnation, epoch, held, mac };
            if comes {
                let opened = ServerMessage::Opened { ticket, lease: Span(1) };
                assert!(says(&mut checker, founded, &opened));
            }
            let answered =
                ServerMessage::Answered { seq: OpSeq(1), result: Ok(Answer::Unpublished) };
            assert_eq!(says(&mut checker, founded, &answered), right, "{founded:?}, {came_over}");
        }
    }
}

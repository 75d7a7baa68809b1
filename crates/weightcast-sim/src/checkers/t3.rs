//! T3: terms only grow at a session, and a group works in one term: all good answers to one call
//! come from one term.

use std::collections::BTreeMap;

use weightcast_protocol::{Incarnation, OpSeq, Term, Time};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct OneTerm {
    answered: BTreeMap<(Incarnation, OpSeq), (u32, Term)>,
}

impl Checker for OneTerm {
    fn name(&self) -> &'static str {
        "T3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Took { before, after, .. } => {
                let (before, after) = (before.term?, after.term?);
                (after < before).then(|| format!("a session went from term {before} to {after}"))
            }
            Fact::Done { who, seq, result: Ok(_), term, .. } => {
                let place = (who.incarnation?, *seq);
                let Some(term) = *term else {
                    return Some(format!(
                        "call {seq} of shard {} ended well in no term",
                        who.shard
                    ));
                };
                let own = (who.shard, term);
                let (shard, first) = *self.answered.entry(place).or_insert(own);
                (first != own.1).then(|| {
                    format!(
                        "call {seq}: shard {shard} had an answer in term {first}, shard {} in {}",
                        own.0, own.1
                    )
                })
            }
            _ => None,
        }
    }
}

//! D8: what several shards of a host hold is read from another host once, in a call in which nobody fails.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Answer, ServerMessage};
use weightcast_protocol::{Attempt, Incarnation, OpSeq, Term, Time};

use super::{Checker, Fact, Who};

/// Groups whose shards hold the same, all on one host.
#[derive(Default)]
pub(super) struct EnteredOnce {
    calls: BTreeMap<Incarnation, EnteringCall>,
    /// Shards that take from no sibling until they register anew.
    alone: BTreeSet<(Incarnation, u32)>,
}

/// A group's call that brings a version in.
struct EnteringCall {
    seq: OpSeq,
    term: Term,
    /// A source or a sibling failed.
    failed: bool,
    /// How often each chunk was read from another host.
    entered: BTreeMap<u32, u32>,
}

impl EnteredOnce {
    /// A group is told to read, with this assignment.
    fn assigned(&mut self, group: Incarnation, term: Term, seq: OpSeq, attempt: Attempt) {
        let new = || EnteringCall { seq, term, failed: false, entered: BTreeMap::new() };
        let call = self.calls.entry(group).or_insert_with(new);
        if call.seq != seq {
            *call = new();
        }
        // A call that is made again in another term begins anew.
        call.failed |= attempt != Attempt::FIRST || call.term != term;
    }

    fn entered(&mut self, who: &Who, seq: OpSeq, chunk: u32) -> Option<()> {
        let call = self.calls.get_mut(&who.incarnation?)?;
        if call.seq == seq {
            *call.entered.entry(chunk).or_default() += 1;
        }
        None
    }

    fn missed(&mut self, who: &Who, seq: OpSeq, unreachable: bool) -> Option<()> {
        let group = who.incarnation?;
        if unreachable {
            self.alone.insert((group, who.shard));
        }
        let call = self.calls.get_mut(&group)?;
        call.failed |= call.seq == seq;
        None
    }

    fn committed(&self, group: Incarnation, seq: OpSeq) -> Option<String> {
        let call = self.calls.get(&group).filter(|call| call.seq == seq && !call.failed)?;
        if self.alone.iter().any(|(of, _)| *of == group) {
            return None;
        }
        let (chunk, times) = call.entered.iter().find(|(_, times)| **times > 1)?;
        Some(format!("chunk {chunk} entered the host of {group} {times} times in call {seq}"))
    }
}

impl Checker for EnteredOnce {
    fn name(&self) -> &'static str {
        "D8"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said { who, term, message: ServerMessage::Assigned { seq, attempt, .. } } => {
                self.assigned(who.incarnation?, *term, *seq, *attempt);
                None
            }
            Fact::Entered { who, seq, chunk } => {
                self.entered(who, *seq, *chunk);
                None
            }
            Fact::SiblingMissed { who, seq, unreachable } => {
                self.missed(who, *seq, *unreachable);
                None
            }
            Fact::Done { who, result: Ok(Answer::Registered { .. }), .. } => {
                self.alone.remove(&(who.incarnation?, who.shard));
                None
            }
            Fact::Done { who, seq, result: Ok(Answer::Committed { .. }), .. } => {
                self.committed(who.incarnation?, *seq)
            }
            _ => None,
        }
    }
}

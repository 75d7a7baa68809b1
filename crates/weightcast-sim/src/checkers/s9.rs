//! S9, from outside: once a group has begun to unpublish, no reader that asks later is told to read
//! from the group.

mod left;

use std::collections::BTreeMap;

use weightcast_protocol::message::{Call, ClientMessage, ServerMessage};
use weightcast_protocol::{ExportId, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

pub(super) use left::{NoLateReads, NobodyLeft};

/// Uses messages alone. A reader that asked earlier may have been given the source earlier too, and
/// is told once its own old copy has no reader. That no reader is left when `unpublish` is answered
/// is checked by [`NobodyLeft`] and [`NoLateReads`].
#[derive(Default)]
pub(super) struct NoNewReaders {
    /// The group that registered each export.
    exports: BTreeMap<ExportId, Incarnation>,
    /// The last call of each group that has ended. The next call begins when a shard makes it.
    ended: BTreeMap<Incarnation, OpSeq>,
    /// The place of each call in the order in which their first shards asked.
    asked: BTreeMap<(Incarnation, OpSeq), usize>,
    /// Groups that give up what they hold: the call, and its place in `asked`.
    leaving: BTreeMap<Incarnation, (OpSeq, usize)>,
}

impl NoNewReaders {
    fn heard(&mut self, group: Incarnation, seq: OpSeq, call: &Call) {
        let asked = self.asked.len();
        self.asked.entry((group, seq)).or_insert(asked);
        match call {
            Call::Register { export, .. } => {
                self.exports.insert(*export, group);
            }
            // An `unpublish` begins only after the group's earlier calls have ended: a shard that
            // is ahead waits.
            Call::Unpublish if self.ended.get(&group).is_some_and(|ended| ended.0 + 1 == seq.0) => {
                self.leaving.entry(group).or_insert((seq, asked));
            }
            Call::Publish { .. } | Call::Replicate { .. } | Call::Update { .. } => {
                self.leaving.remove(&group);
            }
            _ => {}
        }
    }

    fn answered(&mut self, group: Incarnation, seq: OpSeq, failed: bool) {
        let ended = self.ended.entry(group).or_insert(seq);
        *ended = (*ended).max(seq);
        if failed && self.leaving.get(&group).is_some_and(|(call, _)| *call == seq) {
            self.leaving.remove(&group);
        }
    }

    fn left_before(&self, reader: (Incarnation, OpSeq), source: Incarnation) -> bool {
        let began = self.leaving.get(&source).map(|(_, began)| *began);
        began.is_some_and(|began| self.asked.get(&reader).is_some_and(|asked| *asked > began))
    }
}

impl Checker for NoNewReaders {
    fn name(&self) -> &'static str {
        "S9"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message: ClientMessage::Call { seq, call, .. }, .. } => {
                self.heard(who.incarnation?, *seq, call);
            }
            Fact::Said { who, message: ServerMessage::Answered { seq, result }, .. } => {
                self.answered(who.incarnation?, *seq, result.is_err());
            }
            Fact::Said {
                who, message: ServerMessage::Assigned { seq, assignment, .. }, ..
            } => {
                let reader = (who.incarnation?, *seq);
                let mut sources =
                    assignment.shards.iter().filter_map(|s| self.exports.get(&s.export));
                let left = sources.find(|source| self.left_before(reader, **source))?;
                return Some(format!(
                    "{} is told to read from {left}, which unpublishes",
                    reader.0
                ));
            }
            _ => {}
        }
        None
    }
}

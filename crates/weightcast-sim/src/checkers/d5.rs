//! D5: a shard that begins a read anew serves at a new generation, so no reader takes its old
//! bytes.

use std::collections::BTreeMap;

use weightcast_protocol::message::{ClientMessage, ServerMessage};
use weightcast_protocol::{Attempt, Generation, Incarnation, OpSeq, Time};

use super::{Checker, Fact};

/// A shard of a group.
type ReadingShard = (Incarnation, u32);

#[derive(Default)]
pub(super) struct NewGeneration {
    /// For each attempt, the attempt that began anew and whose bytes this one keeps.
    since: BTreeMap<(ReadingShard, OpSeq, Attempt), Attempt>,
    /// The generation at which each read that began anew is served.
    generations: BTreeMap<ReadingShard, BTreeMap<(OpSeq, Attempt), Generation>>,
}

impl Checker for NewGeneration {
    fn name(&self) -> &'static str {
        "D5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said {
                who,
                message: ServerMessage::Assigned { seq, attempt, since, assignment },
                ..
            } => {
                // A staged update reads into memory that is not served.
                if assignment.staged {
                    return None;
                }
                self.since.insert(((who.incarnation?, who.shard), *seq, *attempt), *since);
                None
            }
            Fact::Heard { who, message, .. } => {
                let shard = (who.incarnation?, who.shard);
                match message {
                    ClientMessage::Filling { seq, since, generation } => {
                        self.serves(shard, *seq, *since, *generation)
                    }
                    ClientMessage::Prepared { seq, attempt, generation, .. } => {
                        let since = *self.since.get(&(shard, *seq, *attempt))?;
                        self.serves(shard, *seq, since, *generation)
                    }
                    ClientMessage::Installed { seq, attempt, generation } => {
                        self.serves(shard, *seq, *attempt, *generation)
                    }
                    _ => None,
                }
            }
            _ => None,
        }
    }
}

impl NewGeneration {
    fn serves(
        &mut self,
        shard: ReadingShard,
        seq: OpSeq,
        since: Attempt,
        generation: Generation,
    ) -> Option<String> {
        let generations = self.generations.entry(shard).or_default();
        generations.insert((seq, since), generation);
        let mut earlier = generations.range(..(seq, since));
        let same = earlier.any(|(_, before)| *before >= generation);
        same.then(|| format!("shard {} began anew and stayed at {generation}", shard.1))
    }
}

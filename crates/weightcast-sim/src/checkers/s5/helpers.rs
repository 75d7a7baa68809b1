//! S5 for a reader that draws from several sources: at the commit each helper is alive at the
//! generation that was named, and holds the version. The checker goes by what readers were told,
//! not by the server's edges: a forgotten edge would hide the fault.

use std::collections::BTreeMap;
use std::rc::Rc;

use weightcast_protocol::message::{Assignment, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Generation, Incarnation, Time, Version};

use crate::checkers::{Checker, Fact};

#[derive(Default)]
pub(in crate::checkers) struct EveryHelper {
    /// The books before the event.
    before: Option<Rc<Snapshot>>,
    /// The version of each group's last assignment, and its helpers.
    told: BTreeMap<Incarnation, (Version, Vec<Helper>)>,
}

/// A helper's name, and the generations at which its shards serve.
type Helper = (String, Vec<Generation>);

impl Checker for EveryHelper {
    fn name(&self) -> &'static str {
        "S5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Said { who, message: ServerMessage::Assigned { assignment, .. }, .. } => {
                let told = (assignment.version, helpers(assignment));
                self.told.insert(who.incarnation?, told);
                None
            }
            Fact::Books(after) => {
                let before = self.before.replace(Rc::clone(after))?;
                after.models.iter().find_map(|(name, model)| {
                    let before = before.models.get(name)?;
                    model.replicas.iter().find_map(|replica| self.check(before, model, replica))
                })
            }
            _ => None,
        }
    }
}

fn helpers(assignment: &Assignment) -> Vec<Helper> {
    let each = assignment.shards_each().max(1);
    let shards = assignment.shards.chunks(each).skip(1);
    let generations = shards.map(|shards| shards.iter().map(|shard| shard.generation).collect());
    assignment.helpers.iter().cloned().zip(generations).collect()
}

impl EveryHelper {
    fn check(
        &self,
        before: &ModelSnapshot,
        after: &ModelSnapshot,
        reader: &ReplicaSnapshot,
    ) -> Option<String> {
        let (version, helpers) = self.told.get(&reader.incarnation)?;
        let reads = |model: &ModelSnapshot| {
            let mut edges = model.edges.iter();
            edges.any(|edge| edge.reader_life == reader.incarnation && edge.version == *version)
        };
        let ended = reads(before) && !reads(after);
        // The reader holds the version, or gives up its old version for the staged one.
        let well = match reader.state {
            ReplicaState::Sealed => reader.version == Some(*version),
            state => matches!(state, ReplicaState::Draining | ReplicaState::Installing),
        };
        let stands = |helper: &&Helper| [before, after].iter().any(|m| stands(m, helper, *version));
        let gone = helpers.iter().filter(|_| ended && well).find(|helper| !stands(helper))?;
        let name = &reader.name;
        Some(format!("{name} commits {version}, drawn from {} too, which is gone", gone.0))
    }
}

fn stands(model: &ModelSnapshot, (name, generations): &Helper, version: Version) -> bool {
    model.replicas.iter().filter(|replica| replica.name == *name).any(|replica| {
        let holds = replica.version == Some(version);
        let gone = matches!(replica.state, ReplicaState::Broken | ReplicaState::Fenced);
        let serves = replica.shards.iter().map(|shard| shard.generation);
        holds && !gone && serves.eq(generations.iter().copied().map(Some))
    })
}

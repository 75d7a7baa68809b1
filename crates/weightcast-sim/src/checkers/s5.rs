//! S5: at the moment of a commit the reader has a source, which holds the version itself: commits go
//! down a chain in order.

use std::rc::Rc;

use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Time, Version};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct TransitiveCommit {
    /// As it was before the event.
    before: Option<Rc<Snapshot>>,
}

impl Checker for TransitiveCommit {
    fn name(&self) -> &'static str {
        "S5"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(after) = fact else { return None };
        let before = self.before.replace(Rc::clone(after))?;
        after.models.iter().find_map(|(name, model)| {
            let before = before.models.get(name)?;
            model.replicas.iter().find_map(|replica| check(before, model, replica))
        })
    }
}

fn check(
    before: &ModelSnapshot,
    after: &ModelSnapshot,
    replica: &ReplicaSnapshot,
) -> Option<String> {
    let version = replica.version.filter(|_| replica.state == ReplicaState::Sealed)?;
    let own = before.replicas.iter().find(|other| other.incarnation == replica.incarnation)?;
    if own.version == Some(version) || own.state == ReplicaState::Recovering {
        return None; // it held it before, in this term or in an earlier one
    }
    // Sealed from one event to the next without having been published: this was a commit.
    let mut edges = before.edges.iter().filter(|edge| edge.reader_life == replica.incarnation);
    match edges.find(|edge| edge.version == version) {
        None => Some(format!("{} commits {version} without a source", replica.name)),
        // One event may commit a whole chain.
        Some(edge) if [before, after].iter().any(|m| holds(m, edge.source_life, version)) => None,
        Some(edge) => {
            let (name, source) = (&replica.name, &edge.source);
            Some(format!("{name} commits {version} from {source}, which does not hold it"))
        }
    }
}

fn holds(model: &ModelSnapshot, source: Incarnation, version: Version) -> bool {
    model.replicas.iter().any(|replica| {
        let gone = matches!(replica.state, ReplicaState::Broken | ReplicaState::Fenced);
        replica.incarnation == source && replica.version == Some(version) && !gone
    })
}

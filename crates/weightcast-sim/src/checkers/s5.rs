//! S5: at a commit the reader has a source that holds the version itself: commits go down a chain
//! in order.

mod helpers;

use std::collections::BTreeMap;
use std::rc::Rc;

use weightcast_protocol::server::{
    ModelSnapshot, ReadEdge, ReplicaSnapshot, ReplicaState, Snapshot,
};
use weightcast_protocol::{Incarnation, Time, Version};

use super::{Checker, Fact};

pub(super) use helpers::EveryHelper;

#[derive(Default)]
pub(super) struct TransitiveCommit {
    /// The books before the event.
    before: Option<Rc<Snapshot>>,
    /// Replicas that have read a staged version and let go of its source. The source had to hold
    /// the version at that moment, not at the later commit.
    landing: BTreeMap<Incarnation, Version>,
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
            let landing = &mut self.landing;
            let mut replicas = model.replicas.iter();
            replicas.find_map(|replica| {
                land(landing, before, model, replica)
                    .or_else(|| check(landing, before, model, replica))
            })
        })
    }
}

/// A replica that gives up its old copy and no longer reads has read a staged version. The source
/// must hold the version, as for a commit.
fn land(
    landing: &mut BTreeMap<Incarnation, Version>,
    before: &ModelSnapshot,
    after: &ModelSnapshot,
    replica: &ReplicaSnapshot,
) -> Option<String> {
    let own = |edge: &&ReadEdge| edge.reader_life == replica.incarnation;
    if after.edges.iter().any(|edge| own(&edge)) {
        return None;
    }
    let read: Vec<&ReadEdge> = before.edges.iter().filter(own).collect();
    let version = read.first()?.version;
    // A replica whose old copy was refused stays `Fenced`: its books do not show that it gives the
    // copy up, so its source is not checked.
    let gives_up = matches!(replica.state, ReplicaState::Draining | ReplicaState::Installing);
    if gives_up || replica.state == ReplicaState::Fenced {
        landing.insert(replica.incarnation, version);
    }
    let gone = read.into_iter().filter(|_| gives_up).find(|edge| !stands(before, after, edge))?;
    let (name, source) = (&replica.name, &gone.source);
    Some(format!("{name} gives up its copy for {version} of {source}, which does not hold it"))
}

/// Whether a source holds the version that is read from it, before or after the event: one event
/// may commit a whole chain.
fn stands(before: &ModelSnapshot, after: &ModelSnapshot, edge: &ReadEdge) -> bool {
    [before, after].iter().any(|model| holds(model, edge.source_life, edge.version))
}

fn check(
    landing: &BTreeMap<Incarnation, Version>,
    before: &ModelSnapshot,
    after: &ModelSnapshot,
    replica: &ReplicaSnapshot,
) -> Option<String> {
    let version = replica.version.filter(|_| replica.state == ReplicaState::Sealed)?;
    let own = before.replicas.iter().find(|other| other.incarnation == replica.incarnation)?;
    if own.version == Some(version) || own.state == ReplicaState::Recovering {
        return None; // it held it before, in this term or in an earlier one
    }
    if own.state == ReplicaState::Installing {
        let landed = landing.get(&replica.incarnation) == Some(&version);
        return (!landed).then(|| format!("{} commits {version}, not what it read", replica.name));
    }
    // The replica became sealed within one event and was not published: this was a commit.
    let mut edges = before
        .edges
        .iter()
        .filter(|edge| edge.reader_life == replica.incarnation && edge.version == version);
    let Some(first) = edges.next() else {
        return Some(format!("{} commits {version} without a source", replica.name));
    };
    // Each of several sources must hold the version.
    let gone = std::iter::once(first).chain(edges).find(|edge| !stands(before, after, edge))?;
    let (name, source) = (&replica.name, &gone.source);
    Some(format!("{name} commits {version} from {source}, which does not hold it"))
}

fn holds(model: &ModelSnapshot, source: Incarnation, version: Version) -> bool {
    model.replicas.iter().any(|replica| {
        let gone = matches!(replica.state, ReplicaState::Broken | ReplicaState::Fenced);
        replica.incarnation == source && replica.version == Some(version) && !gone
    })
}

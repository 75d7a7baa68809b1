//! What must hold in every state, and what some state must show for the search to mean anything.

use std::collections::BTreeMap;

use stateright::Property;
use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState};
use weightcast_protocol::{CallError, OpSeq, Version};

use crate::bounds::Bounds;
use crate::cluster::ClusterState;
use crate::worker::WorkerEvent;

/// An invariant that does not hold.
#[derive(Clone, Debug)]
pub struct Broken {
    /// Its name.
    pub invariant: &'static str,
    /// What was seen.
    pub detail: String,
}

/// What the server's books show.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Shows {
    /// A replica waits for its readers.
    pub(crate) draining: bool,
    /// A rollout reads from a rollout.
    rollout_read: bool,
    /// A replica is read while it is being filled.
    read_in_flight: bool,
    /// Somebody holds a version.
    listed: bool,
    /// A group came over to another server, or another life of one.
    came_over: bool,
    /// Two servers act.
    two_act: bool,
}

impl Shows {
    fn take(&mut self, model: &ModelSnapshot) {
        self.draining |= model.replicas.iter().any(|r| r.state == ReplicaState::Draining);
        self.rollout_read |= model.edges.iter().any(|edge| edge.source.starts_with("rollout"));
        let filling = |r: &&ReplicaSnapshot| r.state == ReplicaState::Reading;
        self.read_in_flight |= model.edges.iter().any(|edge| {
            model.replicas.iter().filter(filling).any(|r| r.incarnation == edge.source_life)
        });
        self.listed |= !model.versions.is_empty();
    }
}

pub(crate) fn properties() -> Vec<Property<Bounds>> {
    fn holds(state: &ClusterState, invariant: &str) -> bool {
        state.broken.as_ref().is_none_or(|broken| broken.invariant != invariant)
    }
    macro_rules! always {
        ($($name:literal),*) => {
            vec![$(Property::always($name, |_: &Bounds, state: &ClusterState| holds(state, $name))),*]
        };
    }
    let mut properties = always![
        "S1", "S3", "S5", "S7", "S8", "S9", "S10", "D1", "D2", "D4", "D5", "D6", "G1", "A5", "T2",
        "T3", "T5"
    ];
    properties.push(Property::always("L1", |bounds: &Bounds, state: &ClusterState| {
        !state.breaks_now(bounds, "L1")
    }));
    properties.push(Property::always("L5", |bounds: &Bounds, state: &ClusterState| {
        !state.breaks_now(bounds, "L5")
    }));
    properties.extend([
        Property::sometimes("a group comes over", |bounds: &Bounds, state: &ClusterState| {
            !bounds.fails_over() || state.shows.came_over
        }),
        Property::sometimes("two servers act", |bounds: &Bounds, state: &ClusterState| {
            bounds.partings == 0 || state.shows.two_act
        }),
        Property::sometimes(
            "a rollout reads from a rollout",
            |bounds: &Bounds, state: &ClusterState| bounds.rollouts < 2 || state.shows.rollout_read,
        ),
        Property::sometimes(
            "a replica is read while it is being filled",
            |bounds: &Bounds, state: &ClusterState| {
                bounds.rollouts < 2 || state.shows.read_in_flight
            },
        ),
        Property::sometimes("a copy is drained", |_, state: &ClusterState| state.shows.draining),
        Property::sometimes(
            "every rollout holds the last version",
            |bounds: &Bounds, state: &ClusterState| {
                let mut rollouts = state.workers[bounds.trainer_shards as usize..].iter();
                rollouts.all(|w| w.session.version().is_some_and(|v| v.number == bounds.versions))
            },
        ),
    ]);
    properties
}

impl ClusterState {
    /// Whether this state shows that an invariant does not hold. L1: nothing more can happen, and a
    /// call was not answered.
    pub(crate) fn breaks_now(&self, bounds: &Bounds, invariant: &str) -> bool {
        match &self.broken {
            Some(broken) => broken.invariant == invariant,
            None if bounds.only.is_some_and(|only| only != invariant) => false,
            None if invariant == "L1" => !self.is_finished(bounds) && bounds.steps(self).is_empty(),
            None if invariant == "L5" => !self.is_together() && bounds.steps(self).is_empty(),
            None => false,
        }
    }

    /// Whether every program came to its end, or waits for a version that nobody has any more.
    fn is_finished(&self, bounds: &Bounds) -> bool {
        self.workers.iter().all(|worker| match &worker.calling {
            Some((_, Call::Replicate { .. })) => !self.shows.listed,
            // Whoever holds nothing waits as well.
            Some((_, Call::Update { .. })) if worker.session.version().is_none() => {
                !self.shows.listed
            }
            Some(_) => false,
            None => worker.next_call(bounds).is_none(),
        })
    }

    pub(crate) fn breaks(&mut self, invariant: &'static str, detail: String) {
        self.broken.get_or_insert(Broken { invariant, detail });
    }

    /// The servers' own invariants, and that nobody reads from itself in the end.
    pub(crate) fn check_books(&mut self) {
        let acting = self.hosts.iter().filter(|host| host.acts()).count();
        let mut shows = Shows { two_act: acting > 1, ..Shows::default() };
        for index in 0..self.hosts.len() {
            let host = &self.hosts[index];
            if let Err(violation) = host.server.validate() {
                return self.breaks(violation.invariant, violation.detail);
            }
            let books = host.server.snapshot(host.now);
            shows.came_over |= books.counters.recoveries > 0;
            for model in books.models.values() {
                shows.take(model);
                if let Some(detail) = cycle(model) {
                    return self.breaks("D2", detail);
                }
            }
        }
        self.shows = shows;
    }

    /// Whoever holds a version holds its publisher's bytes (S1): at the return and ever after.
    pub(crate) fn check_memory(&mut self, index: usize) {
        let worker = &self.workers[index];
        let torn =
            worker.session.version().filter(|version| worker.memory.foreign(*version).is_some());
        if let Some(version) = torn {
            let detail = format!("{} holds {version}: {:?}", worker.place.replica, worker.memory);
            self.breaks("S1", detail);
        }
    }

    pub(crate) fn check_event(&mut self, index: usize, event: WorkerEvent) {
        match event {
            WorkerEvent::WrittenWhileServed => {
                let detail =
                    format!("{} is written while served", self.workers[index].place.replica);
                self.breaks("S3", detail);
            }
            WorkerEvent::Done(seq, result) => self.check_answer(index, seq, result),
        }
    }

    /// All shards of a group get the same answer (G1).
    fn check_answer(&mut self, index: usize, seq: OpSeq, result: Result<Answer, CallError>) {
        let worker = &self.workers[index];
        let leaves = matches!(
            result,
            Err(CallError::GroupBroken { .. }
                | CallError::GroupDiverged { .. }
                | CallError::ServerUnreachable { .. }
                | CallError::InDoubt { .. })
        );
        let Some(lease) = worker.session.lease().filter(|_| !leaves) else { return };
        if worker.place.num_shards == 1 {
            return;
        }
        let place = (lease.incarnation, seq);
        match self.answers.get(&place) {
            None => drop(self.answers.insert(place, result)),
            Some(first) if *first != result => {
                let detail = format!("call {seq}: one shard got {first:?}, another {result:?}");
                self.breaks("G1", detail);
            }
            // With two shards both have it now.
            Some(_) => drop(self.answers.remove(&place)),
        }
    }
}

/// A cycle among who reads from whom (D2).
fn cycle(model: &ModelSnapshot) -> Option<String> {
    let sources: BTreeMap<(&str, Version), &str> =
        model.edges.iter().map(|e| ((e.reader.as_str(), e.version), e.source.as_str())).collect();
    sources.keys().find_map(|(reader, version)| {
        let mut at = *reader;
        for _ in 0..=sources.len() {
            at = sources.get(&(at, *version))?;
            if at == *reader {
                return Some(format!("{reader} reads {version} from itself, in the end"));
            }
        }
        None
    })
}

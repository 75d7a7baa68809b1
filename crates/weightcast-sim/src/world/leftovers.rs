//! What is left at the end of a world, and should not be (L6).

use std::collections::BTreeSet;

use weightcast_protocol::message::Call;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Incarnation, Version};

use crate::books::retained::{is_offload, retained, whole_and_lasting};
use crate::parts::process::Process;
use crate::world::World;

impl World {
    /// All leftovers, in words.
    pub(crate) fn leftovers(&self) -> Vec<String> {
        let Some(books) = self.books() else { return Vec::new() };
        let live: BTreeSet<Incarnation> =
            self.processes.iter().filter_map(Process::incarnation).collect();
        let sessions = self.processes.iter().filter(|p| p.session.is_some()).count();
        let mut left = Vec::new();
        if books.sessions != sessions {
            left.push(format!("the server has {} sessions, there are {sessions}", books.sessions));
        }
        left.extend(empty_models(&books));
        left.extend(of_books(&books, &live, &self.untrue()));
        left.extend(self.processes.iter().filter_map(of_process));
        left
    }

    /// Groups that hold other bytes than their version's: their copies can't be relied on.
    fn untrue(&self) -> BTreeSet<Incarnation> {
        let untrue = self.processes.iter().filter(|process| {
            process.version().is_some_and(|version| process.memory.foreign(version).is_some())
        });
        untrue.filter_map(Process::incarnation).collect()
    }
}

/// Models without a replica. Jobs use ever new names of models, so a server must forget these.
fn empty_models(books: &Snapshot) -> impl Iterator<Item = String> + '_ {
    let empty = books.models.iter().filter(|(_, model)| model.replicas.is_empty());
    empty.map(|(name, _)| format!("nobody is in model {name} any more"))
}

fn of_books<'a>(
    books: &'a Snapshot,
    live: &'a BTreeSet<Incarnation>,
    untrue: &'a BTreeSet<Incarnation>,
) -> impl Iterator<Item = String> + 'a {
    books.models.values().flat_map(move |model| {
        let groups = model.replicas.iter().filter(|replica| !live.contains(&replica.incarnation));
        let groups = groups.map(|replica| format!("nobody is in group {} any more", replica.name));
        let copies =
            model.replicas.iter().filter(move |replica| is_idle_copy(model, replica, untrue));
        let copies = copies.map(|replica| format!("nobody needs {} any more", replica.name));
        let edges = model.edges.iter();
        let edges = edges.map(|edge| format!("{} still reads from {}", edge.reader, edge.source));
        groups.chain(copies).chain(edges)
    })
}

/// Whether an offload replica is kept although another replica holds the version, or the version is not retained.
fn is_idle_copy(
    model: &ModelSnapshot,
    replica: &ReplicaSnapshot,
    untrue: &BTreeSet<Incarnation>,
) -> bool {
    let Some(version) = replica.version.filter(|_| is_offload(replica)) else {
        return is_offload(replica);
    };
    let holders = model.versions.get(&version);
    let others = model.replicas.iter().filter(|other| {
        other.incarnation != replica.incarnation
            && !untrue.contains(&other.incarnation)
            && holders.is_some_and(|holders| holders.contains(&other.name))
            && other.version == Some(version)
    });
    // A copy that is not sealed yet may turn out to be of other content.
    let mut sealed = others.filter(|other| other.state == ReplicaState::Sealed);
    sealed.any(whole_and_lasting) || !is_retained(model, version)
}

/// Whether a version must survive. Newer versions count only if a replica has proved its copy.
/// After a failover a copy may be the only one, and then no other copy can show whether its bytes
/// are right (seed 1127).
fn is_retained(model: &ModelSnapshot, version: Version) -> bool {
    let mut relied_on = model.clone();
    relied_on.replicas.retain(|replica| replica.proved);
    retained(&relied_on, version)
}

fn of_process(process: &Process) -> Option<String> {
    let (replica, shard) = (&process.replica, process.shard);
    // Memory that is being published is served before the session holds the version.
    let call = process.program.pending.as_ref().map(|pending| &pending.call);
    let publishes = matches!(call, Some(Call::Publish { .. }));
    if process.host.exposed.is_some() && process.version().is_none() && !publishes {
        return Some(format!("{replica}/{shard} serves memory that holds nothing"));
    }
    if process.host.reading.is_some() || process.host.offloading.is_some() {
        return Some(format!("{replica}/{shard} still reads or copies"));
    }
    None
}

//! What `weightcast status` shows of a server.

use std::collections::{BTreeMap, BTreeSet};

use crate::message::{Location, Role};
use crate::server::Server;
use crate::server::stores::counters::Counters;
use crate::server::stores::group::Group;
use crate::server::stores::model::Model;
use crate::server::stores::retention::RetentionLoss;
use crate::server::stores::trust::Trust;
use crate::server::views::reading::ReadingSnapshot;
use crate::server::views::staleness::{Ages, Staleness};
use crate::{
    CallDurations, Epoch, Generation, Incarnation, OpSeq, Revision, Span, Term, Time, Version,
};

/// Everything at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// This life of the server, zero while it is passive.
    pub term: Term,
    /// Whether clients may still come over from an earlier term.
    pub recovers: bool,
    /// Sessions open.
    pub sessions: usize,
    /// Manifests stored.
    pub manifests: usize,
    /// Bytes of manifests stored.
    pub manifests_bytes: usize,
    /// The models, by name.
    pub models: BTreeMap<String, ModelSnapshot>,
    /// The last retained versions lost, the newest last.
    pub losses: Vec<RetentionLoss>,
    /// Counts since the start.
    pub counters: Counters,
    /// How long calls of groups took since the start, each from its first shard's call to its
    /// answer.
    pub durations: CallDurations,
}

/// One model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelSnapshot {
    /// Revision of its listing.
    pub revision: Revision,
    /// Its newest run.
    pub epoch: Epoch,
    /// How many of the newest versions are retained.
    pub retain: u32,
    /// Versions that are retained by name.
    pub exact: BTreeSet<Version>,
    /// Available versions, and the replicas that hold each.
    pub versions: BTreeMap<Version, Vec<String>>,
    /// For how long the newest of these has been the newest.
    pub latest_for: Option<Span>,
    /// Its groups, in order of name and age; old lives of a name are shown until they have left.
    pub replicas: Vec<ReplicaSnapshot>,
    /// Which replica reads from which.
    pub edges: Vec<ReadEdge>,
    /// Readers that take no place at their sources: their stream broke while they read.
    pub out_of_sight: BTreeSet<Incarnation>,
}

/// One life of one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaSnapshot {
    /// Its name.
    pub name: String,
    /// Which life of that name.
    pub incarnation: Incarnation,
    /// How many shards it consists of; fewer may have opened.
    pub num_shards: u32,
    /// Trainer, rollout, offload or seed.
    pub role: Role,
    /// Whether its updates leave crossings to a seed replica.
    pub offload_seeding: bool,
    /// What it is doing.
    pub state: ReplicaState,
    /// The version that it holds.
    pub version: Option<Version>,
    /// The versions that are retained for it by name.
    pub retains: BTreeSet<Version>,
    /// How far behind the newest version the held version is.
    pub staleness: Option<Staleness>,
    /// Whether it has shown the bytes, or defined the version; retention relies on such copies
    /// only.
    pub proved: bool,
    /// Shards that are open.
    pub shards: Vec<ShardSnapshot>,
    /// The call that has no result yet.
    pub pending: Option<PendingCall>,
    /// The version that it reads, and the progress.
    pub reading: Option<ReadingSnapshot>,
}

/// What a replica is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// Some shards have not opened.
    Opening,
    /// Some shards have not come over from an earlier term.
    Recovering,
    /// All shards are open, and it holds nothing.
    Empty,
    /// Fills its memory.
    Reading,
    /// Readable; its digests are being computed.
    Published,
    /// Readable; its digests are the version's.
    Sealed,
    /// Waits for its readers before its memory changes.
    Draining,
    /// Copies a version into place that it has read beside its memory.
    Installing,
    /// Refused: its content was not the version's.
    Fenced,
    /// A shard was closed; the others are still to leave.
    Closing,
    /// A shard was lost; the others are still to leave.
    Broken,
}

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardSnapshot {
    /// Its number in the group.
    pub shard: u32,
    /// Where it runs.
    pub location: Location,
    /// `host:port` of its data port.
    pub data_address: String,
    /// Whether it has a stream.
    pub connected: bool,
    /// Time until the server evicts it, unless it renews.
    pub lease_left: Span,
    /// Bytes registered.
    pub bytes: Option<u64>,
    /// The generation at which it serves.
    pub generation: Option<Generation>,
}

/// A call that has no result yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingCall {
    /// Its number.
    pub seq: OpSeq,
    /// The kind of the call, in one word.
    pub kind: &'static str,
    /// The call as a user would write it.
    pub call: String,
    /// How many shards have made it.
    pub arrived: usize,
    /// Time since the first shard called.
    pub age: Span,
    /// Time until the call ends.
    pub left: Span,
    /// The version that it would read, if all shards have called and it only lacks a source.
    pub wants: Option<Version>,
    /// Sources that have failed the call, and how often.
    pub failed: BTreeMap<Incarnation, u32>,
}

/// A replica that is being filled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadEdge {
    /// Name of the reading replica.
    pub reader: String,
    /// Which life of the reader.
    pub reader_life: Incarnation,
    /// Name of the replica that it reads from.
    pub source: String,
    /// Which life of the source.
    pub source_life: Incarnation,
    /// The version.
    pub version: Version,
}

impl ModelSnapshot {
    /// Edges whose readers take a place at their sources.
    pub fn placed_edges(&self) -> impl Iterator<Item = &ReadEdge> {
        self.edges.iter().filter(|edge| !self.out_of_sight.contains(&edge.reader_life))
    }
}

impl Server {
    /// Everything at this moment. Costs time in proportion to the number of sessions.
    pub fn snapshot(&self, now: Time) -> Snapshot {
        let (manifests, manifests_bytes) = self.blobs.usage();
        let models = self.models.iter();
        let models =
            models.map(|(name, model)| (name.clone(), self.model_snapshot(now, name, model)));
        Snapshot {
            term: self.term(),
            recovers: self.terms.window_until.is_some(),
            sessions: self.sessions.len(),
            manifests,
            manifests_bytes,
            models: models.collect(),
            losses: self.losses.iter().cloned().collect(),
            counters: self.counters.clone(),
            durations: self.durations.0.clone(),
        }
    }

    fn model_snapshot(&self, now: Time, name: &str, model: &Model) -> ModelSnapshot {
        let groups = self.groups.values().filter(|group| group.model == name);
        let ages = Ages::of(model);
        let mut replicas: Vec<_> =
            groups.map(|group| self.replica_snapshot(now, group, &ages)).collect();
        replicas.sort_by(|a, b| (&a.name, a.incarnation).cmp(&(&b.name, b.incarnation)));
        let replica = |group: Incarnation| self.groups.of(&group).replica.clone();
        let in_model = |reader: &Incarnation| self.groups.of(reader).model == name;
        let edges = self.edges.all().filter(|(reader, ..)| in_model(reader));
        ModelSnapshot {
            revision: model.revision,
            epoch: model.epoch,
            retain: model.retention.versions,
            exact: model.retention.exact.keys().copied().collect(),
            versions: model
                .visible
                .iter()
                .map(|(version, holders)| (*version, holders.keys().cloned().collect()))
                .collect(),
            latest_for: model.latest_since.0.map(|(_, since)| now - since),
            replicas,
            edges: edges
                .map(|(reader, source, version)| ReadEdge {
                    reader: replica(reader),
                    reader_life: reader,
                    source: replica(source),
                    source_life: source,
                    version,
                })
                .collect(),
            out_of_sight: self.edges.out_of_sight().filter(in_model).collect(),
        }
    }

    fn replica_snapshot(&self, now: Time, group: &Group, ages: &Ages) -> ReplicaSnapshot {
        let shards = group.members.iter().map(|(shard, member)| {
            let entry = self.sessions.of(&member.session);
            let held = group.held.as_ref();
            ShardSnapshot {
                shard: *shard,
                location: member.location.clone(),
                data_address: member.data_address.clone(),
                connected: self.connections.stream(member.session).is_some(),
                lease_left: entry.lease_until - now,
                bytes: member.registration.map(|registration| registration.bytes),
                generation: held.map(|held| held.generation(*shard)),
            }
        });
        let pending = group.active_call().map(|transaction| PendingCall {
            seq: transaction.seq,
            kind: transaction.call.name(),
            call: transaction.call.to_string(),
            arrived: transaction.arrived.len(),
            age: now - transaction.started,
            left: transaction.deadline - now,
            wants: transaction.wants(group.num_shards),
            failed: transaction.transfer.as_ref().map(|t| t.failures.clone()).unwrap_or_default(),
        });
        ReplicaSnapshot {
            name: group.replica.clone(),
            incarnation: group.incarnation,
            num_shards: group.num_shards,
            role: group.role,
            offload_seeding: group.offload_seeding,
            state: self.replica_state(group),
            version: group.held.as_ref().map(|held| held.version),
            retains: self.models.of(&group.model).retention.kept_for(group.incarnation).collect(),
            staleness: group.held.as_ref().map(|held| ages.staleness(now, held.version)),
            proved: group.held.as_ref().is_some_and(|held| held.trust == Trust::Proved),
            shards: shards.collect(),
            pending,
            reading: ReadingSnapshot::of(now, group),
        }
    }

    pub(super) fn replica_state(&self, group: &Group) -> ReplicaState {
        match (&group.over, &group.held) {
            (Some(over), _) if over.closing => ReplicaState::Closing,
            (Some(_), _) => ReplicaState::Broken,
            (None, _) if group.recovering => ReplicaState::Recovering,
            (None, Some(held)) if held.fenced.is_some() => ReplicaState::Fenced,
            (None, Some(held)) if !held.visible => ReplicaState::Draining,
            (None, Some(held)) if held.sealed => ReplicaState::Sealed,
            (None, Some(_)) => ReplicaState::Published,
            (None, None) if self.edges.source_of(group.incarnation).is_some() => {
                ReplicaState::Reading
            }
            (None, None) if group.installs() => ReplicaState::Installing,
            (None, None) if !group.complete() => ReplicaState::Opening,
            (None, None) => ReplicaState::Empty,
        }
    }
}

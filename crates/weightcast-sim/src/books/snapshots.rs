//! Books for the tests of checkers: one model, groups of one shard, all in term 7.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::{Location, Role};
use weightcast_protocol::server::{
    Counters, ModelSnapshot, PendingCall, ReadEdge, ReplicaSnapshot, ReplicaState, ShardSnapshot,
    Snapshot,
};
use weightcast_protocol::{
    CallDurations, Epoch, Incarnation, OpSeq, Revision, Span, Term, Version,
};

const TERM: Term = Term(7);

/// The version that is read and held.
pub(crate) const VERSION: Version = Version { epoch: Epoch(0), number: 1 };

fn group(number: u64) -> Incarnation {
    Incarnation { term: TERM, number }
}

/// An empty rollout without shards, so without a datacentre.
pub(crate) fn replica(number: u64) -> ReplicaSnapshot {
    ReplicaSnapshot {
        name: format!("replica-{number}"),
        incarnation: group(number),
        num_shards: 1,
        role: Role::Rollout,
        offload_seeding: false,
        state: ReplicaState::Empty,
        version: None,
        retains: BTreeSet::new(),
        staleness: None,
        proved: false,
        shards: vec![],
        pending: None,
        reading: None,
    }
}

/// The replica with one shard, in this datacentre.
pub(crate) fn at(mut replica: ReplicaSnapshot, datacentre: &str) -> ReplicaSnapshot {
    replica.shards.push(ShardSnapshot {
        shard: 0,
        location: Location { datacentre: datacentre.to_owned(), ..Location::default() },
        data_address: String::new(),
        connected: true,
        lease_left: Span(1),
        bytes: Some(1),
        generation: None,
    });
    replica
}

/// The replica, after all its shards have called `update`.
pub(crate) fn updates(mut replica: ReplicaSnapshot) -> ReplicaSnapshot {
    replica.pending = Some(PendingCall {
        seq: OpSeq(1),
        kind: "update",
        call: "update(latest)".to_owned(),
        arrived: 1,
        age: Span(0),
        left: Span(1),
        wants: None,
        failed: BTreeMap::new(),
    });
    replica
}

/// One group reads the version from another.
pub(crate) fn edge(reader: u64, source: u64) -> ReadEdge {
    ReadEdge {
        reader: format!("replica-{reader}"),
        reader_life: group(reader),
        source: format!("replica-{source}"),
        source_life: group(source),
        version: VERSION,
    }
}

pub(crate) fn books(replicas: Vec<ReplicaSnapshot>, edges: Vec<ReadEdge>) -> Snapshot {
    let model = ModelSnapshot {
        revision: Revision { term: TERM, number: 1 },
        epoch: VERSION.epoch,
        retain: 0,
        exact: BTreeSet::new(),
        versions: BTreeMap::new(),
        latest_for: None,
        replicas,
        edges,
        out_of_sight: Default::default(),
    };
    Snapshot {
        term: TERM,
        recovers: false,
        sessions: 0,
        manifests: 0,
        manifests_bytes: 0,
        models: BTreeMap::from([("policy".to_owned(), model)]),
        losses: vec![],
        counters: Counters::default(),
        durations: CallDurations::default(),
    }
}

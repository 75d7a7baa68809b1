//! What a person sees of a server, field by field, and how large it gets.

use std::collections::BTreeSet;

use prost::Message;
use weightcast_protocol::limits::{Limits, NAME_BYTES, RETAINED};
use weightcast_protocol::message::{Location, Role};
use weightcast_protocol::server::{PendingCall, ReadEdge, ReplicaState};
use weightcast_protocol::{
    CallDurations, Epoch, Generation, Incarnation, OpSeq, Revision, Span, Term, Version,
};

use super::*;
use crate::limits::STATUS_BYTES;

#[test]
fn the_largest_status_is_bounded() {
    let most = Limits::default().sessions;
    let name = || "n".repeat(NAME_BYTES);
    let version = |at: usize| Version { epoch: Epoch(u64::MAX), number: u64::MAX - at as u64 };
    let replica = |at: usize| ReplicaSnapshot {
        name: name(),
        incarnation: Incarnation { term: Term(u64::MAX), number: u64::MAX },
        num_shards: 1,
        role: Role::Offload(version(at)),
        offload_seeding: true,
        state: ReplicaState::Recovering,
        version: Some(version(at)),
        retains: (0..RETAINED).map(version).collect(),
        staleness: Some(Staleness { versions_behind: usize::MAX, stale: Span(u64::MAX) }),
        proved: true,
        shards: vec![ShardSnapshot {
            shard: 0,
            location: Location { datacentre: name(), host: name(), spot: true },
            data_address: name(),
            connected: true,
            lease_left: Span(u64::MAX),
            bytes: Some(u64::MAX),
            generation: Some(Generation(u64::MAX)),
        }],
        pending: Some(PendingCall {
            seq: OpSeq(u64::MAX),
            kind: "update",
            call: format!("update(latest-{}, allow_rollback, staged)", u64::MAX),
            arrived: 1,
            age: Span(u64::MAX),
            left: Span(u64::MAX),
            wants: None,
            failed: BTreeMap::new(),
        }),
        reading: Some(ReadingSnapshot {
            version: version(at),
            arrived: u64::MAX,
            total: u64::MAX,
            bytes_per_s: Some(u64::MAX),
            remaining: Some(Span(u64::MAX)),
            age: Some(Span(u64::MAX)),
        }),
    };
    let edge = |at: usize| ReadEdge {
        reader: name(),
        reader_life: Incarnation { term: Term(0), number: 0 },
        source: name(),
        source_life: Incarnation { term: Term(0), number: 0 },
        version: version(at),
    };
    let model = ModelSnapshot {
        revision: Revision { term: Term(u64::MAX), number: u64::MAX },
        epoch: Epoch(u64::MAX),
        retain: u32::MAX,
        exact: (0..most).map(version).collect(),
        versions: (0..most).map(|at| (version(at), vec![name()])).collect(),
        latest_for: None,
        replicas: (0..most).map(replica).collect(),
        edges: (0..most).map(edge).collect(),
        out_of_sight: Default::default(),
    };
    let status = status_frame(Snapshot {
        term: Term(u64::MAX),
        recovers: true,
        sessions: most,
        manifests: most,
        manifests_bytes: usize::MAX,
        models: BTreeMap::from([(name(), model)]),
        losses: Vec::new(),
        counters: Counters::default(),
        durations: CallDurations::default(),
    });
    let bytes = status.encoded_len();
    assert!(bytes > STATUS_BYTES / 4 && bytes <= STATUS_BYTES, "{bytes}");
}

/// Numbers that are all different, so that none is taken for another.
fn told() -> (Snapshot, wire::StatusReply) {
    let version = |number| Version { epoch: Epoch(3), number };
    let role = [Role::Trainer, Role::Rollout, Role::Offload(version(0)), Role::Seed(version(0))];
    let shard = ShardSnapshot {
        shard: 11,
        location: Location { datacentre: "paris".into(), host: "h".into(), spot: true },
        data_address: "h:1".into(),
        connected: false,
        lease_left: Span::from_millis(2_500),
        bytes: Some(12),
        generation: Some(Generation(13)),
    };
    let bare = ShardSnapshot {
        shard: 14,
        location: Location { datacentre: String::new(), host: "i".into(), spot: false },
        data_address: "i:1".into(),
        connected: true,
        lease_left: Span(0),
        bytes: None,
        generation: None,
    };
    let pending = PendingCall {
        seq: OpSeq(15),
        kind: "update",
        call: "update(latest)".into(),
        arrived: 16,
        age: Span::from_millis(1_500),
        left: Span::from_secs(17),
        wants: None,
        failed: BTreeMap::new(),
    };
    let reading = ReadingSnapshot {
        version: version(35),
        arrived: 36,
        total: 37,
        bytes_per_s: Some(38),
        remaining: Some(Span::from_millis(39_500)),
        age: Some(Span::from_millis(40_500)),
    };
    let staleness = Staleness { versions_behind: 41, stale: Span::from_millis(42_500) };
    let replica = |(role, name): (Role, &str)| ReplicaSnapshot {
        name: name.into(),
        incarnation: Incarnation { term: Term(18), number: 19 },
        num_shards: 20,
        role,
        offload_seeding: false,
        state: ReplicaState::Reading,
        version: (name == "t").then_some(version(21)),
        retains: if name == "r" { [version(43), version(44)].into() } else { BTreeSet::new() },
        staleness: (name == "t").then_some(staleness),
        proved: false,
        shards: if name == "t" { vec![shard.clone(), bare.clone()] } else { Vec::new() },
        pending: (name == "t").then(|| pending.clone()),
        reading: (name == "t").then_some(reading),
    };
    let life = Incarnation { term: Term(22), number: 23 };
    let edge = ReadEdge {
        reader: "r".into(),
        reader_life: life,
        source: "t".into(),
        source_life: life,
        version: version(24),
    };
    let model = ModelSnapshot {
        revision: Revision { term: Term(25), number: 26 },
        epoch: Epoch(27),
        retain: 28,
        exact: BTreeSet::new(),
        versions: BTreeMap::from([(version(29), vec!["t".into(), "r".into()])]),
        latest_for: None,
        replicas: role.into_iter().zip(["t", "r", "o", "s"]).map(replica).collect(),
        edges: vec![edge],
        out_of_sight: Default::default(),
    };
    let loss = RetentionLoss {
        model: "m".into(),
        version: version(30),
        replica: "t".into(),
        reason: "gone".into(),
    };
    let snapshot = Snapshot {
        term: Term(31),
        recovers: false,
        sessions: 32,
        manifests: 33,
        manifests_bytes: 34,
        models: BTreeMap::from([("m".to_owned(), model)]),
        losses: vec![loss],
        counters: Counters::default(),
        durations: CallDurations::default(),
    };
    let shards = vec![
        wire::ShardStatus {
            shard: 11,
            host: "h".into(),
            datacentre: "paris".into(),
            spot: true,
            data_address: "h:1".into(),
            connected: false,
            lease_left_s: 2.5,
            bytes: 12,
            generation: Some(13),
        },
        wire::ShardStatus {
            shard: 14,
            host: "i".into(),
            data_address: "i:1".into(),
            connected: true,
            ..wire::ShardStatus::default()
        },
    ];
    let replica = |(role, name): (&str, &str)| wire::ReplicaStatus {
        name: name.into(),
        role: role.into(),
        state: "reading".into(),
        num_shards: 20,
        ..wire::ReplicaStatus::default()
    };
    let named = ["trainer", "rollout", "offload", "seed"].into_iter().zip(["t", "r", "o", "s"]);
    let mut replicas: Vec<_> = named.map(replica).collect();
    replicas[0].version = Some(21);
    replicas[1].retains = vec![43, 44];
    replicas[0].shards = shards;
    replicas[0].pending = Some("update(latest) (16 of 20 shards, 1.5 s)".into());
    replicas[0].versions_behind = Some(41);
    replicas[0].stale_s = Some(42.5);
    replicas[0].reading = Some(wire::ReadingStatus {
        version: 35,
        arrived_bytes: 36,
        total_bytes: 37,
        bytes_per_s: Some(38),
        remaining_s: Some(39.5),
        age_s: Some(40.5),
    });
    replicas[0].pending_call = Some(wire::PendingStatus {
        call: "update(latest)".into(),
        shards_arrived: 16,
        age_s: 1.5,
        left_s: 17.0,
    });
    let read = wire::ReaderStatus { reader: "r".into(), source: "t".into(), version: 24 };
    let holders = vec!["t".into(), "r".into()];
    let model = wire::ModelStatus {
        name: "m".into(),
        epoch: 27,
        revision: 26,
        versions: vec![wire::VersionStatus { epoch: 3, version: 29, replicas: holders }],
        replicas,
        readers: vec![read],
        retain: 28,
    };
    let loss = wire::LossStatus {
        epoch: 3,
        version: 30,
        replica: "t".into(),
        reason: "gone".into(),
        model: "m".into(),
    };
    let status = wire::StatusReply {
        term: 31,
        sessions: 32,
        manifests: 33,
        manifest_bytes: 34,
        models: vec![model],
        counters: counters(&Counters::default()),
        losses: vec![loss],
        version: crate::VERSION.to_owned(),
    };
    (snapshot, status)
}

#[test]
fn each_field_is_told_under_its_own_name() {
    let (snapshot, status) = told();
    assert_eq!(status_frame(snapshot), status);
}

/// Each counter has the name and the number of a field of the machine.
#[test]
fn each_counter_is_told_under_its_own_name() {
    let mut number = 0;
    let mut next = || {
        number += 1;
        number
    };
    let counted = Counters {
        publishes: next(),
        seals: next(),
        fenced: next(),
        assignments: next(),
        commits: next(),
        staged: next(),
        read_failures: next(),
        relays: next(),
        striped: next(),
        unstriped: next(),
        joined: next(),
        moved_on: next(),
        resumes: next(),
        crossings: next(),
        skips: next(),
        accusations: next(),
        accused_fenced: next(),
        digest_mismatches: next(),
        drains_cut: next(),
        left_behind: next(),
        evictions: next(),
        offloads: next(),
        offloads_released: next(),
        retention_lost: next(),
        challenges: next(),
        proofs: next(),
        refuted: next(),
        seeds_asked: next(),
        seeds: next(),
        seeds_failed: next(),
        seeds_released: next(),
        divergences: next(),
        timeouts: next(),
        refusals: next(),
        terms: next(),
        recoveries: next(),
        held_back: next(),
    };
    let told = counters(&counted);
    assert_eq!(told.len(), number as usize);
    let debug = format!("{counted:?}");
    for (name, number) in told {
        let field = format!(" {name}: {number}");
        assert!([",", " }"].iter().any(|end| debug.contains(&format!("{field}{end}"))), "{field}");
    }
}

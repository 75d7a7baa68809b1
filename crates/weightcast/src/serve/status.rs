//! What a person sees of a server, as messages.

use std::collections::BTreeMap;

use weightcast_protocol::server::{
    Counters, ModelSnapshot, PendingCall, ReadingSnapshot, ReplicaSnapshot, RetentionLoss,
    ShardSnapshot, Snapshot, Staleness, Why,
};
use weightcast_protocol::{CallError, Span};

use crate::convert::{role_name, state_name};
use crate::wire;

/// The snapshot as a reply.
pub(super) fn status_frame(snapshot: Snapshot) -> wire::StatusReply {
    wire::StatusReply {
        term: snapshot.term.0,
        sessions: snapshot.sessions as u64,
        manifests: snapshot.manifests as u64,
        manifest_bytes: snapshot.manifests_bytes as u64,
        models: snapshot.models.into_iter().map(|(name, model)| model_frame(name, model)).collect(),
        counters: counters(&snapshot.counters),
        losses: snapshot.losses.into_iter().map(loss_frame).collect(),
        version: crate::VERSION.to_owned(),
    }
}

/// Why a replica waits, as a reply.
pub(super) fn why_frame(why: Result<Why, CallError>) -> wire::WhyReply {
    match why {
        Ok(Why { sentence, waits, held_up_by, cycle }) => {
            let why = Some(wire::WhyStatus { sentence, waits, held_up_by, cycle });
            wire::WhyReply { problem: None, why }
        }
        Err(error) => wire::WhyReply { problem: Some(error.to_string()), why: None },
    }
}

fn loss_frame(loss: RetentionLoss) -> wire::LossStatus {
    wire::LossStatus {
        model: loss.model,
        epoch: loss.version.epoch.0,
        version: loss.version.number,
        replica: loss.replica,
        reason: loss.reason,
    }
}

fn model_frame(name: String, model: ModelSnapshot) -> wire::ModelStatus {
    let versions = model.versions.into_iter().map(|(version, replicas)| wire::VersionStatus {
        epoch: version.epoch.0,
        version: version.number,
        replicas,
    });
    let readers = model.edges.into_iter().map(|edge| wire::ReaderStatus {
        reader: edge.reader,
        source: edge.source,
        version: edge.version.number,
    });
    wire::ModelStatus {
        name,
        epoch: model.epoch.0,
        revision: model.revision.number,
        versions: versions.collect(),
        replicas: model.replicas.into_iter().map(replica_frame).collect(),
        readers: readers.collect(),
        retain: model.retain,
    }
}

fn replica_frame(replica: ReplicaSnapshot) -> wire::ReplicaStatus {
    let pending = replica.pending.as_ref().map(|call| {
        let age = seconds(call.age);
        format!("{} ({} of {} shards, {age:.1} s)", call.call, call.arrived, replica.num_shards)
    });
    let Staleness { versions_behind, stale } = replica.staleness.unwrap_or_default();
    let holds = replica.staleness.is_some();
    wire::ReplicaStatus {
        name: replica.name,
        role: role_name(replica.role).to_owned(),
        state: state_name(replica.state).to_owned(),
        version: replica.version.map(|version| version.number),
        num_shards: replica.num_shards,
        shards: replica.shards.into_iter().map(shard_frame).collect(),
        pending,
        versions_behind: holds.then_some(versions_behind as u64),
        stale_s: holds.then(|| seconds(stale)),
        reading: replica.reading.map(reading_frame),
        pending_call: replica.pending.map(pending_frame),
        retains: replica.retains.iter().map(|version| version.number).collect(),
    }
}

fn reading_frame(reading: ReadingSnapshot) -> wire::ReadingStatus {
    wire::ReadingStatus {
        version: reading.version.number,
        arrived_bytes: reading.arrived,
        total_bytes: reading.total,
        bytes_per_s: reading.bytes_per_s,
        remaining_s: reading.remaining.map(seconds),
        age_s: reading.age.map(seconds),
    }
}

fn pending_frame(pending: PendingCall) -> wire::PendingStatus {
    wire::PendingStatus {
        call: pending.call,
        shards_arrived: pending.arrived as u32,
        age_s: seconds(pending.age),
        left_s: seconds(pending.left),
    }
}

fn shard_frame(shard: ShardSnapshot) -> wire::ShardStatus {
    wire::ShardStatus {
        shard: shard.shard,
        host: shard.location.host,
        datacentre: shard.location.datacentre,
        spot: shard.location.spot,
        data_address: shard.data_address,
        connected: shard.connected,
        lease_left_s: seconds(shard.lease_left),
        bytes: shard.bytes.unwrap_or(0),
        generation: shard.generation.map(|generation| generation.0),
    }
}

fn seconds(span: Span) -> f64 {
    span.0 as f64 / 1e9
}

fn counters(counters: &Counters) -> BTreeMap<String, u64> {
    counters.each().map(|(name, _, count)| (name.to_owned(), count)).collect()
}

#[cfg(test)]
mod tests;

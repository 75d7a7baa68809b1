//! The small values: digests, versions, selectors, sums.

use weightcast_protocol::message::{Listing, Role, SourceShard};
use weightcast_protocol::server::ReplicaState;
use weightcast_protocol::{
    ContentDigest, Epoch, Revision, Selector, ShardSums, Sum, Term, Version,
};

use super::{MalformedMessage, need};
use crate::wire;

pub(crate) fn content_digest(bytes: &[u8]) -> Result<ContentDigest, MalformedMessage> {
    bytes.try_into().map(ContentDigest).map_err(|_| MalformedMessage("a digest is not 16 bytes"))
}

pub(super) fn version(v: Option<wire::Version>) -> Result<Version, MalformedMessage> {
    let v = need(v, "version")?;
    Ok(Version { epoch: Epoch(v.epoch), number: v.number })
}

pub(super) fn version_frame(v: Version) -> wire::Version {
    wire::Version { epoch: v.epoch.0, number: v.number }
}

pub(super) fn revision(v: Option<wire::Revision>) -> Result<Revision, MalformedMessage> {
    let v = need(v, "revision")?;
    Ok(Revision { term: Term(v.term), number: v.number })
}

pub(super) fn revision_frame(v: Revision) -> wire::Revision {
    wire::Revision { term: v.term.0, number: v.number }
}

pub(super) fn selector(selector: Option<wire::Selector>) -> Result<Selector, MalformedMessage> {
    use wire::selector::Kind;
    Ok(match need(need(selector, "selector")?.kind, "selector kind")? {
        Kind::Exact(number) => Selector::Exact(number),
        Kind::Latest(_) => Selector::Latest,
        Kind::LatestMinus(k) => Selector::LatestMinus(k),
        Kind::NthLatest(k) => Selector::NthLatest(k),
        Kind::AtLeast(number) => Selector::AtLeast(number),
    })
}

pub(super) fn selector_frame(selector: Selector) -> Option<wire::Selector> {
    use wire::selector::Kind;
    let kind = match selector {
        Selector::Exact(number) => Kind::Exact(number),
        Selector::Latest => Kind::Latest(true),
        Selector::LatestMinus(k) => Kind::LatestMinus(k),
        Selector::NthLatest(k) => Kind::NthLatest(k),
        Selector::AtLeast(number) => Kind::AtLeast(number),
    };
    Some(wire::Selector { kind: Some(kind) })
}

pub(super) fn sums(sums: Option<wire::ShardSums>) -> Result<ShardSums, MalformedMessage> {
    let sums = need(sums, "sums")?;
    let sum = |s: Option<wire::Sum>| need(s, "sum").map(sum);
    Ok(ShardSums {
        counted: sum(sums.counted)?,
        held: sum(sums.held)?,
        expected: sum(sums.expected)?,
    })
}

pub(super) fn sums_frame(sums: ShardSums) -> Option<wire::ShardSums> {
    let sum = |s: Sum| Some(sum_frame(s));
    Some(wire::ShardSums {
        counted: sum(sums.counted),
        held: sum(sums.held),
        expected: sum(sums.expected),
    })
}

pub(crate) fn sum(sum: wire::Sum) -> Sum {
    Sum([sum.low, sum.high])
}

pub(crate) fn sum_frame(sum: Sum) -> wire::Sum {
    wire::Sum { low: sum.0[0], high: sum.0[1] }
}

/// What a replica is doing, in a word.
pub(crate) fn state_name(state: ReplicaState) -> &'static str {
    match state {
        ReplicaState::Opening => "opening",
        ReplicaState::Recovering => "recovering",
        ReplicaState::Empty => "empty",
        ReplicaState::Reading => "reading",
        ReplicaState::Published => "published",
        ReplicaState::Sealed => "sealed",
        ReplicaState::Draining => "draining",
        ReplicaState::Installing => "installing",
        ReplicaState::Fenced => "fenced",
        ReplicaState::Closing => "closing",
        ReplicaState::Broken => "broken",
    }
}

/// What a replica may do, in a word.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Trainer => "trainer",
        Role::Rollout => "rollout",
        Role::Offload(_) => "offload",
        Role::Seed(_) => "seed",
    }
}

pub(super) fn source_shard_frame(m: &SourceShard) -> wire::SourceShard {
    wire::SourceShard {
        data_address: m.data_address.clone(),
        export: m.export.0,
        generation: m.generation.0,
        layout: m.layout.0.to_vec(),
    }
}

pub(super) fn listing_frame(listing: &Listing) -> wire::Listing {
    let versions = listing.versions.iter().map(|(version, replicas)| wire::Listed {
        version: Some(version_frame(*version)),
        replicas: replicas.iter().cloned().collect(),
    });
    wire::Listing { revision: Some(revision_frame(listing.revision)), versions: versions.collect() }
}

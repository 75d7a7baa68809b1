//! What the checkers of retention see in the books: which versions are retained, and which copies
//! count. Computed anew from snapshots, without the server's own code.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::Role;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState};
use weightcast_protocol::{Incarnation, Version};

/// Copies of which these shards have shown the digests without having read the bytes.
pub(crate) type EmptyCopies = BTreeMap<(Incarnation, Version), BTreeSet<u32>>;

/// Whether all shards of a replica are there, and none runs on a spot instance.
pub(crate) fn whole_and_lasting(replica: &ReplicaSnapshot) -> bool {
    replica.shards.len() == replica.num_shards as usize
        && replica.shards.iter().all(|shard| !shard.location.spot)
}

/// Versions with a copy that counts: sealed, not draining, whole, not on a spot instance, no seed.
pub(crate) fn countable(model: &ModelSnapshot) -> BTreeSet<Version> {
    countable_but(model, &EmptyCopies::new())
}

/// The same, without copies that do not exist.
pub(crate) fn countable_but(model: &ModelSnapshot, empty: &EmptyCopies) -> BTreeSet<Version> {
    let there = |replica: &ReplicaSnapshot| {
        replica.version.is_some_and(|version| !empty.contains_key(&(replica.incarnation, version)))
    };
    let counts = |replica: &&ReplicaSnapshot| {
        replica.state == ReplicaState::Sealed
            && whole_and_lasting(replica)
            && !is_seed(replica)
            && there(replica)
    };
    model.replicas.iter().filter(counts).filter_map(|replica| replica.version).collect()
}

/// Whether a version must survive: it is kept by name, or fewer than `retain` newer versions have a copy that counts. A
/// copy that is being given up still counts here: it may have counted until this event, and the
/// order within an event is not seen.
pub(crate) fn retained(model: &ModelSnapshot, version: Version) -> bool {
    retained_beside(model, version, &BTreeSet::new())
}

/// The same, but copies of `lost` count too: they counted until this event. A server that wakes
/// after its clients' leases loses many groups in one event, and a decision between the first loss
/// and the last was right when it was made (seeds 30574, 42250).
pub(crate) fn retained_beside(
    model: &ModelSnapshot,
    version: Version,
    lost: &BTreeSet<Version>,
) -> bool {
    model.exact.contains(&version) || is_newest_beside(model, version, lost)
}

/// Whether a version must survive as one of the newest, not by name.
pub(crate) fn is_newest(model: &ModelSnapshot, version: Version) -> bool {
    is_newest_beside(model, version, &BTreeSet::new())
}

fn is_newest_beside(model: &ModelSnapshot, version: Version, lost: &BTreeSet<Version>) -> bool {
    let going = |replica: &&ReplicaSnapshot| {
        let states = [ReplicaState::Draining, ReplicaState::Closing];
        states.contains(&replica.state) && whole_and_lasting(replica) && !is_seed(replica)
    };
    let mut newer = countable(model);
    newer.extend(lost);
    newer.extend(model.replicas.iter().filter(going).filter_map(|replica| replica.version));
    newer.iter().filter(|newer| **newer > version).count() < model.retain as usize
}

pub(crate) fn is_offload(replica: &ReplicaSnapshot) -> bool {
    matches!(replica.role, Role::Offload(_))
}

/// Whether a replica is a seed. A seed goes whatever versions are retained, so it is no copy that
/// counts.
pub(crate) fn is_seed(replica: &ReplicaSnapshot) -> bool {
    matches!(replica.role, Role::Seed(_))
}

/// The same life of a replica at another moment.
pub(crate) fn same_life(model: &ModelSnapshot, life: Incarnation) -> Option<&ReplicaSnapshot> {
    model.replicas.iter().find(|replica| replica.incarnation == life)
}

/// Versions that lost a copy that counted, because its group broke in this event. The order within
/// an event is not seen: a group that gave another copy up before the loss did nothing wrong.
pub(crate) fn lost_with_its_group(
    before: &ModelSnapshot,
    after: &ModelSnapshot,
) -> BTreeSet<Version> {
    let broken = before.replicas.iter().filter(|old| {
        let now = same_life(after, old.incarnation).map(|now| now.state);
        let going = matches!(old.state, ReplicaState::Closing | ReplicaState::Broken);
        !going && now.is_none_or(|now| now == ReplicaState::Broken)
    });
    let counts = |old: &&ReplicaSnapshot| {
        old.state == ReplicaState::Sealed && whole_and_lasting(old) && !is_seed(old)
    };
    broken.filter(counts).filter_map(|old| old.version).collect()
}

//! O3: a seed replica that holds its version is kept only while a rollout of its datacentre lacks
//! the version.

use weightcast_protocol::message::Role;
use weightcast_protocol::server::{ModelSnapshot, ReplicaSnapshot, ReplicaState};
use weightcast_protocol::{Time, Version};

use super::d3::datacentre;
use super::{Checker, Fact};
use crate::books::retained::is_seed;

pub(super) struct SeedNeeded;

impl Checker for SeedNeeded {
    fn name(&self) -> &'static str {
        "O3"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        let Fact::Books(snapshot) = fact else { return None };
        if snapshot.recovers {
            return None; // who lacks it may yet come over
        }
        snapshot.models.values().find_map(|model| {
            let kept = |r: &&ReplicaSnapshot| is_seed(r) && r.state == ReplicaState::Sealed;
            let needless = model.replicas.iter().filter(kept).find(|seed| {
                let place = datacentre(model, seed.incarnation);
                !seed.version.is_some_and(|version| lacked(model, place, version))
            })?;
            Some(format!("{} is kept, and nobody there lacks its version", needless.name))
        })
    }
}

fn lacked(model: &ModelSnapshot, place: Option<&str>, version: Version) -> bool {
    let over = [ReplicaState::Broken, ReplicaState::Closing];
    model.replicas.iter().any(|replica| {
        replica.role == Role::Rollout
            && !over.contains(&replica.state)
            && replica.shards.iter().any(|shard| shard.bytes.is_some())
            && datacentre(model, replica.incarnation) == place
            && replica.version.is_none_or(|held| held < version)
    })
}

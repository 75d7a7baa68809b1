//! What a group serves: a whole copy, or the part that it has of a copy while it is being filled.

use crate::message::SourceShard;
use crate::server::stores::group::Group;
use crate::{ContentDigest, Generation, Version};

impl Group {
    /// How to reach its shards for a version. Panics unless the group serves the version.
    #[track_caller]
    pub(in crate::server) fn source_shards(&self, version: Version) -> Vec<SourceShard> {
        let generations = self.generations(version).expect("sources hold a copy or are filled");
        let shards = self.members.values().zip(generations).map(|(member, generation)| {
            let registration = member.registration.expect("who serves is registered");
            SourceShard {
                data_address: member.data_address.clone(),
                export: registration.export,
                generation,
                layout: registration.layout,
            }
        });
        shards.collect()
    }

    /// Whether the group is being filled with a version, and all its shards serve what they have of
    /// it.
    pub(in crate::server) fn serves_filling(&self, version: Version) -> bool {
        self.held.is_none()
            && self.transfer().is_some_and(|transfer| {
                transfer.version == Some(version)
                    && transfer.filling.len() == self.num_shards as usize
            })
    }

    /// The catalog of a version that the group holds or reads.
    pub(in crate::server) fn catalog(&self, version: Version) -> Option<ContentDigest> {
        match self.held.as_ref().filter(|held| held.version == version) {
            Some(held) => Some(held.catalog),
            None => self.transfer()?.assignment.as_ref().map(|assignment| assignment.catalog),
        }
    }

    /// The catalog of a version that the group serves. Panics if it serves none.
    #[track_caller]
    pub(in crate::server) fn served_catalog(&self, version: Version) -> ContentDigest {
        self.catalog(version).expect("what is served has one")
    }

    /// Generation at which each shard serves a version, whole or in part.
    pub(in crate::server) fn generations(&self, version: Version) -> Option<Vec<Generation>> {
        if self.serves_filling(version) {
            return self.transfer().map(|t| t.filling.values().copied().collect());
        }
        let held = self.held.as_ref().filter(|_| self.holds(version));
        held.map(|held| held.generations.clone())
    }
}

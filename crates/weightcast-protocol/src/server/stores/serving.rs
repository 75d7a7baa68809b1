//! What a group serves: a whole copy, or what it has of one that it is being filled with.

use crate::message::SourceShard;
use crate::server::stores::group::Group;
use crate::{ContentDigest, Generation, Version};

impl Group {
    /// Where its shards serve a version.
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

    /// Whether all shards serve what they have of a version that they are being filled with.
    pub(in crate::server) fn serves_filling(&self, version: Version) -> bool {
        self.held.is_none()
            && self.transfer().is_some_and(|transfer| {
                transfer.version == Some(version)
                    && transfer.filling.len() == self.num_shards as usize
            })
    }

    /// The tensors of a version that it holds or reads.
    pub(in crate::server) fn catalog(&self, version: Version) -> Option<ContentDigest> {
        match self.held.as_ref().filter(|held| held.version == version) {
            Some(held) => Some(held.catalog),
            None => self.transfer()?.assignment.as_ref().map(|assignment| assignment.catalog),
        }
    }

    /// The same of a version that it serves.
    #[track_caller]
    pub(in crate::server) fn served_catalog(&self, version: Version) -> ContentDigest {
        self.catalog(version).expect("what is served has one")
    }

    /// At which each shard serves a version, whole or in part.
    pub(in crate::server) fn generations(&self, version: Version) -> Option<Vec<Generation>> {
        if self.serves_filling(version) {
            return self.transfer().map(|t| t.filling.values().copied().collect());
        }
        let held = self.held.as_ref().filter(|_| self.holds(version));
        held.map(|held| held.generations.clone())
    }
}

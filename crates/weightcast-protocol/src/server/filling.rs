//! Replicas that are read while they are being filled (pipelined replication, §4.3.2 of the paper).

use super::Server;
use super::group::Group;
use crate::message::{Assignment, SourceShard};
use crate::{Attempt, ContentDigest, Generation, Incarnation, OpSeq, SessionId, Version};

impl Server {
    /// A shard serves what it has read so far. Void if it has to begin anew meanwhile.
    pub(super) fn filling(
        &mut self,
        session: SessionId,
        seq: OpSeq,
        since: Attempt,
        generation: Generation,
    ) {
        let entry = &self.sessions[&session];
        let (incarnation, shard) = (entry.group, entry.shard);
        let group = self.groups.get_mut(&incarnation).expect("sessions have a group");
        let (num_shards, model) = (group.num_shards as usize, group.model.clone());
        if group.active != Some(seq) {
            return;
        }
        let Some(transfer) = self.transfer(incarnation) else { return };
        if transfer.void || transfer.since != since || since == Attempt(0) {
            return;
        }
        transfer.filling.insert(shard, generation);
        if transfer.filling.len() == num_shards {
            self.changed.insert(model);
        }
    }

    /// How to read a group's copy, or what it is being filled with; or the copies of several.
    pub(super) fn assignment(&self, sources: &[Incarnation], version: Version) -> Assignment {
        let group = &self.groups[&sources[0]];
        let shards = sources.iter().flat_map(|source| self.groups[source].source_shards(version));
        Assignment {
            version,
            catalog: group.catalog(version).expect("what is served has one"),
            replica: group.replica.clone(),
            in_flight: !group.holds(version),
            staged: false,
            helpers: sources[1..].iter().map(|s| self.groups[s].replica.clone()).collect(),
            shards: shards.collect(),
        }
    }
}

impl Group {
    /// Where its shards serve a version.
    fn source_shards(&self, version: Version) -> Vec<SourceShard> {
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
    pub(super) fn serves_filling(&self, version: Version) -> bool {
        self.held.is_none()
            && self.transfer().is_some_and(|transfer| {
                transfer.version == Some(version)
                    && transfer.filling.len() == self.num_shards as usize
            })
    }

    fn catalog(&self, version: Version) -> Option<ContentDigest> {
        match self.held.as_ref().filter(|held| held.version == version) {
            Some(held) => Some(held.catalog),
            None => self.transfer()?.assignment.as_ref().map(|assignment| assignment.catalog),
        }
    }

    /// At which each shard serves a version, whole or in part.
    pub(super) fn generations(&self, version: Version) -> Option<Vec<Generation>> {
        if self.serves_filling(version) {
            return self.transfer().map(|t| t.filling.values().copied().collect());
        }
        let held = self.held.as_ref().filter(|_| self.holds(version));
        held.map(|held| held.generations.clone())
    }
}

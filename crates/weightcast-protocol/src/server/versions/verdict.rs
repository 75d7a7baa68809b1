//! Verdicts: every shard is told whether its group's publication was accepted or refused, and again whenever it
//! asks. A refusal names replicas whose notes tell where the difference is, because the server sees only sums.

use crate::message::{Assignment, ServerMessage, SourceShard, Witnesses};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::VersionHandler;
use crate::server::stores::group::Group;
use crate::{Incarnation, Version};

/// Groups of more shards than this have the difference located by some of them only: each shard
/// that looks is sent the addresses of all shards, and asks all of them.
const WITNESSED_SHARDS: usize = 256;
/// How many shards of a large group look for the difference: the first ones.
const SPOKESMEN: u32 = 8;

impl VersionHandler<'_> {
    /// Tells a shard the verdict again, which it may have missed. Leaves out the witnesses, which
    /// make a long message.
    pub(super) fn tell_verdict(&mut self, incarnation: Incarnation, shard: u32) {
        self.tell(incarnation, shard, &Witnesses::default());
    }

    /// Tells all shards the verdict on the group's copy.
    pub(super) fn tell_all(&mut self, incarnation: Incarnation) {
        let owner = self.books().group(incarnation);
        let shards: Vec<u32> = owner.group.members.keys().copied().collect();
        let witnesses = match &owner.group.held {
            Some(held) if held.fenced.is_some() => owner.witnesses(held.version),
            _ => Witnesses::default(),
        };
        let many = shards.len() > WITNESSED_SHARDS;
        for shard in shards {
            match many && shard >= SPOKESMEN {
                true => self.tell_verdict(incarnation, shard),
                false => self.tell(incarnation, shard, &witnesses),
            }
        }
    }

    fn tell(&mut self, incarnation: Incarnation, shard: u32, witnesses: &Witnesses) {
        let group = self.groups.of(&incarnation);
        let Some(held) = &group.held else { return };
        let generation = held.generations.get(shard as usize).copied();
        let (Some(member), Some(generation)) = (group.members.get(&shard), generation) else {
            return;
        };
        let session = member.session;
        let message = match held.fenced.clone() {
            Some(error) => {
                let witnesses = Box::new(witnesses.clone());
                ServerMessage::Fenced { generation, error, witnesses }
            }
            None => ServerMessage::Sealed { generation },
        };
        self.connections.send(session, message);
    }
}

impl GroupCtx<'_> {
    /// The group's copy, which was refused, and a sealed copy of the version that it claimed to be.
    fn witnesses(self, version: Version) -> Witnesses {
        let sealed = self
            .holders(version)
            .find(|holder| holder.held.as_ref().is_some_and(|held| held.sealed));
        Witnesses { copy: self.group.copy_at(), holder: sealed.and_then(Group::copy_at) }
    }
}

impl Group {
    /// How to reach the group's copy, fenced or not; `None` unless the group is whole.
    fn copy_at(&self) -> Option<Assignment> {
        let held = self.held.as_ref().filter(|_| self.complete())?;
        let shards = self.members.values().zip(&held.generations).map(|(member, generation)| {
            let registration = member.registration?;
            Some(SourceShard {
                data_address: member.data_address.clone(),
                export: registration.export,
                generation: *generation,
                layout: registration.layout,
            })
        });
        Some(Assignment {
            version: held.version,
            catalog: held.catalog,
            replica: self.replica.clone(),
            in_flight: false,
            staged: false,
            helpers: Vec::new(),
            shards: shards.collect::<Option<_>>()?,
        })
    }
}

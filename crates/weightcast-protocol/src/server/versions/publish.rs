//! `publish`: a group's memory becomes visible as a version, once all shards have called (S8).

use crate::message::{Answer, Call, Role};
use crate::server::contexts::GroupCtx;
use crate::server::rooms::VersionHandler;
use crate::server::stores::group::Group;
use crate::server::stores::model::{Content, Model};
use crate::server::stores::observed::Observed;
use crate::{CallError, ContentDigest, Generation, Incarnation, Safeguard, Time, Version};

fn misuse(detail: String) -> CallError {
    CallError::Misuse { detail }
}

impl VersionHandler<'_> {
    pub(in crate::server) fn start_publish(
        &mut self,
        incarnation: Incarnation,
        number: u64,
    ) -> Result<(), CallError> {
        let publisher = self.books().group(incarnation);
        if !publisher.group.registered {
            return Err(misuse("nothing is registered; call register first".into()));
        }
        match &publisher.group.held {
            Some(held) if held.visible && held.version.number == number => Ok(()),
            Some(held) => {
                Err(misuse(format!("replica holds {}; call unpublish first", held.version)))
            }
            None => publisher.version_to_publish(number).map(|_| ()),
        }
    }

    pub(in crate::server) fn advance_publish(&mut self, now: Time, incarnation: Incarnation) {
        let publisher = self.books().group(incarnation);
        let transaction = publisher.group.pending();
        let whole = transaction.is_whole(publisher.group.num_shards)
            || !self.config.safeguards.on(Safeguard::WholePublish);
        if !whole || publisher.waits_for_digest() {
            return;
        }
        let calls: Vec<(u64, ContentDigest, Generation)> = transaction
            .arrived
            .values()
            .filter_map(|call| match call {
                Call::Publish { version, catalog, generation } => {
                    Some((*version, *catalog, *generation))
                }
                _ => None,
            })
            .collect();
        let result = self.publish(now, incarnation, &calls);
        self.calls().finish(incarnation, result.map(|version| Answer::Published { version }));
    }

    fn publish(
        &mut self,
        now: Time,
        incarnation: Incarnation,
        calls: &[(u64, ContentDigest, Generation)],
    ) -> Result<Version, CallError> {
        let publisher = self.books().group(incarnation);
        let GroupCtx { group, model, .. } = publisher;
        let (number, catalog, _) = calls[0];
        if let Some(shard) = calls.iter().position(|call| call.1 != catalog) {
            return Err(CallError::LayoutMismatch {
                replica: group.replica.clone(),
                detail: format!(
                    "shards 0 and {shard} registered different names, dtypes or shapes; all shards \
                     must declare the whole model's tensors"
                ),
            });
        }
        if let Some(held) = &group.held {
            // The group has published it before, and all shards repeat the call.
            return Ok(held.version);
        }
        let version = publisher.version_to_publish(number)?;
        check_catalog(model, version, catalog, &group.replica)?;
        if !model.known.contains_key(&version) {
            let content = Content { catalog, sum: None, since: Observed(now) };
            let name = group.model.clone();
            self.copies().remember(&name, version, content);
        }
        let mut generations: Vec<Generation> = calls.iter().map(|call| call.2).collect();
        // The mutant publishes while shards are missing.
        generations.resize(self.groups.of(&incarnation).num_shards as usize, Generation(0));
        self.copies().add(incarnation, version, catalog, generations);
        let group = self.groups.of_mut(&incarnation);
        let authored = group.role == Role::Trainer;
        group.copy_mut().authored = authored;
        self.counters.publishes += 1;
        Ok(version)
    }
}

impl GroupCtx<'_> {
    /// The version that the group means by a number, if the group may publish it.
    fn version_to_publish(&self, number: u64) -> Result<Version, CallError> {
        let GroupCtx { group, model, .. } = *self;
        if let Role::Offload(version) = group.role {
            if version.number != number {
                return Err(misuse(format!("an offload of {version} can't publish {number}")));
            }
            if !model.is_sealed(version) && !self.recovers() {
                return Err(misuse(format!(
                    "nobody who is here knows the digest of {version}, so nothing says that replica {} \
                     is a copy of it; let go of the copy",
                    group.replica
                )));
            }
            return Ok(version);
        }
        if matches!(group.role, Role::Rollout | Role::Seed(_)) {
            // A rollout can't define content. It publishes only a sealed version that it has
            // replicated.
            let replicated = group.replicated.filter(|version| version.number == number);
            // A group that came over has replicated its version in an earlier term, which is not
            // known here.
            let came_over = group.members.values().any(|member| member.announced.is_some());
            let version = replicated.or_else(|| model.newest_of(number).filter(|_| !came_over));
            return version.filter(|version| model.is_sealed(*version)).ok_or_else(|| {
                misuse(format!(
                    "replica {} is a rollout and can't publish version {number}, which no trainer \
                     has published",
                    group.replica
                ))
            });
        }
        let version = Version { epoch: group.epoch, number };
        check_newest(model, group, version)?;
        Ok(version)
    }

    /// Whether the group is an offload replica of a version whose sum is not known here, while
    /// clients that know the sum may still come over. An offload can't define content: the copied
    /// memory may have been anything (S1).
    pub(in crate::server) fn waits_for_digest(&self) -> bool {
        let version = self.group.offloads();
        self.recovers() && version.is_some_and(|version| !self.model.is_sealed(version))
    }
}

/// Refuses a trainer's version that rollouts would not take for the newest. Otherwise they would
/// keep what they have without a word to the trainer.
fn check_newest(model: &Model, group: &Group, version: Version) -> Result<(), CallError> {
    if model.known.contains_key(&version) {
        return Ok(());
    }
    if group.epoch < model.epoch && model.run_has_begun() {
        return Err(misuse(format!(
            "trainer {} publishes into run {}, but run {} has begun since, which another trainer \
             opened with epoch=\"new\": rollouts follow that one. Open all trainers of a run before \
             its first publish, give only one of them epoch=\"new\", or give another experiment a \
             model or job name of its own",
            group.replica, group.epoch, model.epoch
        )));
    }
    let last = Version { epoch: group.epoch, number: u64::MAX };
    match model.known.range(version..=last).next_back() {
        Some((newest, _)) => Err(misuse(format!(
            "version {version} is older than {newest}, which was published before: rollouts that hold \
             {newest} would never take it. Publish a number above {}, or open the trainer with \
             epoch=\"new\" to start a run whose versions are newer than all before",
            newest.number
        ))),
        None => Ok(()),
    }
}

/// A version has one set of logical tensors for ever (S7).
fn check_catalog(
    model: &Model,
    version: Version,
    catalog: ContentDigest,
    replica: &str,
) -> Result<(), CallError> {
    match model.known.get(&version) {
        Some(content) if content.catalog != catalog => Err(CallError::ContentMismatch {
            version,
            replica: replica.to_owned(),
            detail: "the names, dtypes or shapes of its tensors differ".to_owned(),
        }),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::props::{CATALOG, server, version};
    use crate::{Epoch, Sum};

    /// What a replica may publish that has defined nothing: what it replicated, or, unless it has come over
    /// and that is not known, what there is of this number; sealed by a trainer.
    #[test]
    fn a_rollout_publishes_what_is_sealed_and_what_it_means() {
        for role in [Role::Rollout, Role::Seed(version(1))] {
            for replicated in [None, Some(0), Some(1)] {
                for came_over in [false, true] {
                    for (sealed_old, sealed_new) in [(true, true), (true, false), (false, true)] {
                        let mut server = server();
                        let group = server.prop("g", 1);
                        let of = |epoch| Version { epoch: Epoch(epoch), number: 5 };
                        for (epoch, sealed) in [(0, sealed_old), (1, sealed_new)] {
                            let sum = sealed.then_some(Sum([1, 1]));
                            server.copies().remember(
                                "policy",
                                of(epoch),
                                Content { catalog: CATALOG, sum, since: Observed(Time(0)) },
                            );
                        }
                        server.at(group).role = role;
                        server.at(group).replicated = replicated.map(of);
                        let member = server.at(group).members.get_mut(&0).expect("a prop");
                        member.announced = came_over.then_some(crate::message::Announcement {
                            answered: crate::OpSeq(1),
                            generation: Generation(1),
                            registration: None,
                            held: None,
                            retains: std::collections::BTreeSet::new(),
                        });
                        let meant = replicated.or((!came_over).then_some(1));
                        let sealed = |epoch: &u64| [sealed_old, sealed_new][*epoch as usize];
                        let expected = meant.filter(sealed).map(of);
                        let said = server.books().group(group).version_to_publish(5);
                        assert_eq!(said.ok(), expected, "{replicated:?} {came_over}");
                        // Another number is none that it replicated.
                        assert!(server.books().group(group).version_to_publish(6).is_err());
                    }
                }
            }
        }
    }

    #[test]
    fn an_offload_publishes_its_version_and_only_a_trainer_defines_one() {
        for role in [Role::Trainer, Role::Offload(version(5))] {
            let mut server = server();
            let group = server.prop("g", 1);
            server.at(group).role = role;
            if role != Role::Trainer {
                assert!(server.books().group(group).version_to_publish(5).is_err(), "of what?");
                let content =
                    Content { catalog: CATALOG, sum: Some(Sum([1, 1])), since: Observed(Time(0)) };
                server.copies().remember("policy", version(5), content);
            }
            for (number, may) in [(4, role == Role::Trainer), (5, true), (6, role == Role::Trainer)]
            {
                let said = server.books().group(group).version_to_publish(number);
                assert_eq!(said.ok(), may.then_some(version(number)), "{role:?}");
            }
            let call = (5, CATALOG, Generation(3));
            assert_eq!(server.versions().publish(Time(9), group, &[call]), Ok(version(5)));
            let held = server.groups[&group].held.as_ref().expect("just published");
            assert_eq!((held.authored, held.sealed), (role == Role::Trainer, false));
            assert_eq!(held.generations, [Generation(3)]);
            // Once more changes nothing, at whatever generation.
            assert_eq!(
                server.versions().publish(Time(9), group, &[(5, CATALOG, Generation(4))]),
                Ok(version(5))
            );
            let held = server.groups[&group].held.as_ref().expect("just published");
            assert_eq!((held.generations[0], server.counters.publishes), (Generation(3), 1));
        }
    }

    /// The memory that was copied may have been anything, and who knows better may come a moment later.
    #[test]
    fn an_offload_whose_version_is_not_known_waits_for_those_who_may_come_over() {
        for (recovers, sum, role, expected) in [
            (true, None, Role::Offload(version(5)), None),
            (true, Some(Sum([1, 1])), Role::Offload(version(5)), Some(true)),
            (false, None, Role::Offload(version(5)), Some(false)),
            (false, Some(Sum([1, 1])), Role::Offload(version(5)), Some(true)),
            (true, None, Role::Trainer, Some(true)),
        ] {
            let mut server = server();
            let group = server.prop("g", 1);
            server.at(group).role = role;
            let catalog = CATALOG;
            server.copies().remember(
                "policy",
                version(5),
                Content { catalog, sum, since: Observed(Time(0)) },
            );
            server.terms.window_until = recovers.then_some(crate::Time(99));
            let call = Call::Publish { version: 5, catalog, generation: Generation(3) };
            let arrived = std::iter::once((0, call.clone())).collect();
            server.has_called(group, call).arrived = arrived;
            let begins = server.versions().start_publish(group, 5).is_ok();
            assert_eq!(begins, expected != Some(false), "{recovers}, {sum:?}, {role:?}");
            server.versions().advance_publish(Time(9), group);
            let ended = server.groups[&group].active.is_none();
            let held = server.groups[&group].held.is_some();
            assert_eq!(ended.then_some(held), expected, "{recovers}, {sum:?}, {role:?}");
        }
    }
}

//! Claims: a group that commits or announces a copy says that it holds the bytes. The sums that it
//! reports prove nothing: a liar can get them from other shards' notes, or from another claimant.
//! Retention relies on no copy that has shown no more than its sums (A1, A2).
//!
//! What a trainer publishes first *is* the version, so that copy is proved. Any other copy is a
//! claim until it was compared with a proved one: the shards of both groups are asked at the same
//! time to sum the same sample of the tensors under the same keys, all drawn from an unpredictable
//! number. Equal bytes have equal sums in any layouts.
//!
//! A comparison starts as soon as a retained version has fewer than two proved holders, so that a
//! group that gives its copy up seldom has to wait for one. If the group has to wait, it waits for
//! one answer; its copy is offloaded if the answer does not prove another copy. A group that did
//! not answer is asked again later. Where no copy is proved, as after a failover, two claimants are
//! compared, and both are believed if they are equal: two liars would have to conspire to give the
//! same answer.

use crate::message::ServerMessage;
use crate::server::rooms::{Books, DurabilityHandler};
use crate::server::stores::challenges::{Challenge, ChallengeSide};
use crate::server::stores::group::Group;
use crate::server::stores::model::Model;
use crate::server::stores::sessions::MemberId;
use crate::server::stores::timers::Timer;
use crate::server::stores::trust::Trust;
use crate::server::stores::unshown::RETRY;
use crate::{Generation, Incarnation, Nonce, Span, Time, Version};

/// How long shards have to answer: many times what reading a few megabytes takes, and a small part
/// of the time in which a copy can be offloaded instead.
const ANSWER: Span = Span::from_secs(5);

impl Group {
    /// How far the group's copy of a version is trusted; `None` unless the copy is sealed and not
    /// refused, and all shards can be asked.
    fn trust(&self, version: Version) -> Option<Trust> {
        let held = self.held.as_ref().filter(|held| held.version == version && held.sealed)?;
        let broken = self.over.as_ref().is_some_and(|over| !over.closing);
        let asks = held.fenced.is_none() && self.complete() && !broken;
        asks.then_some(held.trust)
    }

    fn has_trust(&self, version: Version, trust: Trust) -> bool {
        self.trust(version) == Some(trust)
    }

    /// Whether the group still has the copy that it was asked about.
    fn can_answer(&self, side: &ChallengeSide, version: Version) -> bool {
        let held = self.held.as_ref().filter(|_| self.trust(version).is_some());
        held.is_some_and(|held| held.generations == side.generations)
    }
}

impl DurabilityHandler<'_> {
    /// Something has changed in a model: starts the comparisons that may be needed.
    pub(in crate::server) fn review_claims(&mut self, now: Time, name: &str) {
        let Some(model) = self.models.get_mut(name).filter(|m| m.retention.is_asked()) else {
            return;
        };
        let (visible, groups) = (&model.visible, &self.groups);
        model.unshown.retain(|(version, one, other)| {
            let live = groups.contains(one) && groups.contains(other);
            live && visible.contains_key(version)
        });
        let versions: Vec<Version> = model.visible.keys().copied().collect();
        for version in versions {
            self.forgive(name, version);
            self.challenge(now, name, version);
        }
    }

    /// Refuted copies become claims again once no proved copy is left. A copy is refuted by a
    /// proved one, and when that has gone, nobody can tell whose memory had changed: it may have
    /// been the publisher's. Claims can be compared with each other.
    fn forgive(&mut self, name: &str, version: Version) {
        let model = self.models.of(name);
        let leaving = model.retention.held_back.iter().map(|group| self.groups.of(group));
        let proved = leaving
            .chain(self.books().holders_of(model, version))
            .any(|group| group.has_trust(version, Trust::Proved));
        if proved {
            return;
        }
        let refuted = self.books().holders_of(model, version);
        let refuted = refuted.filter(|group| group.has_trust(version, Trust::Refuted));
        let refuted: Vec<Incarnation> = refuted.map(|group| group.incarnation).collect();
        for group in refuted {
            self.groups.of_mut(&group).copy_mut().trust = Trust::Claimed;
        }
    }

    /// Whether a comparison runs that may prove another copy of a version that its holder wants to
    /// give up. The holder waits for one answer only.
    pub(super) fn awaits_proof(&mut self, now: Time, owner: Incarnation, version: Version) -> bool {
        let name = self.groups.of(&owner).model.clone();
        self.challenge(now, &name, version);
        let model = self.models.of(&name);
        let in_vain = model.unshown.beside(version, owner)
            || self
                .books()
                .holders_of(model, version)
                .any(|group| group.has_trust(version, Trust::Refuted));
        !in_vain && self.is_compared(owner, version)
    }

    /// Whether copies of a version that a group holds are being compared now.
    pub(super) fn is_compared(&self, owner: Incarnation, version: Version) -> bool {
        let name = &self.groups.of(&owner).model;
        self.challenges.values().any(|c| c.model == *name && c.version == version)
    }

    /// Starts a comparison of the version if one is due and none runs.
    fn challenge(&mut self, now: Time, name: &str, version: Version) {
        self.challenges.retain(|nonce, challenge| {
            let stands = [&challenge.claimant, &challenge.reference].into_iter().all(|side| {
                let group = self.groups.get(&side.group);
                group.is_some_and(|group| group.can_answer(side, challenge.version))
            });
            if !stands {
                self.timers.cancel(Timer::Proof(*nonce));
            }
            stands
        });
        if self.challenges.values().any(|c| c.model == name && c.version == version) {
            return;
        }
        let compared = self.books().to_compare(now, self.models.of(name), version);
        let Some((claimant, reference)) = compared else { return };
        let sides = [claimant, reference].map(|group| ChallengeSide::of(self.groups.of(&group)));
        let [Some(claimant), Some(reference)] = sides else { return };
        let nonce = self.challenges.next_nonce(self.config.secret, self.terms.own.term);
        let model = name.to_owned();
        let challenge = Challenge { model, version, claimant, reference };
        self.timers.set(now + ANSWER, Timer::Proof(nonce));
        self.counters.challenges += 1;
        let asked = [challenge.claimant.group, challenge.reference.group]
            .map(|group| self.groups.of(&group).member_ids());
        self.challenges.insert(nonce, challenge);
        asked.into_iter().flatten().for_each(|member| self.remind_challenges(member));
    }

    /// Sends a member the challenges that it has not answered.
    pub(in crate::server) fn remind_challenges(&mut self, to: MemberId) {
        let mut messages = Vec::new();
        for (nonce, challenge) in self.challenges.iter() {
            for side in [&challenge.claimant, &challenge.reference] {
                if side.group == to.group
                    && !side.answers.contains_key(&to.shard)
                    && let Some(generation) = side.generations.get(to.shard as usize).copied()
                {
                    messages.push(ServerMessage::Challenge { generation, nonce: *nonce });
                }
            }
        }
        messages.into_iter().for_each(|message| self.connections.send(to.session, message));
    }

    /// A shard has answered a challenge.
    pub(in crate::server) fn proof(
        &mut self,
        now: Time,
        from: MemberId,
        generation: Generation,
        nonce: Nonce,
        sum: u64,
    ) {
        let MemberId { group, shard, .. } = from;
        let Some(challenge) = self.challenges.get_mut(&nonce) else { return };
        for side in [&mut challenge.claimant, &mut challenge.reference] {
            if side.group == group && side.generations.get(shard as usize) == Some(&generation) {
                side.answers.entry(shard).or_insert(sum);
            }
        }
        if challenge.claimant.shown().is_some() && challenge.reference.shown().is_some() {
            self.decide(now, nonce);
        }
    }

    /// Copies whose comparison came to nothing may be compared again.
    pub(in crate::server) fn retry_timer(&mut self, claimant: Incarnation) {
        if let Some(group) = self.groups.get(&claimant) {
            self.agenda.note_change(&group.model);
        }
    }

    /// The group has given its copy up: the other group of its comparison has to be compared with
    /// another one.
    pub(in crate::server) fn note_gone(&mut self, incarnation: Incarnation) {
        let mut asked =
            self.challenges.values().flat_map(|c| [c.claimant.group, c.reference.group]);
        if asked.any(|group| group == incarnation) {
            self.agenda.note_change(&self.groups.of(&incarnation).model);
        }
    }

    /// Both groups have answered, or the time to answer is over.
    pub(in crate::server) fn decide(&mut self, now: Time, nonce: Nonce) {
        let Some(challenge) = self.challenges.remove(&nonce) else { return };
        let Challenge { model: name, version, claimant, reference } = challenge;
        self.timers.cancel(Timer::Proof(nonce));
        let equal = match (claimant.shown(), reference.shown()) {
            (Some(one), Some(other)) => Some(one == other),
            _ => None,
        };
        let known = self.groups.get(&reference.group);
        let by_proof = known.is_some_and(|group| group.has_trust(version, Trust::Proved));
        let pair = (version, claimant.group, reference.group);
        if let Some(model) = self.models.get_mut(&name) {
            if equal.is_none() || (equal == Some(false) && !by_proof) {
                // Nobody knows which copy is wrong: a third copy may tell, or the same two later.
                model.unshown.insert(pair, now + RETRY);
                if self.groups.contains(&claimant.group) {
                    self.timers.set(now + RETRY, Timer::Retry(claimant.group));
                }
            } else {
                model.unshown.remove(&pair);
            }
        }
        match equal {
            Some(true) => {
                self.counters.proofs += 1;
                self.believe(&claimant, Trust::Proved);
                self.believe(&reference, Trust::Proved);
            }
            Some(false) if by_proof => {
                self.counters.refuted += 1;
                self.believe(&claimant, Trust::Refuted);
            }
            _ => {}
        }
        self.agenda.note_change(&name); // which others are to be compared is looked at next
    }

    /// Sets how far a copy is trusted, if it is still the copy that was asked about.
    fn believe(&mut self, side: &ChallengeSide, trust: Trust) {
        let held = self.groups.get_mut(&side.group).and_then(|group| group.held.as_mut());
        if let Some(held) = held.filter(|held| held.generations == side.generations) {
            held.trust = trust;
        }
    }
}

impl<'a> Books<'a> {
    fn holders_of(self, model: &'a Model, version: Version) -> impl Iterator<Item = &'a Group> {
        model.holders(version).map(move |group| self.groups.of(&group))
    }

    /// Which two groups to compare, if a comparison is of use: the claimant and the reference.
    fn to_compare(
        self,
        now: Time,
        model: &Model,
        version: Version,
    ) -> Option<(Incarnation, Incarnation)> {
        let counting = |trust| {
            let of = self.holders_of(model, version).filter(|group| group.counts());
            of.filter(move |group| group.has_trust(version, trust))
        };
        let claimants: Vec<Incarnation> =
            counting(Trust::Claimed).map(|group| group.incarnation).collect();
        if counting(Trust::Proved).nth(1).is_some() || !self.is_retained(model, version) {
            return None;
        }
        // A group that gives its copy up is not listed any more, but it is the one to compare with.
        let leaving = model.retention.held_back.iter().map(|group| self.groups.of(group));
        let others: Vec<&Group> = leaving.chain(self.holders_of(model, version)).collect();
        let beside = |trust| {
            let of = others.iter().filter(move |group| group.has_trust(version, trust));
            of.map(|group| group.incarnation)
        };
        let proved: Vec<Incarnation> = beside(Trust::Proved).collect();
        let references = match proved.is_empty() {
            true => beside(Trust::Claimed).collect(),
            false => proved,
        };
        let first = claimants.iter().find_map(|claimant| {
            let beside = references.iter().find(|reference| {
                *reference != claimant && !model.unshown.contains(version, *claimant, **reference)
            })?;
            Some((*claimant, *beside))
        });
        // Pairs that were compared in vain come after pairs that were not compared yet.
        first.or_else(|| {
            let again = model.unshown.due(now, |(of, one, other)| {
                *of == version && claimants.contains(one) && references.contains(other)
            });
            again.map(|(_, one, other)| (one, other))
        })
    }
}

#[cfg(test)]
mod tests;

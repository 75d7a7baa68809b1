//! Shards that may take part in a push: who is there, who accepts, and who has the version already.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::Version;

use super::outcome::{PushEnd, PushedShard};
use super::word::PushOffer;
use crate::serve::Status;

/// A shard that is there.
#[derive(Clone, Debug, Default)]
struct CandidateShard {
    address: String,
    /// How often it was asked.
    asked: u32,
    offer: Option<PushOffer>,
}

/// How often a shard is asked before a push to all that accept goes on without its answer.
const ENOUGH: u32 = 4;

/// Replicas that may take part, by name.
pub(super) struct Candidates {
    version: Version,
    /// Replicas that are waited for; `None`: any rollout that accepts.
    wanted: Option<BTreeSet<String>>,
    replicas: BTreeMap<String, BTreeMap<u32, CandidateShard>>,
    /// Replicas that take part, or have the version.
    settled: BTreeMap<String, PushEnd>,
}

/// A replica all of whose shards accept, in order.
pub(super) struct WillingReplica {
    pub(super) name: String,
    /// Each with its address.
    pub(super) shards: Vec<(PushOffer, String)>,
}

impl Candidates {
    pub(super) fn new(version: Version, wanted: Option<Vec<String>>) -> Self {
        let wanted = wanted.map(|names| names.into_iter().collect());
        Self { version, wanted, replicas: BTreeMap::new(), settled: BTreeMap::new() }
    }

    /// Takes over who is there, with memory; `own` is the driver's replica.
    pub(super) fn see(&mut self, status: &Status, model: &str, own: &str) {
        let of_model = status.models.iter().find(|of| of.name == model);
        let replicas = of_model.into_iter().flat_map(|of| &of.replicas);
        let mut there = BTreeMap::new();
        for replica in replicas.filter(|replica| replica.name != own) {
            let meant = match &self.wanted {
                Some(wanted) => wanted.contains(&replica.name),
                None => replica.role == "rollout",
            };
            let whole = replica.shards.len() == replica.num_shards as usize;
            if !meant || !whole || replica.shards.iter().any(|shard| shard.bytes == 0) {
                continue;
            }
            let known = self.replicas.remove(&replica.name).unwrap_or_default();
            let shards = replica.shards.iter().map(|shard| {
                let same = known.get(&shard.shard).filter(|of| of.address == shard.data_address);
                let fresh = || CandidateShard {
                    address: shard.data_address.clone(),
                    ..CandidateShard::default()
                };
                (shard.shard, same.cloned().unwrap_or_else(fresh))
            });
            there.insert(replica.name.clone(), shards.collect());
        }
        self.replicas = there;
    }

    /// Shards to be asked now: replica, number, address.
    pub(super) fn take_questions(&mut self) -> Vec<(String, u32, String)> {
        let mut asked = Vec::new();
        for (name, shards) in &mut self.replicas {
            if self.settled.contains_key(name) {
                continue;
            }
            for (number, shard) in shards {
                shard.asked = shard.asked.saturating_add(1);
                asked.push((name.clone(), *number, shard.address.clone()));
            }
        }
        asked
    }

    /// A shard's answer. Returns its replica, once all shards of it accept: then it takes part.
    pub(super) fn offered(&mut self, offer: PushOffer) -> Option<WillingReplica> {
        let (name, number) = (offer.replica.clone(), offer.shard);
        if self.settled.contains_key(&name) {
            return None;
        }
        let shards = self.replicas.get_mut(&name)?;
        shards.get_mut(&number)?.offer = Some(offer);
        let offers = shards.values().map(|shard| shard.offer.as_ref());
        let offers: Vec<&PushOffer> = offers.collect::<Option<_>>()?;
        if offers.iter().all(|offer| offer.holds == Some(self.version)) {
            self.settled.insert(name, PushEnd::Held);
            return None;
        }
        let fits = |offer: &&PushOffer| {
            offer.accepts
                && offer.layouts == offers[0].layouts
                && offer.layouts.len() == shards.len()
        };
        if !offers.iter().all(fits) {
            return None;
        }
        let shards = shards.values().filter_map(|of| Some((of.offer.clone()?, of.address.clone())));
        let willing = WillingReplica { name: name.clone(), shards: shards.collect() };
        self.settled.insert(name, PushEnd::New);
        Some(willing)
    }

    /// Whether nobody is waited for any more.
    pub(super) fn is_settled(&self, joined: bool) -> bool {
        match &self.wanted {
            Some(wanted) => wanted.iter().all(|name| self.settled.contains_key(name)),
            None => (joined || !self.settled.is_empty()) && self.is_answered(),
        }
    }

    /// Whether all that are there, and meant, have answered or were asked often enough.
    pub(super) fn is_answered(&self) -> bool {
        let open = self.replicas.iter().filter(|(name, _)| !self.settled.contains_key(*name));
        let mut shards = open.flat_map(|(_, shards)| shards.values());
        let asked = |shard: &CandidateShard| shard.offer.is_some() || shard.asked >= ENOUGH;
        let there = !self.replicas.is_empty() || !self.settled.is_empty();
        there && shards.all(asked)
    }

    /// What became of those that did not take part: of all that were asked with `all`, else of those that were meant by name.
    pub(super) fn others(&self, all: bool) -> Vec<PushedShard> {
        let of = |replica: &str, shard, end| PushedShard {
            replica: replica.to_owned(),
            shard,
            end,
            bytes: 0,
            seconds: 0.0,
            moved: 0,
            detail: String::new(),
        };
        let mut others = Vec::new();
        for (name, shards) in &self.replicas {
            let end = match self.settled.get(name) {
                Some(PushEnd::Held) => PushEnd::Held,
                Some(_) => continue,
                None if all || self.wanted.is_some() => PushEnd::Declined,
                None => continue,
            };
            others.extend(shards.keys().map(|shard| of(name, *shard, end)));
        }
        let wanted = self.wanted.iter().flatten();
        let there =
            |name: &&String| self.replicas.contains_key(*name) || self.settled.contains_key(*name);
        others.extend(wanted.filter(|name| !there(name)).map(|name| of(name, 0, PushEnd::Absent)));
        others
    }
}

#[cfg(test)]
mod tests;

//! A model: its versions, who holds them, and who waits for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use crate::limits::DEPARTED;
use crate::message::Listing;
use crate::server::stores::retention::Retention;
use crate::server::stores::seeding::Seeding;
use crate::server::stores::unshown::Unshown;
use crate::{ContentDigest, Epoch, Incarnation, Revision, Selector, Sum, Version};

/// Everything the server knows of one model beside its groups.
#[derive(Clone, Debug, Default)]
pub(in crate::server) struct Model {
    pub(in crate::server) revision: Revision,
    /// How many groups it has, also at their end.
    pub(in crate::server) groups: usize,
    /// The newest run.
    pub(in crate::server) epoch: Epoch,
    /// The live group of each replica name.
    pub(in crate::server) replicas: BTreeMap<String, Incarnation>,
    /// Content of every version seen in this term, bounded (S7).
    pub(in crate::server) known: BTreeMap<Version, Content>,
    /// Who holds which version for all to see (S8): replica names and groups.
    pub(in crate::server) visible: BTreeMap<Version, BTreeMap<String, Incarnation>>,
    /// Groups whose call waits for a version, a free source or a revision, first come first served.
    pub(in crate::server) waiting: BTreeMap<u64, Incarnation>,
    /// Groups that have read a version beside their memory and put it in place next.
    pub(in crate::server) landing: BTreeSet<Incarnation>,
    /// Clients may still come over from an earlier term, with versions that are not known here.
    pub(in crate::server) recovers: bool,
    /// Rollouts that have left, the last few, with what they held.
    pub(in crate::server) departed: VecDeque<(String, Version)>,
    /// What is to survive.
    pub(in crate::server) retention: Retention,
    /// Copies that could not be compared: who was to show the bytes, and beside whom.
    pub(in crate::server) unshown: Unshown,
    /// What crosses to which datacentre in the background.
    pub(in crate::server) seeding: Seeding,
    /// What there was when a listing was last asked for.
    pub(in crate::server) listed: Option<Arc<Listing>>,
}

/// What a version is, whatever the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) struct Content {
    /// Its logical tensors.
    pub(in crate::server) catalog: ContentDigest,
    /// Its folded digest, once a replica has sealed it.
    pub(in crate::server) sum: Option<Sum>,
}

/// What a selector means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Resolution {
    /// This version, which is available.
    Available(Version),
    /// Nothing yet; it may come.
    NotYet,
    /// Nothing, and waiting does not help.
    Gone,
}

impl Model {
    /// Whether the version's digest is known here: then a copy of it can be told from another.
    pub(in crate::server) fn is_sealed(&self, version: Version) -> bool {
        self.known.get(&version).is_some_and(|known| known.sum.is_some())
    }

    /// Resolves a selector among the versions available now (G3: once per transaction).
    pub(in crate::server) fn resolve(&self, selector: Selector) -> Resolution {
        let available: Vec<Version> = self.visible.keys().copied().collect();
        if let Some(version) = selector.pick(&available) {
            return Resolution::Available(version);
        }
        let gone = match selector {
            Selector::Exact(number) => self.newest_known().is_some_and(|newest| {
                // A version of an older run may yet be published by the new one.
                newest.epoch == self.epoch
                    && number <= newest.number
                    && !self.is_offloading(self.current(number))
            }),
            Selector::LatestMinus(_) => !available.is_empty(),
            Selector::Latest | Selector::NthLatest(_) | Selector::AtLeast(_) => false,
        };
        if gone && !self.recovers { Resolution::Gone } else { Resolution::NotYet }
    }

    /// What one version means to a seed, which is for that one only.
    pub(in crate::server) fn resolve_exactly(&self, version: Version) -> Resolution {
        match self.visible.contains_key(&version) {
            true => Resolution::Available(version),
            false if self.recovers => Resolution::NotYet,
            false => Resolution::Gone,
        }
    }

    /// Whether the last copy of a version, which is given up, is being copied aside: it will be held
    /// again soon, or that fails.
    pub(in crate::server) fn is_offloading(&self, version: Version) -> bool {
        self.retention.asked.contains_key(&version)
    }

    fn current(&self, number: u64) -> Version {
        Version { epoch: self.epoch, number }
    }

    /// The newest version that was published or came over.
    pub(in crate::server) fn newest_known(&self) -> Option<Version> {
        self.known.last_key_value().map(|(version, _)| *version)
    }

    /// Whether something was published in the newest run. Until then trainers that start a run
    /// start the same one: the replicas of a data-parallel trainer open one after the other.
    pub(in crate::server) fn run_has_begun(&self) -> bool {
        self.epoch == Epoch(0) || self.newest_known().is_some_and(|v| v.epoch == self.epoch)
    }

    /// Who holds a version for all to see, in order of their names.
    pub(in crate::server) fn holders(
        &self,
        version: Version,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        self.visible.get(&version).into_iter().flat_map(|holders| holders.values().copied())
    }

    /// The first who holds an available version.
    #[track_caller]
    pub(in crate::server) fn first_holder(&self, version: Version) -> Incarnation {
        self.holders(version).next().expect("what is available has a holder")
    }

    /// The newest available version.
    pub(in crate::server) fn latest(&self) -> Option<Version> {
        self.visible.last_key_value().map(|(version, _)| *version)
    }

    /// The newest run's version of this number.
    pub(in crate::server) fn newest_of(&self, number: u64) -> Option<Version> {
        self.known.keys().rev().find(|version| version.number == number).copied()
    }

    /// A rollout has left that held this.
    pub(in crate::server) fn depart(&mut self, replica: &str, version: Version) {
        self.departed.push_back((replica.to_owned(), version));
        if self.departed.len() > DEPARTED {
            self.departed.pop_front();
        }
    }

    /// Makes a replica visible.
    pub(in crate::server) fn show(&mut self, version: Version, replica: &str, group: Incarnation) {
        self.visible.entry(version).or_default().insert(replica.to_owned(), group);
        self.revision = self.revision.next();
    }

    /// Takes a replica out of sight.
    pub(in crate::server) fn hide(&mut self, version: Version, replica: &str) {
        if let Some(holders) = self.visible.get_mut(&version) {
            holders.remove(replica);
            if holders.is_empty() {
                self.visible.remove(&version);
            }
        }
        self.revision = self.revision.next();
    }

    /// What there is, at this revision (S10). Made once per revision: it names every holder.
    pub(in crate::server) fn listing(&mut self) -> Arc<Listing> {
        let current = self.listed.as_ref().filter(|listed| listed.revision == self.revision);
        let listing = current.map_or_else(|| Arc::new(self.new_listing()), Arc::clone);
        self.listed = Some(Arc::clone(&listing));
        listing
    }

    fn new_listing(&self) -> Listing {
        let versions = self.visible.iter();
        let versions = versions.map(|(version, of)| (*version, of.keys().cloned().collect()));
        Listing { revision: self.revision, versions: versions.collect() }
    }
}

#[cfg(test)]
#[path = "model_tests.rs"]
mod tests;

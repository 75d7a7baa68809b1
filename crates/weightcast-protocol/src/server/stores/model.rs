//! A model: its versions, their holders, and the calls that wait for them.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::engine_update::{FleetRegister, RoutingTable};
use crate::limits::DEPARTED;
use crate::message::Listing;
use crate::server::stores::hosts::Hosts;
use crate::server::stores::observed::Observed;
use crate::server::stores::retention::Retention;
use crate::server::stores::seeding::Seeding;
use crate::server::stores::unshown::Unshown;
use crate::{ContentDigest, Epoch, Incarnation, Revision, Selector, Sum, Time, Version};

/// Everything the server knows of one model beside its groups.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Model {
    pub(in crate::server) revision: Revision,
    /// How many groups it has, including groups at their end.
    pub(in crate::server) groups: usize,
    /// The newest run.
    pub(in crate::server) epoch: Epoch,
    /// The live group of each replica name.
    pub(in crate::server) replicas: BTreeMap<String, Incarnation>,
    /// Where the shards of its groups are, of groups at their end too.
    pub(in crate::server) hosts: Hosts,
    /// Content of every version seen in this term, bounded (S7).
    pub(in crate::server) known: BTreeMap<Version, Content>,
    /// Listed copies of each version (S8): replica names and groups.
    pub(in crate::server) visible: BTreeMap<Version, BTreeMap<String, Incarnation>>,
    /// Groups whose call waits for a version, a free source or a revision; first come, first
    /// served.
    pub(in crate::server) waiting: BTreeMap<u64, Incarnation>,
    /// Groups that have read a version beside their memory, and install it next.
    pub(in crate::server) landing: BTreeSet<Incarnation>,
    /// Clients may still come over from an earlier term, with versions that are not known here.
    pub(in crate::server) recovers: bool,
    /// The last few rollouts that have left, and the version that each held.
    pub(in crate::server) departed: VecDeque<(String, Version)>,
    /// Versions that are to survive.
    pub(in crate::server) retention: Retention,
    /// Pairs of copies whose comparison came to nothing.
    pub(in crate::server) unshown: Unshown,
    /// Versions that cross to a datacentre in the background.
    pub(in crate::server) seeding: Seeding,
    /// The register of the fleet that serves this model, once somebody has asked it.
    pub(in crate::server) fleet: Option<FleetRegister>,
    /// Which engines of that fleet serve what, once somebody has said so or asked.
    pub(in crate::server) routing: Option<RoutingTable>,
    /// The last listing that was made; valid while its revision is the model's.
    #[serde(skip)]
    pub(in crate::server) listed: Option<Arc<Listing>>,
    /// The newest available version, and since when it has been the newest.
    pub(in crate::server) latest_since: Observed<Option<(Version, Time)>>,
}

/// The content of a version, in any layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::server) struct Content {
    /// Its logical tensors.
    pub(in crate::server) catalog: ContentDigest,
    /// Its folded digest, once a replica has sealed it.
    pub(in crate::server) sum: Option<Sum>,
    /// When this server first knew the version.
    pub(in crate::server) since: Observed<Time>,
}

/// What a selector means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Resolution {
    /// This version, which is available.
    Available(Version),
    /// No version now; one may come.
    NotYet,
    /// No version, and waiting does not help.
    Gone,
}

impl Model {
    /// Whether the version's sum is known, so that copies can be compared with it.
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
                // Until the newest run has published, it may still publish this number.
                newest.epoch == self.epoch
                    && number <= newest.number
                    && !self.is_offloading(self.current(number))
            }),
            Selector::LatestMinus(_) => !available.is_empty(),
            Selector::Latest | Selector::NthLatest(_) | Selector::AtLeast(_) => false,
        };
        if gone && !self.recovers { Resolution::Gone } else { Resolution::NotYet }
    }

    /// Resolves the version of a seed, which is for that version only.
    pub(in crate::server) fn resolve_exactly(&self, version: Version) -> Resolution {
        match self.visible.contains_key(&version) {
            true => Resolution::Available(version),
            false if self.recovers => Resolution::NotYet,
            false => Resolution::Gone,
        }
    }

    /// Whether a version is being offloaded: its last copy is given up, and a copy aside is on its
    /// way, or fails.
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
    /// start the same one, because the replicas of a data-parallel trainer open one after the other.
    pub(in crate::server) fn run_has_begun(&self) -> bool {
        self.newest_known().is_some_and(|v| v.epoch == self.epoch)
    }

    /// Groups that hold a listed copy of a version, in order of their names.
    pub(in crate::server) fn holders(
        &self,
        version: Version,
    ) -> impl Iterator<Item = Incarnation> + '_ {
        self.visible.get(&version).into_iter().flat_map(|holders| holders.values().copied())
    }

    /// The first holder of an available version.
    #[track_caller]
    pub(in crate::server) fn first_holder(&self, version: Version) -> Incarnation {
        self.holders(version).next().expect("what is available has a holder")
    }

    /// The newest available version.
    pub(in crate::server) fn latest(&self) -> Option<Version> {
        self.visible.last_key_value().map(|(version, _)| *version)
    }

    /// Notes since when the newest available version is the newest.
    pub(in crate::server) fn observe_latest(&mut self, now: Time) {
        let latest = self.latest();
        if self.latest_since.0.map(|(version, _)| version) != latest {
            self.latest_since = Observed(latest.map(|version| (version, now)));
        }
    }

    /// The known version with this number, of the newest run that has one.
    pub(in crate::server) fn newest_of(&self, number: u64) -> Option<Version> {
        self.known.keys().rev().find(|version| version.number == number).copied()
    }

    /// Remembers a rollout that has left, and the version that it held.
    pub(in crate::server) fn depart(&mut self, replica: &str, version: Version) {
        self.departed.push_back((replica.to_owned(), version));
        if self.departed.len() > DEPARTED {
            self.departed.pop_front();
        }
    }

    /// Lists a replica's copy.
    pub(in crate::server) fn show(&mut self, version: Version, replica: &str, group: Incarnation) {
        self.visible.entry(version).or_default().insert(replica.to_owned(), group);
        self.revision = self.revision.next();
    }

    /// Takes a replica's copy off the list.
    pub(in crate::server) fn hide(&mut self, version: Version, replica: &str) {
        if let Some(holders) = self.visible.get_mut(&version) {
            holders.remove(replica);
            if holders.is_empty() {
                self.visible.remove(&version);
            }
        }
        self.revision = self.revision.next();
    }

    /// The listing at this revision (S10). Made once per revision, because it names every holder.
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

//! What is retained, and what was lost nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Version};

/// What is to survive of a model, and the offloads that ensure it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Retention {
    /// How many of the newest versions are retained.
    pub(in crate::server) versions: u32,
    /// Versions that are kept by name, and the groups for which each is.
    pub(in crate::server) exact: BTreeMap<Version, BTreeSet<Incarnation>>,
    /// Offloads under way: the group that was asked for each.
    pub(in crate::server) asked: BTreeMap<Version, Incarnation>,
    /// Groups that have to keep their copy for now.
    pub(in crate::server) held_back: BTreeSet<Incarnation>,
    /// Offload replicas, finished or not.
    pub(in crate::server) replicas: BTreeSet<Incarnation>,
}

impl Retention {
    /// Whether any version may be retained.
    pub(in crate::server) fn is_asked(&self) -> bool {
        self.versions > 0 || !self.exact.is_empty()
    }

    /// The versions that are kept for a group.
    pub(in crate::server) fn kept_for(&self, group: Incarnation) -> impl Iterator<Item = Version> {
        let versions = self.exact.iter().filter(move |(_, groups)| groups.contains(&group));
        versions.map(|(version, _)| *version)
    }

    /// Keeps a version for a group.
    pub(in crate::server) fn keep(&mut self, group: Incarnation, version: Version) {
        self.exact.entry(version).or_default().insert(group);
    }

    /// Lets go of what is kept for a group, as far as it is `these`. Returns whether there was anything.
    pub(in crate::server) fn drop_kept(
        &mut self,
        group: Incarnation,
        these: impl Fn(Version) -> bool,
    ) -> bool {
        let mut any = false;
        self.exact.retain(|version, groups| {
            any |= these(*version) && groups.remove(&group);
            !groups.is_empty()
        });
        any
    }
}

/// A retained version whose last countable copy was given up, since it could not be offloaded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RetentionLoss {
    /// Name of the model.
    pub model: String,
    /// The version.
    pub version: Version,
    /// The replica that held it last.
    pub replica: String,
    /// Why it was not offloaded.
    pub reason: String,
}

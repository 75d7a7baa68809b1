//! Seeds that were asked for, and seeds that came.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Time, Version};

/// What a model's groups leave to seed replicas.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Seeding {
    /// By datacentre: the seed that was asked for and has not come yet.
    pub(in crate::server) asked: BTreeMap<String, Asked>,
    /// Seed replicas, finished or not.
    pub(in crate::server) replicas: BTreeSet<Incarnation>,
}

/// A seed on its way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(in crate::server) struct Asked {
    /// Number of the request; zero if the seed came over from an earlier term.
    pub(in crate::server) ask: u64,
    pub(in crate::server) version: Version,
    /// The replica that was asked.
    pub(in crate::server) owner: String,
    /// When the request has failed.
    pub(in crate::server) until: Time,
}

impl Asked {
    /// The name under which the seed comes.
    pub(in crate::server) fn replica(&self) -> String {
        seed_name(&self.owner, self.version)
    }
}

/// Name of the seed replica of a replica that was asked: no user can open one of that name.
pub fn seed_name(replica: &str, version: Version) -> String {
    format!("{replica}~seed-{}.{}", version.epoch, version.number)
}

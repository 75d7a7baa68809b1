//! What is retained, and what was lost nevertheless.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Version};

/// How much a model's trainer wants to survive, and the offloads that ensure it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Retention {
    /// How many of the newest versions are retained.
    pub(in crate::server) versions: u32,
    /// Offloads under way: the group that was asked for each.
    pub(in crate::server) asked: BTreeMap<Version, Incarnation>,
    /// Groups that have to keep their copy for now.
    pub(in crate::server) held_back: BTreeSet<Incarnation>,
    /// Offload replicas, finished or not.
    pub(in crate::server) replicas: BTreeSet<Incarnation>,
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

//! The agenda: groups and models that an event may have unblocked, still to be looked at.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::{Incarnation, OpSeq, Time};

/// Groups and models that a room woke. Only the dispatcher works the agenda off, in order.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Agenda {
    /// Groups whose pending call may be able to move on.
    pub(in crate::server) groups: BTreeSet<Incarnation>,
    /// Models in which something became available, visible or free.
    pub(in crate::server) models: BTreeSet<String>,
    /// Groups whose copy has just been sealed, and may help who reads already.
    pub(in crate::server) sealed: BTreeSet<Incarnation>,
    /// Calls whose durations are still to be counted.
    #[serde(skip)]
    pub(in crate::server) ended: Vec<EndedCall>,
    /// Groups whose pending call may have come to another stage, some of them more than once.
    pub(in crate::server) moved: Vec<Incarnation>,
}

/// A call that has its answer.
#[derive(Clone, Copy, Debug)]
pub(in crate::server) struct EndedCall {
    pub(in crate::server) group: Incarnation,
    pub(in crate::server) seq: OpSeq,
    /// Its kind.
    pub(in crate::server) call: &'static str,
    pub(in crate::server) outcome: &'static str,
    pub(in crate::server) started: Time,
}

impl Agenda {
    /// A group's pending call may be able to move on.
    pub(in crate::server) fn wake(&mut self, group: Incarnation) {
        self.groups.insert(group);
    }

    /// Calls of these groups may be able to move on.
    pub(in crate::server) fn wake_all(&mut self, groups: impl IntoIterator<Item = Incarnation>) {
        self.groups.extend(groups);
    }

    /// Something became available, visible or free in a model.
    pub(in crate::server) fn note_change(&mut self, model: &str) {
        if !self.models.contains(model) {
            self.models.insert(model.to_owned());
        }
    }

    /// Forgets all groups and models that were woken. What is only told of is kept.
    pub(in crate::server) fn clear(&mut self) {
        self.groups.clear();
        self.models.clear();
        self.sealed.clear();
    }
}

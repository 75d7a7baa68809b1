//! What whoever only looks is told of a replica: how to ask its shards themselves.

use crate::Sum;
use crate::message::Assignment;
use crate::server::Server;
use crate::server::views::snapshot::ReplicaState;

/// A replica at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What it is doing; nothing if there is none of that name.
    pub state: Option<ReplicaState>,
    /// How to reach the copy that it holds, as a reader is told; nothing unless it is whole and
    /// readers may be sent to it.
    pub copy: Option<Assignment>,
    /// Whether what the asker found there is what the version was sealed with; nothing until it is
    /// sealed. Never the digest itself: with it, anybody could say that it holds the version.
    pub as_published: Option<bool>,
}

impl Server {
    /// The live group of this name. Changes nothing, and assigns nobody to the group: whether its memory
    /// changes meanwhile is for the asker to see, by the generations. `found`: the sum that the asker has
    /// computed there, which is compared with the version's.
    pub fn inspect(&self, model: &str, replica: &str, found: Option<Sum>) -> Inspection {
        let Some(model) = self.models.get(model) else { return Inspection::default() };
        let Some(incarnation) = model.replicas.get(replica) else { return Inspection::default() };
        let group = self.groups.of(incarnation);
        let state = Some(self.replica_state(group));
        let shown = |version| {
            let holders = model.visible.get(&version);
            holders.and_then(|holders| holders.get(replica)) == Some(incarnation)
        };
        match group.held.as_ref().map(|held| held.version) {
            Some(version) if shown(version) => Inspection {
                state,
                copy: Some(self.books().assignment(&[*incarnation], version)),
                as_published: model
                    .known
                    .get(&version)
                    .and_then(|content| content.sum)
                    .map(|sealed| Some(sealed) == found),
            },
            _ => Inspection { state, ..Inspection::default() },
        }
    }
}

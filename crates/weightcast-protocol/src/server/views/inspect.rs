//! Inspection of one replica by a tool: its state, and how to reach its shards.

use crate::message::Assignment;
use crate::server::Server;
use crate::server::views::snapshot::ReplicaState;
use crate::{ConnectionId, Sum};

/// A replica at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inspection {
    /// What the replica is doing; `None` if no live replica has the name.
    pub state: Option<ReplicaState>,
    /// How to reach the replica's copy, as a reader is told; `None` unless the copy is whole and
    /// listed.
    pub copy: Option<Assignment>,
    /// Whether the sum that the asker found is the sum that the version was sealed with; `None`
    /// until the version is sealed, `false` if the asker brought no sum. The sealed sum itself is
    /// never told: any client that knows it could claim to hold the version.
    pub as_published: Option<bool>,
}

impl Server {
    /// Who speaks on a stream: replica and shard.
    pub fn speaker(&self, stream: ConnectionId) -> Option<(&str, u32)> {
        let session = self.connections.session(stream)?;
        let entry = self.sessions.get(&session)?;
        let group = self.groups.get(&entry.group)?;
        Some((&group.replica, entry.shard))
    }

    /// Inspects the live group of this name. Changes nothing, and adds no reader to the group: the
    /// asker sees from the generations whether the memory changed meanwhile. `found` is the sum
    /// that the asker has computed there, to be compared with the version's.
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

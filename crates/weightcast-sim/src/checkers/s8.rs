//! S8: a listed copy was published or read by every shard, and taken back by none.

use std::collections::BTreeMap;

use weightcast_protocol::message::{Call, ClientMessage, ServerMessage};
use weightcast_protocol::server::{ModelSnapshot, Snapshot};
use weightcast_protocol::{Attempt, Incarnation, OpSeq, Time};

use super::{Checker, Fact, Who};

#[derive(Default)]
pub(super) struct WholeReplicas {
    /// The version's number that each shard claims to hold.
    claims: BTreeMap<(Incarnation, u32), u64>,
    assigned: BTreeMap<(Incarnation, OpSeq, Attempt), u64>,
    /// The same for staged updates: until they install, the shards hold the old version.
    beside: BTreeMap<(Incarnation, OpSeq, Attempt), u64>,
    /// The last attempt that each shard has installed. A call that is made again after a broken
    /// stream is told everything again, `Install` too; a shard that has installed already does
    /// nothing.
    installed: BTreeMap<(Incarnation, u32), (OpSeq, Attempt)>,
    /// Each shard's newest call. Late reports of earlier calls claim nothing.
    called: BTreeMap<(Incarnation, u32), OpSeq>,
}

impl Checker for WholeReplicas {
    fn name(&self) -> &'static str {
        "S8"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => self.heard(who, message),
            Fact::Said {
                who,
                message: ServerMessage::Assigned { seq, attempt, assignment, .. },
                ..
            } => {
                let incarnation = who.incarnation?;
                let number = assignment.version.number;
                let book = if assignment.staged { &mut self.beside } else { &mut self.assigned };
                book.insert((incarnation, *seq, *attempt), number);
            }
            Fact::Said { who, message: ServerMessage::Install { seq, attempt, .. }, .. } => {
                let shard = (who.incarnation?, who.shard);
                if self.installed.get(&shard) != Some(&(*seq, *attempt)) {
                    self.claims.remove(&shard);
                }
            }
            Fact::Books(snapshot) => return self.check(snapshot),
            _ => {}
        }
        None
    }
}

impl WholeReplicas {
    fn heard(&mut self, who: &Who, message: &ClientMessage) {
        let Some(incarnation) = who.incarnation else { return };
        let shard = (incarnation, who.shard);
        if let ClientMessage::Call { seq, .. } = message {
            let newest = self.called.entry(shard).or_insert(*seq);
            *newest = (*newest).max(*seq);
        }
        match message {
            ClientMessage::Call { call: Call::Publish { version, .. }, .. } => {
                self.claims.insert(shard, *version);
            }
            // What the shard still holds from an earlier term.
            ClientMessage::Announce(announcement) => {
                let held = announcement.held.filter(|held| !held.withdrawn);
                held.map(|held| self.claims.insert(shard, held.version.number));
            }
            ClientMessage::Prepared { seq, attempt, .. }
                if self.called.get(&shard).is_none_or(|newest| newest == seq) =>
            {
                if let Some(number) = self.assigned.get(&(incarnation, *seq, *attempt)) {
                    self.claims.insert(shard, *number);
                }
            }
            ClientMessage::Installed { seq, attempt, .. } => {
                self.installed.insert(shard, (*seq, *attempt));
                if let Some(number) = self.beside.get(&(incarnation, *seq, *attempt)) {
                    self.claims.insert(shard, *number);
                }
            }
            ClientMessage::Call { call: Call::Unpublish, .. } | ClientMessage::Close { .. } => {
                self.claims.remove(&shard);
            }
            _ => {}
        }
    }

    fn check(&self, snapshot: &Snapshot) -> Option<String> {
        snapshot.models.values().find_map(|model| {
            let listed = model.versions.iter().flat_map(|(v, names)| names.iter().map(|n| (*v, n)));
            listed
                .into_iter()
                .find(|(version, name)| !self.is_whole(model, version.number, name))
                .map(|(version, name)| format!("{name} is listed with {version}, but not whole"))
        })
    }

    fn is_whole(&self, model: &ModelSnapshot, number: u64, name: &str) -> bool {
        model.replicas.iter().filter(|replica| replica.name == name).any(|replica| {
            (0..replica.num_shards)
                .all(|shard| self.claims.get(&(replica.incarnation, shard)) == Some(&number))
        })
    }
}

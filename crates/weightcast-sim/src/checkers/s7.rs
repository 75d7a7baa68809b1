//! S7: a version has one content: whoever holds it sealed has it, in whatever layout.

use std::collections::{BTreeMap, BTreeSet};

use weightcast_protocol::message::ClientMessage;
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, Snapshot};
use weightcast_protocol::{Generation, Incarnation, ShardSums, Sum, Time, Version};

use super::{Checker, Fact};

#[derive(Default)]
pub(super) struct OneContent {
    /// The digests that each shard has told of what it holds.
    told: BTreeMap<(Incarnation, u32, Generation), Sum>,
    /// The digests of what a shard has read last: what it puts in place after a staged read.
    read: BTreeMap<(Incarnation, u32), Sum>,
    /// What each version is.
    contents: BTreeMap<Version, Sum>,
    /// Copies that have been compared.
    compared: BTreeSet<(Incarnation, Vec<Option<Generation>>)>,
}

impl Checker for OneContent {
    fn name(&self) -> &'static str {
        "S7"
    }

    fn observe(&mut self, _now: Time, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Heard { who, message, .. } => {
                let (incarnation, shard) = (who.incarnation?, who.shard);
                if let Some((generation, sums)) = digests(message) {
                    self.told.insert((incarnation, shard, generation), sums.counted);
                    self.read.insert((incarnation, shard), sums.counted);
                }
                if let ClientMessage::Installed { generation, .. } = message {
                    let sum = *self.read.get(&(incarnation, shard))?;
                    self.told.insert((incarnation, shard, *generation), sum);
                }
                None
            }
            Fact::Books(books) => self.books(books),
            _ => None,
        }
    }
}

fn digests(message: &ClientMessage) -> Option<(Generation, ShardSums)> {
    match message {
        ClientMessage::Sealed { generation, sums }
        | ClientMessage::Prepared { generation, sums, .. } => Some((*generation, *sums)),
        ClientMessage::Announce(announced) => Some((announced.generation, announced.held?.sums?)),
        _ => None,
    }
}

impl OneContent {
    fn books(&mut self, books: &Snapshot) -> Option<String> {
        let replicas = books.models.values().flat_map(|model| &model.replicas);
        let sealed = replicas.filter(|replica| replica.state == ReplicaState::Sealed);
        sealed.filter_map(|replica| self.compare(replica)).next()
    }

    fn compare(&mut self, replica: &ReplicaSnapshot) -> Option<String> {
        let generations = replica.shards.iter().map(|shard| shard.generation).collect();
        if !self.compared.insert((replica.incarnation, generations)) {
            return None;
        }
        let (version, name) = (replica.version?, &replica.name);
        let told = replica.shards.iter().map(|shard| {
            self.told.get(&(replica.incarnation, shard.shard, shard.generation?)).copied()
        });
        let Some(sum) = told.reduce(|a, b| Some(a? + b?)).flatten() else {
            return Some(format!("{name} is sealed, and not all of its digests were told"));
        };
        let content = *self.contents.entry(version).or_insert(sum);
        (sum != content).then(|| format!("{name} holds {version} with another content"))
    }
}

//! A trainer that has published, and what becomes of its copies.

use super::*;
use weightcast_protocol::server::Counters;

impl Cluster {
    /// A trainer that wants so many versions to survive.
    pub fn retaining(&mut self, replica: &str, num_shards: u32, retain: u32) -> Vec<usize> {
        let shard = |s| Open { retain, ..open(replica, s, num_shards, Role::Trainer) };
        let group: Vec<usize> = (0..num_shards).map(|s| self.start(shard(s))).collect();
        self.call_all(&group, register);
        group
    }

    /// A trainer that has published this as version 1, and retains it.
    pub fn published(num_shards: u32, content: u64) -> (Self, Vec<usize>) {
        let mut cluster = Self::new();
        let trainer = cluster.retaining("trainer", num_shards, 1);
        cluster.publish(&trainer, 1, content);
        (cluster, trainer)
    }

    /// A trainer that has published this as version 1, with its digests to come.
    pub fn unsealed(num_shards: u32, content: u64) -> (Self, Vec<usize>) {
        let mut cluster = Self::new();
        let trainer = cluster.trainer("trainer", num_shards);
        cluster.auto_seal = false;
        cluster.publish(&trainer, 1, content);
        (cluster, trainer)
    }

    pub fn unpublish(&mut self, group: &[usize]) -> Vec<Option<Outcome>> {
        self.begin_all(group, |_| Call::Unpublish);
        group.iter().map(|client| self.outcome(*client)).collect()
    }

    pub fn unpublished(&mut self, group: &[usize]) -> bool {
        self.unpublish(group);
        self.gone(group)
    }

    /// Whether the last thing that all shards were told is that their copy is given up.
    pub fn gone(&self, group: &[usize]) -> bool {
        group.iter().all(|client| self.outcome(*client) == Some(Ok(Answer::Unpublished)))
    }

    /// Who is listed with the version of this number.
    pub fn holders(&self, number: u64) -> Vec<String> {
        let versions = &self.server.snapshot(self.now).models["policy"].versions;
        let of = versions.iter().find(|(version, _)| version.number == number);
        of.map(|(_, names)| names.clone()).unwrap_or_default()
    }

    pub fn counters(&self) -> Counters {
        self.server.snapshot(self.now).counters
    }
}

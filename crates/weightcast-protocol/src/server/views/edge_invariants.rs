//! What must hold of the book of edges after every event.

use std::collections::BTreeSet;

use crate::server::Server;
use crate::server::stores::transaction::Phase;
use crate::server::stores::violation::{Violation, ensure};
use crate::{Incarnation, Version};

impl Server {
    /// D1, D2, D4, D5, D6, S9, S10: every edge has a reader that reads and a source that serves.
    pub(super) fn validate_edges(&self) -> Result<(), Violation> {
        let mut seeds = BTreeSet::new();
        for (reader, source, version) in self.edges.all() {
            self.validate_reader(reader, source, version)?;
            self.validate_source(reader, source, version)?;
            let group = self.groups.of(&reader);
            let first = self.edges.source_of(reader) == Some(source);
            let far = self.groups.of(&source).datacentre() != group.datacentre();
            ensure(!first || far == self.edges.crosses(reader), "T5", || {
                format!(
                    "{reader} reads from {source}, and is not booked as crossing, or not rightly"
                )
            })?;
            let seed = (&group.model, group.datacentre(), version);
            ensure(!self.edges.crosses(reader) || seeds.insert(seed), "D4", || {
                format!("{version} crosses twice to {:?}", group.datacentre())
            })?;
        }
        Ok(())
    }

    fn validate_reader(
        &self,
        reader: Incarnation,
        source: Incarnation,
        version: Version,
    ) -> Result<(), Violation> {
        let label = || format!("{reader} reads {version} from {source}");
        let group = self.groups.get(&reader);
        let transfer = group.and_then(|group| group.transfer());
        let phase = transfer.map(|transfer| transfer.phase);
        let staged = transfer.is_some_and(|transfer| transfer.staged);
        let reads = matches!(phase, Some(Phase::Draining | Phase::Reading));
        ensure(reads, "D5", || format!("{}, but it has no transfer", label()))?;
        let free = phase != Some(Phase::Reading) || staged;
        let empty = free || group.is_some_and(|group| group.held.is_none());
        ensure(empty, "S10", || format!("{}, and holds a version", label()))?;
        ensure(!self.edges.leads_to(source, reader), "D2", || format!("{}, in a cycle", label()))?;
        let depth = self.edges.depth(reader);
        ensure(depth <= self.config.depth_limit.max(1) as usize, "D6", || {
            format!("{}, {depth} sources deep", label())
        })
    }

    fn validate_source(
        &self,
        reader: Incarnation,
        source: Incarnation,
        version: Version,
    ) -> Result<(), Violation> {
        let group = self.groups.get(&source);
        let serves = group.is_some_and(|group| group.generations(version).is_some());
        ensure(serves, "S9", || {
            format!("{reader} reads {version} from {source}, which does not serve it")
        })?;
        let load = self.books().load_like(source, reader);
        let beside = group.is_some_and(|group| group.is_beside(self.groups.of(&reader)));
        ensure(load <= self.config.places(beside), "D1", || format!("{source} has {load} readers"))
    }
}

#[cfg(test)]
mod tests {
    use crate::server::props::{server, version};

    /// D1: a source on the reader's host may have more readers than one on another.
    #[test]
    fn readers_on_the_own_host_have_a_bound_of_their_own() {
        for (host, most) in [("a", 3), ("b", 1)] {
            let mut server = server();
            (server.config.fanout, server.config.host_fanout) = (1, 3);
            let source = server.prop("source", 1);
            server.lies(source, 0, "a");
            server.holds(source, version(1));
            for number in 1..=4 {
                let reader = server.prop(&number.to_string(), 1);
                server.lies(reader, 0, host);
                server.reads(reader, version(1), &[source]);
                let told = server.validate_source(reader, source, version(1));
                let broken = told.err().map(|violation| violation.invariant);
                assert_eq!(broken, (number > most).then_some("D1"), "{number} on {host}");
            }
        }
    }
}

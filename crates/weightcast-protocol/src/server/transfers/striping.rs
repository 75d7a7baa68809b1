//! Striping (beyond the paper): where several replicas of one layout hold a version and nobody reads
//! from them, one reader draws different ranges from each.
//!
//! Each of them is an edge like any other: it takes a place (D1), it must stand at the commit (S5),
//! and whoever drains waits for it (S9). The server stripes only what nobody else waits for, and
//! takes the further sources back when somebody does, so a fan-out never has fewer sources for it.

use crate::server::rooms::{Books, TransferHandler};
use crate::server::stores::group::Group;
use crate::server::stores::transaction::{GroupTransfer, Phase};
use crate::{Incarnation, Safeguard, Version};

impl Books<'_> {
    /// The source that was chosen, and those beside it that the reader may draw from as well.
    pub(super) fn stripes(
        &self,
        reader: &Group,
        transfer: &GroupTransfer,
        version: Version,
        first: Incarnation,
    ) -> Vec<Incarnation> {
        let mut from = vec![first];
        let source = self.groups.of(&first);
        let limits = &self.config.limits;
        let fit = limits.sources.min(limits.source_shards / source.num_shards.max(1));
        let most = self.config.stripes.min(fit).max(1) as usize;
        // After a failure there is one, so that it is known whose it was.
        let plain = most < 2 || !transfer.failures.is_empty() || transfer.resumed();
        if plain || !self.is_idle(source, reader, version) || self.somebody_waits(reader, version) {
            return from;
        }
        let holders = self.models.of(&reader.model).visible.get(&version).into_iter().flatten();
        let others = holders.map(|(_, group)| self.groups.of(group)).filter(|group| {
            group.incarnation != first
                && group.same_layouts(source)
                && self.is_idle(group, reader, version)
        });
        from.extend(others.take(most - 1).map(|group| group.incarnation));
        from
    }

    /// Whether a replica holds the version near the reader, whole and beyond doubt, and has nothing
    /// else to do.
    fn is_idle(&self, source: &Group, reader: &Group, version: Version) -> bool {
        let sure = |group: &Group| {
            group.held.as_ref().is_some_and(|held| held.sealed && held.accusers.is_empty())
        };
        source.incarnation != reader.incarnation
            && source.holds(version)
            && sure(source)
            && source.datacentre() == reader.datacentre()
            && self.edges.load(source.incarnation) == 0
            && self.edges.source_of(source.incarnation).is_none()
    }

    /// Whether another group waits for a source of the version.
    fn somebody_waits(&self, reader: &Group, version: Version) -> bool {
        let waits = |group: &Group| {
            let call = group.active_call();
            call.is_some_and(|call| call.wants(group.num_shards) == Some(version))
        };
        let mut waiting = self.models.of(&reader.model).waiting.values();
        waiting.any(|group| *group != reader.incarnation && waits(self.groups.of(group)))
    }
}

impl TransferHandler<'_> {
    /// A reader has found every source busy: one that another draws from beside its first is taken
    /// back for it, if there is one.
    pub(super) fn unstripe_for(&mut self, reader: Incarnation, version: Version) {
        if self.config.stripes < 2 {
            return; // many may wait
        }
        let group = self.groups.of(&reader);
        let holders = self.models.of(&group.model).visible.get(&version).into_iter().flatten();
        let near =
            |source: &&Incarnation| self.groups.of(*source).datacentre() == group.datacentre();
        let striped = |source: &Incarnation| {
            let mut readers = self.edges.readers_of(*source);
            readers.find(|reader| self.edges.source_of(*reader) != Some(*source))
        };
        let found = holders.map(|(_, source)| source).filter(near).find_map(striped);
        let Some(striped) = found else { return };
        self.counters.unstriped += 1;
        let free = match self.config.safeguards.on(Safeguard::StripeRelease) {
            true => self.edges.keep_first(striped),
            false => Vec::new(),
        };
        self.agenda.wake_all(free);
        self.agenda.note_change(&self.groups.of(&striped).model);
        let reads = |transfer: &mut GroupTransfer| transfer.phase == Phase::Reading;
        if self.groups.transfer(striped).is_some_and(reads) {
            self.assign(striped); // it goes on where it is
        }
    }
}

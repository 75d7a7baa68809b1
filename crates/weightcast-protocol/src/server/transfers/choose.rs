//! The choice of a source (§4.3.1 of the paper; D1 to D4, D6).
//!
//! A reader may read from whoever holds the version, and from replicas of its own layout that are
//! being filled with it themselves. Its own datacentre comes first: while anybody there has the
//! version or is getting it, nobody else there crosses for it.

use crate::server::rooms::{Books, TransferHandler};
use crate::server::stores::group::Group;
use crate::server::stores::transaction::GroupTransfer;
use crate::{Incarnation, Safeguard, Version};

/// How often one source may fail one transfer before it is not tried again.
pub(super) const ATTEMPTS_PER_SOURCE: u32 = 3;

/// What the choice of a source came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    /// Read from this group.
    Granted(Incarnation),
    /// Every source is busy, or the next one is still being filled or copied: wait.
    Busy,
    /// Nobody holds the version, or everybody has failed this transfer.
    Nobody,
}

/// What speaks against a source that has not failed, the weightiest first.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank<'a> {
    accusers: usize,
    slow: bool,
    depth: usize,
    load: usize,
    other_host: bool,
    name: &'a str,
    source: Incarnation,
}

impl<'a> Books<'a> {
    /// Chooses a source of `version` for `reader`: those first that have not failed it, then those
    /// that nobody accuses, those that were not slow, the shortest chain, the least loaded, the same
    /// host; ties go by name. Near and far ones are never compared: who may cross has none near.
    pub(super) fn choose_source(
        self,
        reader: &'a Group,
        transfer: &'a GroupTransfer,
        version: Version,
    ) -> Choice {
        let failures =
            move |source: &Group| *transfer.failures.get(&source.incarnation).unwrap_or(&0);
        let fit = move |source: &Group| failures(source) < ATTEMPTS_PER_SOURCE;
        let may_cross = self.may_cross(reader, transfer, version);
        let (mut busy, mut barred) = (false, false);
        let mut offer = |source: &'a Group| {
            if !may_cross && source.datacentre() != reader.datacentre() {
                barred = true;
                None
            } else if !self.has_room(source, reader, version) || self.reads_from(source, reader) {
                busy = true;
                None
            } else {
                Some((failures(source), self.rank(source, reader, version)))
            }
        };
        // Most of those that are being filled have their reader already: no more is asked of them.
        let free = move |source: &Group| fit(source) && self.has_place(source, reader);
        let holders = self.holders(reader, version).filter(|source| fit(source));
        let in_flight = self.in_flight(reader, version, free);
        let best = holders.chain(in_flight).filter_map(&mut offer).min();
        let full = move |source: &Group| fit(source) && !self.has_place(source, reader);
        let taken = || self.in_flight(reader, version, full).next().is_some();
        match best {
            // One that failed is tried again only if no other source is just busy. Those far away
            // are not waited for: they open up once all that are near have failed.
            Some((failures, rank)) if failures == 0 || !(busy || taken()) => {
                Choice::Granted(rank.source)
            }
            Some(_) => Choice::Busy,
            None if !self.config.safeguards.on(Safeguard::BusyIsWaitedFor) => Choice::Nobody,
            None if busy || barred => Choice::Busy,
            None if self.coming(reader, version, |_| true).next().is_some() => Choice::Busy,
            None if self.landing(reader, version).next().is_some() => Choice::Busy,
            None if self.models.of(&reader.model).is_offloading(version) => Choice::Busy,
            None => Choice::Nobody,
        }
    }

    pub(super) fn rank(&self, source: &'a Group, reader: &'a Group, version: Version) -> Rank<'a> {
        let host = |group: &'a Group| group.location().map(|location| location.host.as_str());
        Rank {
            accusers: source.held.as_ref().map_or(0, |held| held.accusers.len()),
            slow: reader.slow.contains_key(&source.incarnation),
            depth: self.depth(source, version),
            load: self.edges.load(source.incarnation),
            other_host: host(source) != host(reader),
            name: &source.replica,
            source: source.incarnation,
        }
    }

    /// Who is being filled with the version in the reader's layout, and serves it. None of them reads
    /// from the reader (D2).
    fn in_flight(
        self,
        reader: &'a Group,
        version: Version,
        wanted: impl Fn(&Group) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Group> {
        self.coming(reader, version, move |source| {
            wanted(source) && source.serves_filling(version) && source.same_layouts(reader)
        })
    }

    pub(in crate::server) fn holders(
        self,
        reader: &'a Group,
        version: Version,
    ) -> impl Iterator<Item = &'a Group> {
        let holders = self.models.of(&reader.model).visible.get(&version).into_iter().flatten();
        holders
            .map(|(_, source)| self.groups.of(source))
            .filter(|source| source.incarnation != reader.incarnation)
    }

    /// Groups that will hold the version soon: each reads it, through others or not, from one that
    /// holds it, and not from the reader itself. Those that are not wanted are left out first: the
    /// rest costs a walk up a chain.
    pub(in crate::server) fn coming(
        self,
        reader: &'a Group,
        version: Version,
        wanted: impl Fn(&Group) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Group> {
        let naive = !self.config.safeguards.on(Safeguard::AcyclicChoice);
        let from_holder = move |group: &Group| {
            let root = self.edges.chain(group.incarnation).last();
            root.is_some_and(|root| self.groups.of(&root).holds(version))
        };
        let apart = move |group: &Group| {
            from_holder(group) && !self.edges.leads_to(group.incarnation, reader.incarnation)
        };
        self.edges
            .filling(&reader.model, version)
            .filter(move |group| *group != reader.incarnation)
            .map(|group| self.groups.of(&group))
            .filter(move |group| wanted(group) && (naive || apart(group)))
    }

    /// How many sources a version comes through to a source. A holder has it, whatever else it reads.
    fn depth(&self, source: &Group, version: Version) -> usize {
        if source.holds(version) { 0 } else { self.edges.depth(source.incarnation) }
    }

    /// Whether one more reader fits, with all that hangs on it (D1, D6).
    pub(super) fn has_room(&self, source: &Group, reader: &Group, version: Version) -> bool {
        // Readers of an old copy will have left.
        let below = match reader.held {
            Some(_) => 0,
            None => self.edges.height(reader.incarnation, version),
        };
        let depth = self.depth(source, version) + 1 + below;
        let short = depth <= self.config.depth_limit.max(1) as usize;
        self.has_place(source, reader)
            && (short || !self.config.safeguards.on(Safeguard::DepthBound))
    }

    /// Whether a source reads, over others or not, from the reader (D2). One that holds a version
    /// reads only if its update is staged, and it will have done so soon.
    pub(super) fn reads_from(&self, source: &Group, reader: &Group) -> bool {
        self.config.safeguards.on(Safeguard::AcyclicChoice)
            && self.edges.leads_to(source.incarnation, reader.incarnation)
    }

    /// Whether a source has fewer readers than it may have (D1). Those of its own datacentre and
    /// those that cross don't take each other's place: a crossing may take long.
    fn has_place(&self, source: &Group, reader: &Group) -> bool {
        let fanout = self.config.fanout.max(1) as usize;
        let crosses = source.datacentre() != reader.datacentre();
        self.edges.load(source.incarnation) < fanout
            || self.load(source.incarnation, crosses) < fanout
            || !self.config.safeguards.on(Safeguard::Fanout)
    }

    /// How many read from a source in its own datacentre, or from another one.
    pub(in crate::server) fn load(&self, source: Incarnation, cross: bool) -> usize {
        self.edges.readers_of(source).filter(|reader| self.edges.crosses(*reader) == cross).count()
    }

    /// Whether a reader may read from another datacentre: nobody in its own has the version or is
    /// getting it (D3), and nobody is bringing it there (D4).
    pub(in crate::server) fn may_cross(
        &self,
        reader: &Group,
        transfer: &GroupTransfer,
        version: Version,
    ) -> bool {
        let near = |group: &Group| group.datacentre() == reader.datacentre();
        let usable = |group: &Group| {
            let failures = transfer.failures.get(&group.incarnation);
            near(group) && failures.is_none_or(|failures| *failures < ATTEMPTS_PER_SOURCE)
        };
        let is_seed = |(brings, group)| brings == version && self.brings_near(group, reader);
        let safeguards = self.config.safeguards;
        let first = self.coming(reader, version, usable).next().is_none()
            && !self.landing(reader, version).any(usable)
            && !self.edges.crossing().any(is_seed);
        !safeguards.on(Safeguard::NearFirst)
            || (!self.holders(reader, version).any(usable)
                && (first || !safeguards.on(Safeguard::OneCrossing)))
    }

    /// Whether a group that crosses brings something of the reader's model to its datacentre.
    fn brings_near(&self, crossing: Incarnation, reader: &Group) -> bool {
        let group = self.groups.of(&crossing);
        group.model == reader.model && group.datacentre() == reader.datacentre()
    }

    /// Whether a group that holds a version had better go on with it: all it could do for `version`
    /// is to wait for a seed that is still on its way to its datacentre. One seed is finished
    /// before the next begins, so new versions don't starve a slow link.
    pub(in crate::server) fn waits_for_seed(&self, reader: &Group, version: Version) -> bool {
        let Some(held) = &reader.held else { return false };
        let near = |group: &Group| group.datacentre() == reader.datacentre();
        let mut seeds = self.edges.crossing().filter(|(brings, group)| {
            let useful = *brings == version || *brings > held.version;
            useful && self.brings_near(*group, reader)
        });
        let asked = self.models.of(&reader.model).seeding.asked.get(reader.datacentre());
        let asked = asked.is_some_and(|a| a.version == version || a.version > held.version);
        (asked || seeds.next().is_some()) && !self.holders(reader, version).any(near)
    }
}

impl TransferHandler<'_> {
    /// The group reads from these sources from now on.
    pub(in crate::server) fn read_from(
        &mut self,
        reader: Incarnation,
        version: Version,
        from: Vec<Incarnation>,
    ) {
        let group = self.groups.of(&reader);
        let far = |source: &Incarnation| self.groups.of(source).datacentre() != group.datacentre();
        let crosses = from.first().is_some_and(far);
        self.edges.add(&group.model, version, reader, from, crosses);
    }
}

#[cfg(test)]
mod tests;

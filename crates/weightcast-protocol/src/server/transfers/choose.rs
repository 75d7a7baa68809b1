//! The choice of a source (§4.3.1 of the paper; D1 to D4, D6, D7).
//!
//! A reader may read from every holder of the version, and from replicas of the reader's layout that are still being
//! filled with it. The reader's own datacentre comes first: while a group there has the version, or is getting it, no
//! other group of the datacentre crosses.

use std::cell::LazyCell;

use crate::message::Role;
use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::{Books, TransferHandler};
use crate::server::stores::group::Group;
use crate::{Incarnation, Safeguard, Version};

/// How often one source may fail one transfer before it is not tried again.
pub(super) const ATTEMPTS_PER_SOURCE: u32 = 3;

/// What the choice of a source came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::server) enum Choice {
    /// Read from this group.
    Granted(Incarnation),
    /// Every source is busy, or a copy is on its way: wait.
    Busy,
    /// No group holds the version, or every source has failed this transfer.
    Nobody,
}

/// Reasons against a source that has not failed, the weightiest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Drawbacks {
    /// Replicas that have read other bytes from the source than the publisher's.
    pub accusers: usize,
    /// Whether the reader has left the source before, because the source was slow.
    pub slow: bool,
    /// Through how many replicas the version comes to the source.
    pub depth: usize,
    /// How many have a place at the source.
    pub readers: usize,
    /// Whether the source is on another host than the reader.
    pub other_host: bool,
    /// Whether the source is a trainer, whose link has other work.
    pub trainer: bool,
}

/// Sources that have failed equally often, in order of preference.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rank<'a> {
    drawbacks: Drawbacks,
    name: &'a str,
    source: Incarnation,
}

impl<'a> TransferCtx<'a> {
    /// Chooses a source of `version`. Preferred, in this order: a source that has not failed the
    /// transfer, that nobody accuses, that was not slow; then the shortest chain, the fewest
    /// readers, the same host, a rollout; ties go by name. Near and far sources are never compared: a reader
    /// that may cross has no near source.
    pub(in crate::server) fn choose_source(self, version: Version) -> Choice {
        let may_enter = self.may_enter(version);
        let may_cross = LazyCell::new(|| self.may_cross(version));
        let may_read = |source: &Group| {
            (may_enter || self.is_beside(source)) && (self.is_near(source) || *may_cross)
        };
        let (mut busy, mut barred) = (false, !may_enter);
        let offer = |source: &'a Group| {
            if !self.is_near(source) && !*may_cross {
                barred = true;
                None
            } else if !self.has_room(source, version) || self.is_above(source) {
                busy = true;
                None
            } else {
                Some((self.failures(source), self.rank(source, version)))
            }
        };
        let best = if may_enter {
            // Most replicas that are being filled have their reader already: sort them out before the
            // costly checks.
            let free =
                self.in_flight(version, move |source| self.fits(source) && self.has_place(source));
            let holders = self.holders(version).filter(|source| self.fits(source));
            holders.chain(free).filter_map(offer).min()
        } else {
            self.sources_beside(version).filter_map(offer).min()
        };
        match best {
            // A source that failed is tried again only if no other one is merely busy. Remote sources are not waited
            // for: they become eligible only after every local source has failed.
            Some((failures, rank))
                if failures == 0 || !(busy || self.is_filling_taken(version, may_read)) =>
            {
                Choice::Granted(rank.source)
            }
            Some(_) => Choice::Busy,
            None if !self.config.safeguards.on(Safeguard::BusyIsWaitedFor) => Choice::Nobody,
            None if busy || barred => Choice::Busy,
            None if self.coming(version, |_| true).next().is_some() => Choice::Busy,
            None if self.landing(version).next().is_some() => Choice::Busy,
            None if self.model.is_offloading(version) => Choice::Busy,
            None => Choice::Nobody,
        }
    }

    /// How often a source has failed the transfer.
    fn failures(&self, source: &Group) -> u32 {
        self.transfer.failures.get(&source.incarnation).copied().unwrap_or_default()
    }

    /// Whether a source may be tried, or tried again.
    pub(super) fn fits(&self, source: &Group) -> bool {
        self.failures(source) < ATTEMPTS_PER_SOURCE
    }

    /// Whether a replica that is being filled, and from which the reader may read, has its reader already.
    fn is_filling_taken(self, version: Version, may_read: impl Fn(&Group) -> bool) -> bool {
        let full = move |source: &Group| self.fits(source) && !self.has_place(source);
        self.in_flight(version, full).any(may_read)
    }

    /// Whether the reader may read from another datacentre: no group of its own datacentre has the
    /// version or is getting it (D3), and no reader brings it there (D4).
    pub(in crate::server) fn may_cross(self, version: Version) -> bool {
        let usable = move |group: &Group| self.is_near(group) && self.fits(group);
        let safeguards = self.config.safeguards;
        let first = self.coming(version, usable).next().is_none()
            && !self.landing(version).any(usable)
            && !self.edges.crossing().any(|(brings, by)| brings == version && self.brings_near(by));
        !safeguards.on(Safeguard::NearFirst)
            || (!self.holders(version).any(usable)
                && (first || !safeguards.on(Safeguard::OneCrossing)))
    }
}

/// Rules of the choice that need no transfer. The context's group is the reader.
impl<'a> GroupCtx<'a> {
    /// A source's place among others.
    pub(super) fn rank(self, source: &'a Group, version: Version) -> Rank<'a> {
        let drawbacks = self.drawbacks(source, version);
        Rank { drawbacks, name: &source.replica, source: source.incarnation }
    }

    /// The reasons against a source.
    pub(in crate::server) fn drawbacks(self, source: &Group, version: Version) -> Drawbacks {
        fn host(group: &Group) -> Option<&str> {
            group.location().map(|location| location.host.as_str())
        }
        Drawbacks {
            accusers: source.held.as_ref().map_or(0, |held| held.accusers.len()),
            slow: self.group.slow.contains_key(&source.incarnation),
            depth: self.depth(source, version),
            readers: self.edges.placed_at(source.incarnation).count(),
            other_host: host(source) != host(self.group),
            trainer: source.role == Role::Trainer,
        }
    }

    /// Groups of the reader's layout that are being filled with the version and serve it, and that
    /// do not read from the reader (D2).
    fn in_flight(
        self,
        version: Version,
        wanted: impl Fn(&Group) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Group> {
        self.coming(version, move |source| wanted(source) && self.relays(source, version))
    }

    /// Whether a group serves the reader what it has so far, if it is being filled with the version.
    pub(super) fn relays(&self, source: &Group, version: Version) -> bool {
        source.serves_filling(version)
            && source.same_layouts(self.group)
            && self.serves_hosts(source)
    }

    /// Holders of the version, without the reader.
    pub(in crate::server) fn holders(self, version: Version) -> impl Iterator<Item = &'a Group> {
        let holders = self.model.holders(version).map(move |source| self.groups.of(&source));
        holders.filter(move |source| source.incarnation != self.group.incarnation)
    }

    /// Groups that will hold the version soon: each reads from a holder, directly or through other groups, and not
    /// from the reader. `wanted` is asked first, because the other checks walk up a chain.
    pub(in crate::server) fn coming(
        self,
        version: Version,
        wanted: impl Fn(&Group) -> bool + 'a,
    ) -> impl Iterator<Item = &'a Group> {
        let naive = !self.config.safeguards.on(Safeguard::AcyclicChoice);
        self.edges
            .filling(&self.group.model, version)
            .filter(move |group| *group != self.group.incarnation)
            .map(move |group| self.groups.of(&group))
            .filter(move |group| wanted(group) && (naive || self.comes_apart(group, version)))
    }

    /// Whether a group gets the version from a holder, by a chain that does not include the reader.
    pub(super) fn comes_apart(&self, group: &Group, version: Version) -> bool {
        let root = self.edges.chain(group.incarnation).last();
        root.is_some_and(|root| self.groups.of(&root).holds(version))
            && !self.edges.leads_to(group.incarnation, self.group.incarnation)
    }

    /// Whether a source has room for the reader, and for the chain of readers below the reader (D1, D6).
    pub(in crate::server) fn has_room(&self, source: &Group, version: Version) -> bool {
        // Readers of the group's old copy will have left by then.
        let below = match self.group.held {
            Some(_) => 0,
            None => self.edges.height(self.group.incarnation, version),
        };
        let depth = self.depth(source, version) + 1 + below;
        let short = depth <= self.config.depth_limit.max(1) as usize;
        self.has_place(source) && (short || !self.config.safeguards.on(Safeguard::DepthBound))
    }

    /// Whether the reader is above a source: the source reads from the reader, directly or through other groups (D2).
    /// A holder reads only during a staged update, which ends soon.
    pub(in crate::server) fn is_above(&self, source: &Group) -> bool {
        self.config.safeguards.on(Safeguard::AcyclicChoice)
            && self.edges.leads_to(source.incarnation, self.group.incarnation)
    }

    /// Whether a source has a free place (D1). Readers on its host, in its datacentre and further away are counted
    /// apart: one that crosses may take long, and one on the same host uses no link. A source that is being filled has as few
    /// there as elsewhere: one that dies then costs one reader its source, and not all of its host.
    pub(super) fn has_place(&self, source: &Group) -> bool {
        let places = self.config.places(self.is_beside(source) && source.held.is_some());
        self.edges.placed_at(source.incarnation).count() < places
            || self.load_like(source.incarnation, self.group.incarnation) < places
            || !self.config.safeguards.on(Safeguard::Fanout)
    }

    /// Whether a crossing group brings a version of the reader's model to the reader's datacentre.
    fn brings_near(&self, crossing: Incarnation) -> bool {
        let group = self.groups.of(&crossing);
        group.model == self.group.model && self.is_near(group)
    }

    /// Whether a group that holds a version keeps it for now: for `version` the group could only wait for a seed
    /// that is on its way to the datacentre. One seed ends before the next begins, so that new versions don't
    /// starve a slow link.
    pub(in crate::server) fn waits_for_seed(self, version: Version) -> bool {
        let Some(held) = &self.group.held else { return false };
        let useful = |brings| brings == version || brings > held.version;
        let mut crossing = self.edges.crossing();
        (self.asked_here().is_some_and(|asked| useful(asked.version))
            || crossing.any(|(brings, by)| useful(brings) && self.brings_near(by)))
            && !self.holders(version).any(|holder| self.is_near(holder))
    }
}

impl Books<'_> {
    /// How many groups a version passes on its way to a source: none if the source holds the
    /// version.
    fn depth(&self, source: &Group, version: Version) -> usize {
        if source.holds(version) { 0 } else { self.edges.depth(source.incarnation) }
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
        let crosses = from
            .first()
            .is_some_and(|source| self.groups.of(source).datacentre() != group.datacentre());
        self.edges.add(&group.model, version, reader, from, crosses);
    }
}

#[cfg(test)]
mod tests;

//! Striping (beyond the paper): one reader draws different ranges from several replicas of one
//! layout that hold the version and have no readers.
//!
//! Readers that are behind share the replicas that have nothing else to do, and trainers do not help where a
//! rollout has the version: their links have other work.
//!
//! Each helper is an edge like any other: the reader takes a place there (D1), the helper's copy must stand at the
//! commit (S5), and a helper that drains waits for the reader (S9). The server stripes only while no other group
//! waits for the version, and takes helpers back when a group does: striping never takes a source from a fan-out.
//! Who publishes a moment later joins a read that runs, as long as that pays.

use crate::message::Role;
use crate::server::contexts::{GroupCtx, TransferCtx};
use crate::server::rooms::TransferHandler;
use crate::server::stores::group::{Group, Held, Member};
use crate::server::stores::transaction::Phase;
use crate::{Incarnation, Safeguard, Version};

/// A read goes on with further sources only if they are so many more, as a fraction of those that it has: whatever
/// is on its way at the change is asked for again.
const MORE_SOURCES: (usize, usize) = (4, 3);

impl TransferCtx<'_> {
    /// The source that was chosen, and the helpers that the reader may draw from beside it.
    pub(super) fn stripes(self, version: Version, first: Incarnation) -> Vec<Incarnation> {
        match self.transfer.resumed() {
            true => vec![first],
            false => self.with_helpers(version, vec![first]),
        }
    }

    /// The sources that a read may go on with that runs: those that it has, and the helpers that there are by now.
    fn more_sources(self, version: Version) -> Option<Vec<Incarnation>> {
        let transfer = self.transfer;
        let keeps = transfer.staged || transfer.filling.len() == self.group.num_shards as usize;
        let begins = transfer.progress.values().all(|shard| shard.arrived < shard.total / 2);
        let bytes = |member: &Member| member.registration.map_or(0, |memory| memory.bytes);
        let large = self.group.members.values().all(|of| bytes(of) >= self.config.joins_from);
        if transfer.phase != Phase::Reading || !transfer.prepared.is_empty() || !large {
            return None;
        }
        if !keeps || !begins {
            return None;
        }
        let has = self.edges.sources_of(self.group.incarnation);
        let more = self.with_helpers(version, has.to_vec());
        (more.len() * MORE_SOURCES.1 >= has.len() * MORE_SOURCES.0).then_some(more)
    }

    /// These sources, which have no other reader, and a share of the replicas that have nothing else to do.
    fn with_helpers(self, version: Version, mut from: Vec<Incarnation>) -> Vec<Incarnation> {
        let source = self.groups.of(&from[0]);
        let limits = &self.config.limits;
        let fit = limits.sources.min(limits.source_shards / source.num_shards.max(1));
        let most = self.config.stripes.min(fit).max(1) as usize;
        // After a failure there are no helpers, so that the next failure has one culprit.
        let plain = most < 2 || !self.transfer.failures.is_empty();
        if plain || !self.is_idle(source, version) || self.somebody_waits(version) {
            return from;
        }
        let spared = source.role == Role::Rollout;
        let inside = self.is_beside(source);
        let others = self.holders(version).filter(|group| {
            let barred = from.contains(&group.incarnation)
                || (inside && !self.is_beside(group))
                || (spared && group.role == Role::Trainer);
            !barred && group.same_layouts(source) && self.is_idle(group, version)
        });
        let others: Vec<_> = others.map(|group| group.incarnation).collect();
        let share = (from.len() + others.len()) / (1 + self.behind(version));
        let more = share.min(most).saturating_sub(from.len());
        from.extend(others.into_iter().take(more));
        from
    }
}

impl GroupCtx<'_> {
    /// Whether a replica near the reader holds the version, sealed and not accused, and neither reads nor is read by
    /// others.
    fn is_idle(&self, source: &Group, version: Version) -> bool {
        let sure = |held: &Held| held.sealed && held.accusers.is_empty();
        source.incarnation != self.group.incarnation
            && source.holds(version)
            && source.held.as_ref().is_some_and(sure)
            && self.is_near(source)
            && self
                .edges
                .readers_of(source.incarnation)
                .all(|reader| reader == self.group.incarnation)
            && self.edges.source_of(source.incarnation).is_none()
    }

    /// How many other rollouts near the reader will want a source that is not the reader: they hold nothing as new,
    /// and do not read.
    fn behind(&self, version: Version) -> usize {
        let behind = self.lagging(version).filter(|group| {
            group.incarnation != self.group.incarnation
                && self.is_near(group)
                && !self.group.feeds(group)
                && self.edges.source_of(group.incarnation).is_none()
        });
        behind.count()
    }

    /// Whether another group waits for a source of the version, which will not be the reader itself.
    fn somebody_waits(&self, version: Version) -> bool {
        self.model.waiting.values().map(|group| self.groups.of(group)).any(|group| {
            let call = group.active_call();
            group.incarnation != self.group.incarnation
                && !self.group.feeds(group)
                && call.is_some_and(|call| call.wants(group.num_shards) == Some(version))
        })
    }

    /// A reader that has a helper near this group.
    fn striped_reader(&self, version: Version) -> Option<Incarnation> {
        let holders = self.model.holders(version);
        let near = holders.filter(|source| self.is_near(self.groups.of(source)));
        near.into_iter().find_map(|source| {
            let mut readers = self.edges.readers_of(source);
            readers.find(|reader| self.edges.source_of(*reader) != Some(source))
        })
    }
}

impl TransferHandler<'_> {
    /// A copy was sealed while others read the version: the reader with the fewest sources goes on with this one
    /// too.
    pub(in crate::server) fn let_help(&mut self, holder: Incarnation) {
        let Some(group) = self.groups.get(&holder).filter(|_| self.config.stripes > 1) else {
            return;
        };
        let Some(version) = group.held.as_ref().map(|held| held.version) else { return };
        let books = self.books();
        let readers = self.edges.filling(&group.model, version);
        let more = readers.filter_map(|reader| {
            let sources = books.transfer(reader).more_sources(version)?;
            sources.contains(&holder).then_some((reader, sources))
        });
        let few = more.min_by_key(|(reader, _)| self.edges.sources_of(*reader).len());
        let Some((reader, sources)) = few else { return };
        self.counters.joined += 1;
        let has = self.edges.sources_of(reader).len();
        self.edges.join(reader, &sources[has..]);
        self.assign(reader); // it goes on where it is
    }

    /// A reader has found every source busy: takes another reader's helpers back for it, if there
    /// are any.
    pub(super) fn unstripe_for(&mut self, reader: Incarnation, version: Version) {
        // Saves the search where nobody stripes: many groups may wait.
        if self.config.stripes < 2 || !self.books().transfer(reader).may_enter(version) {
            return;
        }
        let striped = self.books().group(reader).striped_reader(version);
        let Some(striped) = striped else { return };
        self.counters.unstriped += 1;
        let free = match self.config.safeguards.on(Safeguard::StripeRelease) {
            true => self.edges.keep_first(striped),
            false => Vec::new(),
        };
        self.agenda.wake_all(free);
        self.agenda.note_change(&self.groups.of(&striped).model);
        let transfer = self.groups.transfer(striped);
        if transfer.is_some_and(|transfer| transfer.phase == Phase::Reading) {
            self.assign(striped); // it goes on where it is
        }
    }
}

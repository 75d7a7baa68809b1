//! Copies that could not be compared, since somebody did not answer in time, or both may be wrong.
//! Who could not answer then may be able to later, so every pair has its turn again: else a real copy
//! would never be relied on, and what was made in its place would be kept for ever.

use std::collections::BTreeMap;

use crate::{Incarnation, Span, Time, Version};

/// How long a pair is left alone: as long as it had to answer. A few megabytes are read at a time.
pub(super) const RETRY: Span = Span::from_secs(5);

/// A version, who was to show that it holds it, and beside whom.
pub(super) type UnshownPair = (Version, Incarnation, Incarnation);

/// Pairs that were asked in vain, and when they may be asked again.
#[derive(Clone, Debug, Default)]
pub(super) struct Unshown(BTreeMap<UnshownPair, Time>);

impl Unshown {
    pub(super) fn insert(&mut self, pair: UnshownPair, again: Time) {
        self.0.insert(pair, again);
    }

    pub(super) fn remove(&mut self, pair: &UnshownPair) {
        self.0.remove(pair);
    }

    pub(super) fn retain(&mut self, stands: impl Fn(&UnshownPair) -> bool) {
        self.0.retain(|pair, _| stands(pair));
    }

    /// Whether two groups were asked in vain, in whichever order.
    pub(super) fn contains(&self, version: Version, one: Incarnation, other: Incarnation) -> bool {
        self.0.contains_key(&(version, one, other)) || self.0.contains_key(&(version, other, one))
    }

    /// Whether somebody was to show beside this group that it holds the version, and did not.
    pub(super) fn beside(&self, version: Version, group: Incarnation) -> bool {
        self.0.keys().any(|(of, _, beside)| (*of, *beside) == (version, group))
    }

    /// The pair that has waited longest for another turn, of those that are `wanted`.
    pub(super) fn due(
        &self,
        now: Time,
        wanted: impl Fn(&UnshownPair) -> bool,
    ) -> Option<UnshownPair> {
        let due = self.0.iter().filter(|(pair, again)| **again <= now && wanted(pair));
        due.min_by_key(|(_, again)| **again).map(|(pair, _)| *pair)
    }
}

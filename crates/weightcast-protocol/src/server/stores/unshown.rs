//! Pairs of copies whose comparison came to nothing: a group did not answer in time, or either copy
//! may be wrong. A group may be able to answer later, so every pair gets another turn. Otherwise a
//! real copy would never be relied on, and the copy made in its place would be kept for ever.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Incarnation, Span, Time, Version};

/// How long a pair is left alone: as long as it had to answer. Each comparison reads a few
/// megabytes.
pub(in crate::server) const RETRY: Span = Span::from_secs(5);

/// A version, the claimant, and the group that it was compared with.
pub(in crate::server) type UnshownPair = (Version, Incarnation, Incarnation);

/// Pairs that were compared in vain, and when they may be compared again.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(in crate::server) struct Unshown(BTreeMap<UnshownPair, Time>);

impl Unshown {
    pub(in crate::server) fn insert(&mut self, pair: UnshownPair, again: Time) {
        self.0.insert(pair, again);
    }

    pub(in crate::server) fn remove(&mut self, pair: &UnshownPair) {
        self.0.remove(pair);
    }

    pub(in crate::server) fn retain(&mut self, stands: impl Fn(&UnshownPair) -> bool) {
        self.0.retain(|pair, _| stands(pair));
    }

    /// Whether two groups were compared in vain, in either order.
    pub(in crate::server) fn contains(
        &self,
        version: Version,
        one: Incarnation,
        other: Incarnation,
    ) -> bool {
        self.0.contains_key(&(version, one, other)) || self.0.contains_key(&(version, other, one))
    }

    /// Whether another group's comparison with this group came to nothing.
    pub(in crate::server) fn beside(&self, version: Version, group: Incarnation) -> bool {
        self.0.keys().any(|(of, _, beside)| (*of, *beside) == (version, group))
    }

    /// Of the `wanted` pairs, the due pair that has waited longest for another turn.
    pub(in crate::server) fn due(
        &self,
        now: Time,
        wanted: impl Fn(&UnshownPair) -> bool,
    ) -> Option<UnshownPair> {
        let due = self.0.iter().filter(|(pair, again)| **again <= now && wanted(pair));
        due.min_by_key(|(_, again)| **again).map(|(pair, _)| *pair)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Epoch, Term};

    fn group(number: u64) -> Incarnation {
        Incarnation { term: Term(1), number }
    }

    fn version(number: u64) -> Version {
        Version { epoch: Epoch(1), number }
    }

    #[test]
    fn a_pair_is_known_in_either_order_and_counts_beside_the_second_only() {
        let mut unshown = Unshown::default();
        unshown.insert((version(1), group(1), group(2)), Time(5));
        for (of, one, other) in [(1, 1, 2), (1, 2, 1)] {
            assert!(unshown.contains(version(of), group(one), group(other)));
        }
        for (of, one, other) in [(2, 1, 2), (1, 1, 3), (1, 3, 2), (1, 1, 1), (1, 2, 2)] {
            assert!(!unshown.contains(version(of), group(one), group(other)), "{of} {one} {other}");
        }
        for (of, beside, expected) in [(1, 2, true), (1, 1, false), (2, 2, false), (1, 3, false)] {
            assert_eq!(unshown.beside(version(of), group(beside)), expected, "{of} {beside}");
        }
        // Beside whom there are several, one is enough.
        unshown.insert((version(1), group(0), group(3)), Time(5));
        unshown.insert((version(2), group(4), group(1)), Time(5));
        assert!([2, 3].iter().all(|beside| unshown.beside(version(1), group(*beside))));
        assert!(unshown.beside(version(2), group(1)) && !unshown.beside(version(2), group(4)));
        unshown.remove(&(version(1), group(2), group(1)));
        assert!(unshown.beside(version(1), group(2)), "that was another pair");
        unshown.remove(&(version(1), group(1), group(2)));
        assert!(!unshown.beside(version(1), group(2)));
        assert!(!unshown.contains(version(1), group(1), group(2)));
    }

    #[test]
    fn of_those_that_are_wanted_who_has_waited_longest_has_its_turn_first() {
        let pair = |number| (version(1), group(number), group(9));
        let mut unshown = Unshown::default();
        for (number, again) in [(1, 30), (2, 10), (3, 20), (4, 10)] {
            unshown.insert(pair(number), Time(again));
        }
        let any = |_: &UnshownPair| true;
        assert_eq!(unshown.due(Time(9), any), None);
        assert_eq!(unshown.due(Time(10), any), Some(pair(2)));
        assert_eq!(unshown.due(Time(99), |of| *of != pair(2)), Some(pair(4)));
        assert_eq!(unshown.due(Time(19), |of| *of == pair(3)), None);
        assert_eq!(unshown.due(Time(20), |of| *of == pair(3)), Some(pair(3)));
        // Who is asked again and does not answer goes behind the others.
        unshown.insert(pair(2), Time(40));
        unshown.retain(|of| *of != pair(4));
        assert_eq!(unshown.due(Time(99), any), Some(pair(3)));
        unshown.retain(|of| *of == pair(2));
        assert_eq!(unshown.due(Time(39), any), None);
        assert_eq!(unshown.due(Time(40), any), Some(pair(2)));
    }
}

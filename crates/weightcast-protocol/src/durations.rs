//! How long calls took, as histograms that are added up.

use std::collections::BTreeMap;

use crate::Span;

/// The longest call that each bucket counts: from a call that finds nothing to do to a fleet that
/// waits for minutes. Longer calls are counted in none but the last, which has no bound.
const BOUNDS: [Span; 15] = [
    Span::from_millis(1),
    Span::from_millis(5),
    Span::from_millis(10),
    Span::from_millis(25),
    Span::from_millis(50),
    Span::from_millis(100),
    Span::from_millis(250),
    Span::from_millis(500),
    Span::from_secs(1),
    Span::from_millis(2_500),
    Span::from_secs(5),
    Span::from_secs(10),
    Span::from_secs(30),
    Span::from_secs(60),
    Span::from_secs(300),
];

/// How many calls took how long.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DurationHistogram {
    /// By the first bound that is not below the duration.
    counts: [u64; BOUNDS.len() + 1],
    sum: Span,
}

impl DurationHistogram {
    /// Counts one more.
    pub fn add(&mut self, duration: Span) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration);
        self.counts[bucket] += 1;
        self.sum = Span(self.sum.0.saturating_add(duration.0));
    }

    /// How many there were.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// How long all took together.
    pub fn sum(&self) -> Span {
        self.sum
    }

    /// Each bound, with how many took no longer.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let mut below = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            below += count;
            (*bound, below)
        })
    }

    /// Counts those of another histogram too.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(count, more)| *count += more);
        self.sum = Span(self.sum.0.saturating_add(other.sum.0));
    }
}

/// How long calls took, by the kind of call and by how they ended. Both are words of the protocol, so
/// that there are some hundred histograms at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDurations(BTreeMap<(&'static str, &'static str), DurationHistogram>);

impl CallDurations {
    /// A call of this kind has ended so.
    pub fn add(&mut self, call: &'static str, outcome: &'static str, duration: Span) {
        self.0.entry((call, outcome)).or_default().add(duration);
    }

    /// Each kind of call, how it ended, and how long that took.
    pub fn each(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &DurationHistogram)> + '_ {
        self.0.iter().map(|((call, outcome), durations)| (*call, *outcome, durations))
    }

    /// Counts those of other calls too.
    pub fn merge(&mut self, other: &Self) {
        for (kind, durations) in &other.0 {
            self.0.entry(*kind).or_default().merge(durations);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_is_counted_from_its_bound_on() {
        for (at, bound) in BOUNDS.iter().enumerate() {
            for (duration, first) in [(bound.0 - 1, at), (bound.0, at), (bound.0 + 1, at + 1)] {
                let mut histogram = DurationHistogram::default();
                histogram.add(Span(duration));
                let counted: Vec<u64> = histogram.buckets().map(|(_, count)| count).collect();
                let expected: Vec<u64> =
                    (0..BOUNDS.len()).map(|at| u64::from(at >= first)).collect();
                assert_eq!(counted, expected, "{duration} ns");
                assert_eq!((histogram.count(), histogram.sum()), (1, Span(duration)));
            }
        }
        assert!(BOUNDS.is_sorted_by(|a, b| a < b));
    }

    #[test]
    fn histograms_add_up_by_kind_and_end() {
        let (mut one, mut other) = (CallDurations::default(), CallDurations::default());
        one.add("update", "ok", Span::from_secs(1));
        other.add("update", "ok", Span::from_secs(7));
        other.add("update", "timeout", Span(u64::MAX));
        other.add("update", "timeout", Span(1));
        one.merge(&other);
        let told: Vec<_> = one.each().map(|(c, o, d)| (c, o, d.count(), d.sum())).collect();
        let longest = Span(u64::MAX);
        assert_eq!(
            told,
            [("update", "ok", 2, Span::from_secs(8)), ("update", "timeout", 2, longest)]
        );
        let (_, _, ok) = one.each().next().unwrap();
        let counts: Vec<u64> = ok.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]);
    }
}

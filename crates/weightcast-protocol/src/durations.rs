//! How long calls took, as histograms.

use std::collections::BTreeMap;

use crate::Span;

/// The longest call that each bucket counts: from a call that has nothing to do to a fleet that waits
/// for minutes. A last bucket, without a bound, counts longer calls.
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
    /// Counts by the first bound that is not below the duration.
    counts: [u64; BOUNDS.len() + 1],
    sum: Span,
}

impl DurationHistogram {
    /// Counts one duration.
    pub fn add(&mut self, duration: Span) {
        let bucket = BOUNDS.partition_point(|bound| *bound < duration);
        self.counts[bucket] += 1;
        self.sum = Span(self.sum.0.saturating_add(duration.0));
    }

    /// The number of durations.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations.
    pub fn sum(&self) -> Span {
        self.sum
    }

    /// Each bound, with the number of durations up to it.
    pub fn buckets(&self) -> impl Iterator<Item = (Span, u64)> + '_ {
        let mut below = 0;
        BOUNDS.iter().zip(&self.counts).map(move |(bound, count)| {
            below += count;
            (*bound, below)
        })
    }
}

/// How long calls took, by kind of call and outcome. Both are words of the protocol: there are some
/// hundred histograms at most.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallDurations(BTreeMap<(&'static str, &'static str), DurationHistogram>);

impl CallDurations {
    /// Counts a call of this kind with this outcome.
    pub fn add(&mut self, call: &'static str, outcome: &'static str, duration: Span) {
        self.0.entry((call, outcome)).or_default().add(duration);
    }

    /// Kind of call, outcome and durations of each histogram.
    pub fn each(
        &self,
    ) -> impl Iterator<Item = (&'static str, &'static str, &DurationHistogram)> + '_ {
        self.0.iter().map(|((call, outcome), durations)| (*call, *outcome, durations))
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
    fn calls_are_counted_by_kind_and_outcome() {
        let mut calls = CallDurations::default();
        calls.add("update", "ok", Span::from_secs(1));
        calls.add("update", "ok", Span::from_secs(7));
        calls.add("update", "timeout", Span(u64::MAX));
        calls.add("update", "timeout", Span(1));
        let told: Vec<_> = calls.each().map(|(c, o, d)| (c, o, d.count(), d.sum())).collect();
        let longest = Span(u64::MAX);
        assert_eq!(
            told,
            [("update", "ok", 2, Span::from_secs(8)), ("update", "timeout", 2, longest)]
        );
        let (_, _, ok) = calls.each().next().unwrap();
        let counts: Vec<u64> = ok.buckets().map(|(_, count)| count).collect();
        assert_eq!(counts, [0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]);
    }
}

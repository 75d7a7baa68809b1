//! Time as the machines see it: an integer that the runtime passes in.

use std::fmt;
use std::ops::{Add, Sub};

use serde::{Deserialize, Serialize};

/// A moment on one process's own monotonic clock, in nanoseconds. Never compared between machines.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct Span(pub u64);

impl Span {
    /// A span of whole milliseconds.
    pub const fn from_millis(milliseconds: u64) -> Self {
        Self(milliseconds.saturating_mul(1_000_000))
    }

    /// A span of whole seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(seconds.saturating_mul(1_000_000_000))
    }

    /// `self * numerator / denominator`, saturating; `denominator` must not be zero.
    pub const fn scaled(self, numerator: u64, denominator: u64) -> Self {
        let scaled = (self.0 as u128 * numerator as u128) / denominator as u128;
        Self(if scaled > u64::MAX as u128 { u64::MAX } else { scaled as u64 })
    }
}

/// In seconds, to a tenth.
impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = self.0.saturating_add(50_000_000) / 100_000_000;
        write!(f, "{}.{} s", tenths / 10, tenths % 10)
    }
}

impl Add<Span> for Time {
    type Output = Time;
    fn add(self, span: Span) -> Time {
        Time(self.0.saturating_add(span.0))
    }
}

impl Sub for Time {
    type Output = Span;
    fn sub(self, earlier: Time) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_scaled_in_full_and_stops_at_the_longest() {
        for (span, numerator, denominator, expected) in [
            (100, 110, 100, 110),
            (99, 1, 2, 49),
            (0, 7, 1, 0),
            (u64::MAX, 1, 2, u64::MAX / 2),
            (u64::MAX, 100, 100, u64::MAX),
            (u64::MAX, 101, 100, u64::MAX),
            (u64::MAX / 2, 2, 1, u64::MAX - 1),
            (u64::MAX / 2 + 1, 2, 1, u64::MAX),
            (u64::MAX, u64::MAX, 1, u64::MAX),
        ] {
            let scaled = Span(span).scaled(numerator, denominator);
            assert_eq!(scaled, Span(expected), "{span} * {numerator} / {denominator}");
        }
    }

    #[test]
    fn moments_and_spans_stop_at_their_ends() {
        assert_eq!(Time(4) + Span(5), Time(9));
        assert_eq!(Time(u64::MAX - 1) + Span(5), Time(u64::MAX));
        assert_eq!((Time(9) - Time(4), Time(4) - Time(9)), (Span(5), Span(0)));
        assert_eq!(
            (Span::from_millis(3), Span::from_secs(2)),
            (Span(3_000_000), Span(2_000_000_000))
        );
        assert_eq!(Span::from_secs(u64::MAX), Span(u64::MAX));
        assert_eq!(Span::from_millis(u64::MAX), Span(u64::MAX));
    }
}

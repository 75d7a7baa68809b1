//! Time as the machines see it: an integer that the runtime passes in.

use std::ops::{Add, Sub};

/// A moment on one process's own monotonic clock, in nanoseconds. Never compared between machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub u64);

/// A length of time in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
        Self(((self.0 as u128 * numerator as u128) / denominator as u128) as u64)
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

//! Clocks that start anywhere and run a little fast or slow (F32). Clocks of two processes are
//! never compared.

use weightcast_protocol::{Span, Time};

/// One process's own clock, as a function of the world's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DriftingClock {
    offset: u64,
    /// How long the clock has stood still, on the world's clock.
    behind: u64,
    /// The clock's rate, in thousandths of the world's.
    rate: u64,
}

impl DriftingClock {
    pub(crate) fn new(offset: u64, rate: u64) -> Self {
        Self { offset, behind: 0, rate }
    }

    /// The clock stood still for this long.
    pub(crate) fn stand_still(&mut self, span: Span) {
        self.behind += span.0;
    }

    /// What the clock shows at a moment of the world.
    pub(crate) fn local(&self, world: Time) -> Time {
        Time(self.offset + world.0.saturating_sub(self.behind) / 1000 * self.rate)
    }

    /// The first moment of the world at which the clock shows at least this.
    pub(crate) fn world(&self, local: Time) -> Time {
        Time(local.0.saturating_sub(self.offset).div_ceil(self.rate) * 1000 + self.behind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_never_fires_early() {
        for rate in [960, 1000, 1040] {
            let clock = DriftingClock::new(12_345, rate);
            for local in (0..5_000_000).step_by(77_777) {
                assert!(clock.local(clock.world(Time(local))) >= Time(local));
            }
        }
    }
}

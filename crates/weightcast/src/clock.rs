//! The only place where time comes from: monotonic, per process, never compared between machines.

use std::time::Duration;

use tokio::time::Instant;
use weightcast_protocol::{Span, Time};

/// Turns moments into the machines' integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    pub(crate) origin: Instant,
}

impl Clock {
    pub(crate) fn start() -> Self {
        Self { origin: Instant::now() }
    }

    pub(crate) fn now(&self) -> Time {
        Time(nanos(self.origin.elapsed()))
    }

    pub(crate) fn instant(&self, time: Time) -> Instant {
        self.origin + Duration::from_nanos(time.0)
    }
}

pub(crate) fn span(duration: Duration) -> Span {
    Span(nanos(duration))
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn moments_and_spans_are_in_nanoseconds() {
        let clock = Clock::start();
        for nanoseconds in [0, 1, 999, 1_000, 1_001, 123_456_789_012] {
            let moment = clock.instant(Time(nanoseconds));
            assert_eq!(moment - clock.origin, Duration::from_nanos(nanoseconds));
            assert_eq!(span(Duration::from_nanos(nanoseconds)), Span(nanoseconds));
        }
        // For ever, where that is longer than there are numbers.
        assert_eq!(span(Duration::MAX), Span(u64::MAX));
        let later = Duration::from_millis(7);
        tokio::time::advance(later).await;
        assert_eq!(clock.now(), Time(7_000_000));
        assert_eq!(clock.instant(clock.now()), clock.origin + later);
    }
}

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

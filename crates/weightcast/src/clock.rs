//! The only place where time comes from: monotonic, per process, never compared between machines.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::Instant;
use weightcast_protocol::{Span, Time};

/// Turns moments into the machines' integers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    origin: Instant,
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

/// A number that a restarted server does not repeat: it names a term, and is compared for equality
/// by clients only until failover gives terms an order of their own.
pub(crate) fn boot_time_nanos() -> u64 {
    nanos(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

//! How fast a read is. A shard that gets far less than it could tells the server, which moves the
//! shard to another source if one is free (L2). The pace is measured in windows; the time for
//! planning and connecting does not count.

use super::config::SessionConfig;
use crate::Time;

/// A read is slow below the shard's best pace in any window, divided by this.
const FAR_LESS: u64 = 8;

/// Progress of a read, as [`Output::Measure`](super::Output::Measure) asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadProgress {
    /// Bytes that have arrived in this read.
    pub arrived: u64,
    /// Bytes that are still to come.
    pub left: u64,
    /// The source's shard with most of the bytes still to come, by its place in the assignment.
    pub shard: u32,
}

/// The pace of one read.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    /// When the pace is measured next.
    pub(super) at: Time,
    /// When the pace was measured last, and how many bytes had arrived.
    since: Option<(Time, u64)>,
}

impl Pace {
    pub(super) fn new(at: Time) -> Self {
        Self { at, since: None }
    }

    /// Bytes a second since the last measurement.
    pub(super) fn measure(&mut self, now: Time, arrived: u64) -> Option<u64> {
        let (then, had) = self.since.replace((now, arrived))?;
        let nanos = u128::from((now - then).0);
        let bytes = u128::from(arrived.saturating_sub(had));
        (nanos > 0).then(|| u64::try_from(bytes * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
    }
}

/// The shard's best pace over a window of any read, in bytes a second.
#[derive(Clone, Debug, Default)]
pub(super) struct BestPace(u64);

impl BestPace {
    /// Whether a read of this pace should move to another source: it is slow, and would stay slow
    /// for long.
    pub(super) fn is_slow(
        &mut self,
        bytes_per_s: u64,
        progress: ReadProgress,
        config: &SessionConfig,
    ) -> bool {
        let best = self.0;
        self.0 = best.max(bytes_per_s);
        let slow = bytes_per_s < config.slow_pace.max(best / FAR_LESS);
        let seconds = u128::from(progress.left) / u128::from(bytes_per_s.max(1));
        let patience = u128::from(config.slow_patience.0) / 1_000_000_000;
        slow && progress.left > 0 && seconds >= patience
    }
}

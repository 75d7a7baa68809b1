//! How fast a read is. A shard that gets far less than it could tells the server, which moves the
//! shard to another source if one is free (L2). The pace is measured in windows; the time for
//! planning and connecting does not count.
//! Between the ends of windows a read is measured so that the server can show its progress to people.

use serde::{Deserialize, Serialize};

use super::config::SessionConfig;
use crate::Time;

/// A read is slow below the shard's best pace in any window, divided by this.
const FAR_LESS: u64 = 8;

/// Progress of a read, as [`Output::Measure`](super::Output::Measure) asks for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadProgress {
    /// Bytes that have arrived, including bytes of an earlier read that are kept.
    pub arrived: u64,
    /// Bytes that are still to come.
    pub left: u64,
    /// The source's shard with most of the bytes still to come, by its place in the assignment.
    pub shard: u32,
}

/// The pace of one read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct Pace {
    /// When the window ends.
    at: Time,
    /// When the server is told the progress next; `None` if the server is not told.
    report_at: Option<Time>,
    /// Whether the last measurement was for the report alone.
    only_reports: bool,
    /// When the pace was measured last, and how many bytes had arrived.
    since: Option<(Time, u64)>,
}

impl Pace {
    /// The pace of a read that begins now.
    pub(super) fn new(now: Time, config: &SessionConfig) -> Self {
        Self {
            at: now + config.pace_window,
            report_at: config.progress_every.map(|every| now + every),
            only_reports: false,
            since: None,
        }
    }

    /// When the read is measured next.
    pub(super) fn next(&self) -> Time {
        self.report_at.map_or(self.at, |at| at.min(self.at))
    }

    /// Takes a measurement. Each measurement is told, so the next report is due a whole pause later.
    pub(super) fn ask(&mut self, now: Time, config: &SessionConfig) {
        self.only_reports = self.at > now;
        if !self.only_reports {
            self.at = now + config.pace_window;
        }
        self.report_at = config.progress_every.map(|every| now + every);
    }

    /// Whether the server is told what was measured.
    pub(super) fn reports(&self) -> bool {
        self.report_at.is_some()
    }

    /// Bytes a second since the last window's end. `None` if no window has ended now.
    pub(super) fn measure(&mut self, now: Time, arrived: u64) -> Option<u64> {
        if self.only_reports {
            return None;
        }
        let (then, had) = self.since.replace((now, arrived))?;
        let nanos = u128::from((now - then).0);
        let bytes = u128::from(arrived.saturating_sub(had));
        (nanos > 0).then(|| u64::try_from(bytes * 1_000_000_000 / nanos).unwrap_or(u64::MAX))
    }
}

/// The shard's best pace over a window of any read, in bytes a second.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
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

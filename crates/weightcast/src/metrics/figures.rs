//! The counts of one model, over all its handles in this process.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use weightcast_protocol::{CallDurations, Version};

use crate::clock::span;

/// The counts of one model. They only grow, except for the open handles.
#[derive(Clone, Debug, Default)]
pub(crate) struct ModelFigures {
    /// The open handles, with the version that each holds, and since when.
    pub(super) handles: BTreeMap<u64, Option<(Version, Instant)>>,
    /// The newest version that this process has heard of.
    newest: Option<Version>,
    /// The calls of all handles.
    pub(super) calls: CallDurations,
    /// The last update that brought a version: when it ended, and how long it took.
    pub(super) last_update: Option<(Instant, Duration)>,
    pub(super) shared: WayFigures,
    pub(super) direct: WayFigures,
    pub(super) tcp: WayFigures,
    /// Bytes that finished reads did not move, because the memory held them already.
    pub(super) unchanged_bytes: u64,
    /// Seconds of finished reads, planning included.
    pub(super) read_seconds: f64,
    pub(super) plan_seconds: f64,
    pub(super) install_seconds: f64,
    /// Seconds in which published memory was digested.
    pub(super) seal_seconds: f64,
    /// Assignments of a source to a call that had one before.
    pub(crate) retries: u64,
    /// Publications of this process that were refused.
    pub(crate) refusals: u64,
    /// Copies of retained versions that this process made.
    pub(crate) offloads: u64,
    /// Versions that this process brought near in the background.
    pub(crate) seeds: u64,
}

/// Reads by one way.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct WayFigures {
    pub(super) bytes: u64,
    /// End of the last read by this way, and its bytes a second.
    pub(super) last: Option<(Instant, f64)>,
}

/// One finished read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ReadBrought {
    pub(crate) shared: u64,
    pub(crate) direct: u64,
    pub(crate) tcp: u64,
    /// Bytes that were not moved.
    pub(crate) unchanged: u64,
    pub(crate) seconds: f64,
    /// Seconds of these in which the plan was made.
    pub(crate) plan_seconds: f64,
    pub(crate) install_seconds: f64,
}

impl ModelFigures {
    /// A call has ended.
    pub(crate) fn call_ended(
        &mut self,
        now: Instant,
        call: &'static str,
        outcome: &'static str,
        took: Duration,
    ) {
        self.calls.add(call, outcome, span(took));
        if is_update(call) && outcome == "ok" {
            self.last_update = Some((now, took));
        }
    }

    /// Some answer named this version, which is available or was.
    pub(crate) fn heard_of(&mut self, version: Version) {
        self.newest = self.newest.max(Some(version));
    }

    /// A read has ended well.
    pub(crate) fn read_ended(&mut self, now: Instant, read: &ReadBrought) {
        let moving = read.seconds - read.plan_seconds;
        for (way, bytes) in [
            (&mut self.shared, read.shared),
            (&mut self.direct, read.direct),
            (&mut self.tcp, read.tcp),
        ] {
            way.bytes += bytes;
            if bytes > 0 && moving > 0.0 {
                way.last = Some((now, bytes as f64 / moving));
            }
        }
        self.unchanged_bytes += read.unchanged;
        self.read_seconds += read.seconds;
        self.plan_seconds += read.plan_seconds;
        self.install_seconds += read.install_seconds;
    }

    /// Published memory was digested in this time.
    pub(crate) fn sealed_in(&mut self, took: Duration) {
        self.seal_seconds += took.as_secs_f64();
    }

    /// The versions that handles hold, and since when.
    pub(super) fn held(&self) -> impl Iterator<Item = (Version, Instant)> + '_ {
        self.handles.values().filter_map(|held| *held)
    }

    /// Versions of the same run between the oldest one held and the newest.
    pub(super) fn lag(&self) -> Option<u64> {
        let newest = self.newest?;
        let same_run = self.held().filter(|(held, _)| held.epoch == newest.epoch);
        same_run.map(|(held, _)| newest.number.saturating_sub(held.number)).max()
    }
}

#[cfg(test)]
impl ModelFigures {
    /// How often this call has ended, by outcome.
    pub(crate) fn ended(&self, call: &str) -> Vec<(&'static str, u64)> {
        let of = self.calls.each().filter(|(name, ..)| *name == call);
        of.map(|(_, outcome, durations)| (outcome, durations.count())).collect()
    }

    /// Of all reads: bytes by each way and unchanged; seconds, those of plans and of installs.
    pub(crate) fn brought(&self) -> [f64; 7] {
        let bytes = [self.shared, self.direct, self.tcp].map(|way| way.bytes as f64);
        let seconds = [self.read_seconds, self.plan_seconds, self.install_seconds];
        let unchanged = self.unchanged_bytes as f64;
        [bytes[0], bytes[1], bytes[2], unchanged, seconds[0], seconds[1], seconds[2]]
    }

    /// Seconds in which published memory was digested.
    pub(crate) fn sealing_took(&self) -> f64 {
        self.seal_seconds
    }

    /// The versions that handles hold.
    pub(crate) fn versions(&self) -> Vec<Version> {
        self.held().map(|(version, _)| version).collect()
    }

    pub(crate) fn last_update_took(&self) -> Option<Duration> {
        self.last_update.map(|(_, took)| took)
    }
}

/// Whether a rollout waits for weights in this call.
pub(super) fn is_update(call: &str) -> bool {
    matches!(call, "update" | "replicate")
}

#[cfg(test)]
mod tests {
    use weightcast_protocol::Epoch;

    use super::*;

    fn version(epoch: u64, number: u64) -> Version {
        Version { epoch: Epoch(epoch), number }
    }

    #[test]
    fn what_is_held_is_behind_the_newest_of_its_run() {
        let now = Instant::now();
        let mut figures = ModelFigures::default();
        assert_eq!(figures.lag(), None);
        figures.handles = BTreeMap::from([(1, Some((version(1, 7), now))), (2, None)]);
        assert_eq!(figures.lag(), None, "nothing was heard of");
        for (heard, lag) in [(6, 0), (7, 0), (8, 1), (7, 1), (12, 5)] {
            figures.heard_of(version(1, heard));
            assert_eq!(figures.lag(), Some(lag), "after {heard}");
        }
        figures.handles.insert(2, Some((version(1, 9), now)));
        assert_eq!(figures.lag(), Some(5), "of the one furthest behind");
        figures.heard_of(version(2, 1));
        assert_eq!(figures.lag(), None, "numbers of two runs say nothing of each other");
    }

    #[test]
    fn each_way_has_its_own_bytes_and_its_own_rate() {
        let (before, now) = (Instant::now(), Instant::now());
        let mut figures = ModelFigures::default();
        let read = ReadBrought {
            direct: 600,
            seconds: 3.0,
            plan_seconds: 1.0,
            install_seconds: 0.5,
            ..ReadBrought::default()
        };
        figures.read_ended(before, &read);
        figures.read_ended(now, &ReadBrought { direct: 0, tcp: 50, unchanged: 7, ..read });
        figures.read_ended(
            now,
            &ReadBrought { shared: 90, seconds: 1.0, plan_seconds: 0.5, ..Default::default() },
        );
        assert_eq!(figures.unchanged_bytes, 7);
        assert_eq!((figures.direct.bytes, figures.direct.last), (600, Some((before, 300.0))));
        assert_eq!((figures.tcp.bytes, figures.tcp.last), (50, Some((now, 25.0))));
        let seconds = [figures.read_seconds, figures.plan_seconds, figures.install_seconds];
        assert_eq!((figures.shared.bytes, figures.shared.last), (90, Some((now, 180.0))));
        assert_eq!(seconds, [7.0, 2.5, 1.0]);
        // A read without a length has no rate.
        let at_once = ReadBrought { direct: 1, ..ReadBrought::default() };
        figures.read_ended(now, &at_once);
        assert_eq!((figures.direct.bytes, figures.direct.last), (601, Some((before, 300.0))));
    }
}

//! Progress and rate of a shard's read, as the shard reports: figures for people. All that is decided by
//! these is whether it is too late for a further source (`striping`).

use serde::{Deserialize, Serialize};

use crate::limits::RATE_WINDOW;
use crate::{Span, Time};

/// Progress of one shard's read.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(in crate::server) struct ShardProgress {
    /// When the first report came.
    pub(in crate::server) since: Time,
    /// Bytes that have arrived, at most `total`.
    pub(in crate::server) arrived: u64,
    /// Bytes in all.
    pub(in crate::server) total: u64,
    /// When the last report came.
    at: Time,
    /// Two earlier reports. The rate is reckoned from the older report, which the newer replaces a window later.
    marks: [(Time, u64); 2],
}

impl ShardProgress {
    /// The first report of a read.
    pub(in crate::server) fn new(now: Time, arrived: u64, total: u64) -> Self {
        let arrived = arrived.min(total);
        Self { since: now, arrived, total, at: now, marks: [(now, arrived); 2] }
    }

    /// A further report.
    pub(in crate::server) fn report(&mut self, now: Time, arrived: u64, total: u64) {
        (self.at, self.total, self.arrived) = (now, total, arrived.min(total));
        let [_, mark] = self.marks;
        if now - mark.0 >= RATE_WINDOW {
            self.marks = [mark, (now, self.arrived)];
        }
    }

    /// Bytes a second of late; falls while no report comes. `None` before the second report.
    pub(in crate::server) fn bytes_per_s(&self, now: Time) -> Option<u64> {
        let [(then, had), _] = self.marks;
        let until = if now - self.at > RATE_WINDOW { now } else { self.at };
        let nanos = u128::from((until - then).0);
        let bytes = u128::from(self.arrived.saturating_sub(had));
        let rate = (bytes * 1_000_000_000).checked_div(nanos)?;
        Some(u64::try_from(rate).unwrap_or(u64::MAX))
    }

    /// How long the rest takes at this rate. `None` if the rate is zero and bytes are missing.
    pub(in crate::server) fn remaining(&self, now: Time) -> Option<Span> {
        let left = u128::from(self.total - self.arrived);
        if left == 0 {
            return Some(Span(0));
        }
        let rate = u128::from(self.bytes_per_s(now)?);
        let nanos = (left * 1_000_000_000).checked_div(rate)?;
        Some(Span(u64::try_from(nanos).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Time {
        Time(0) + Span::from_millis(millis)
    }

    #[test]
    fn a_rate_is_over_a_window_or_two_and_falls_while_nothing_is_said() {
        let mut progress = ShardProgress::new(at(0), 100, 10_000);
        assert_eq!((progress.bytes_per_s(at(0)), progress.remaining(at(0))), (None, None));
        let mut rates = Vec::new();
        for (second, arrived) in [(1, 200), (2, 400), (3, 600), (4, 1_400), (5, 1_400)] {
            progress.report(at(1_000 * second), arrived, 10_000);
            rates.push(progress.bytes_per_s(at(1_000 * second)).unwrap());
        }
        // From 0, 0, 0, then from 2 and 2.
        assert_eq!(rates, [100, 150, 166, 500, 333]);
        assert_eq!(progress.remaining(at(5_000)), Some(Span(8_600 * 1_000_000_000 / 333)));
        // Silence counts once it is longer than a window.
        assert_eq!(progress.bytes_per_s(at(7_000)), Some(333));
        assert_eq!(progress.bytes_per_s(at(7_001)), Some(199));
        assert_eq!(progress.bytes_per_s(at(12_000)), Some(100));
    }

    #[test]
    fn no_report_makes_more_arrive_than_there_is_or_a_number_overflow() {
        let most = u64::MAX;
        for (arrived, total) in [(most, 0), (most, 5), (5, most), (most, most), (0, 0)] {
            let mut progress = ShardProgress::new(Time(0), arrived, total);
            assert!(progress.arrived <= progress.total);
            for now in [Time(0), Time(1), Time(most)] {
                progress.report(now, total, arrived);
                assert!(progress.arrived <= progress.total);
                progress.report(now, arrived, total);
                let _no_panic = (progress.bytes_per_s(now), progress.remaining(now));
            }
        }
        let mut progress = ShardProgress::new(Time(0), 0, most);
        progress.report(Time(1), most - 1, most);
        assert_eq!(progress.bytes_per_s(Time(1)), Some(most));
        // A report of fewer bytes than before counts as no bytes.
        progress.report(Time(2), 0, most);
        assert_eq!((progress.bytes_per_s(Time(2)), progress.remaining(Time(2))), (Some(0), None));
        assert_eq!(ShardProgress::new(Time(0), 7, 7).remaining(Time(9)), Some(Span(0)));
    }
}

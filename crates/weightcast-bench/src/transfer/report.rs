//! The measured values, as `--json` prints them.

use serde::{Serialize, Serializer};
use weightcast::transport::bench::SocketShape;

use super::sockets;
use crate::base::machine::Machine;
use crate::base::measure::median;

/// A whole run.
#[derive(Debug, Serialize)]
pub(crate) struct TransferReport {
    pub(crate) machine: Machine,
    pub(crate) quick: bool,
    pub(crate) runs: usize,
    /// The shapes of raw sockets that were tried, the fastest first: TCP is set beside that one.
    pub(crate) socket_pairs: Vec<SocketTimes>,
    pub(crate) transfers: Vec<CaseReport>,
    pub(crate) publish: Vec<PublishTime>,
    /// Whether every update was verified and every byte was then found in its place.
    pub(crate) verified: bool,
    pub(crate) seconds: f64,
}

/// Raw sockets of one shape, with no digest.
#[derive(Debug, Serialize)]
pub(crate) struct SocketTimes {
    /// Streams and bytes of a write: `2 x 1 MiB`.
    #[serde(serialize_with = "name_of_shape")]
    pub(crate) shape: SocketShape,
    /// That each try moved.
    pub(crate) bytes: u64,
    pub(crate) median_s: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) all_s: Vec<f64>,
}

fn name_of_shape<S: Serializer>(shape: &SocketShape, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_str(&sockets::name(*shape))
}

/// One case.
#[derive(Debug, Serialize)]
pub(crate) struct CaseReport {
    pub(crate) case: String,
    pub(crate) tensors: usize,
    /// Bytes that the target's shards receive, in all.
    pub(crate) bytes: u64,
    pub(crate) source_shards: usize,
    pub(crate) target_shards: usize,
    /// Of each way beside each of its limits: the short of it.
    pub(crate) rows: Vec<LimitRow>,
    pub(crate) ways: Vec<WayTimes>,
}

/// A way's time beside one limit.
#[derive(Debug, PartialEq, Serialize)]
pub(crate) struct LimitRow {
    pub(crate) way: &'static str,
    pub(crate) median_s: f64,
    pub(crate) limit: String,
    /// The way's speed over the limit's.
    pub(crate) of_limit: f64,
}

/// One case by one way.
#[derive(Debug, Serialize)]
pub(crate) struct WayTimes {
    /// `direct`, `tcp` or `shared`.
    pub(crate) way: &'static str,
    /// Why there are no times, if there are none.
    pub(crate) unavailable: Option<String>,
    pub(crate) stack: Option<StackTimes>,
    pub(crate) limits: Vec<LimitTimes>,
    pub(crate) floors: Vec<Floor>,
}

/// A whole `update` call: control plane, copies, digests, commit.
#[derive(Debug, Serialize)]
pub(crate) struct StackTimes {
    pub(crate) median_s: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) all_s: Vec<f64>,
    /// Median time of the read alone.
    pub(crate) read_median_s: f64,
    /// The first update, which also connects and plans.
    pub(crate) first_s: f64,
    /// Median time of the publisher to digest its memory before the update.
    pub(crate) seal_median_s: f64,
    /// Mean CPU seconds of one update: sources, target and server together.
    pub(crate) cpu_s: f64,
    /// Largest growth of this process's memory in one update; `None` if the kernel does not tell.
    pub(crate) extra_bytes: Option<u64>,
    pub(crate) verified_bytes: u64,
    /// Whether every byte, compared after each update, was what was published.
    pub(crate) content_ok: bool,
}

/// A limit, and the share of it that the stack reached.
#[derive(Debug, Serialize)]
pub(crate) struct LimitTimes {
    pub(crate) limit: String,
    pub(crate) median_s: f64,
    pub(crate) gb_per_s: f64,
    pub(crate) all_s: Vec<f64>,
    pub(crate) cpu_s: f64,
    /// Ratio of the medians: the stack's speed over the limit's.
    pub(crate) ratio: f64,
    /// Smallest ratio within one turn.
    pub(crate) ratio_min: f64,
    /// Largest ratio within one turn.
    pub(crate) ratio_max: f64,
}

/// A promise, and whether it was kept.
#[derive(Debug, Serialize)]
pub(crate) struct Floor {
    pub(crate) what: String,
    pub(crate) wanted: f64,
    pub(crate) got: f64,
    pub(crate) pass: bool,
}

/// The time of `publish` for one size.
#[derive(Debug, Serialize)]
pub(crate) struct PublishTime {
    pub(crate) bytes: u64,
    pub(crate) tensors: usize,
    pub(crate) median_s: f64,
    pub(crate) all_s: Vec<f64>,
    /// Median time to digest, in the background.
    pub(crate) seal_median_s: f64,
}

impl WayTimes {
    /// One for each limit; none where the way is not possible.
    pub(crate) fn rows(&self) -> Vec<LimitRow> {
        let row = |stack: &StackTimes| {
            let (way, median_s) = (self.way, stack.median_s);
            let limits = self.limits.iter();
            let row = |l: &LimitTimes| LimitRow {
                way,
                median_s,
                limit: l.limit.clone(),
                of_limit: l.ratio,
            };
            limits.map(row).collect()
        };
        self.stack.as_ref().map(row).unwrap_or_default()
    }
}

impl LimitTimes {
    /// Sets a limit's runs beside the stack's runs of the same turns.
    pub(crate) fn new(
        limit: String,
        bytes: u64,
        all_s: Vec<f64>,
        cpu_s: f64,
        stack: &[f64],
    ) -> Self {
        let pairs = || all_s.iter().zip(stack).map(|(limit, stack)| limit / stack);
        let median_s = median(&all_s);
        Self {
            limit,
            median_s,
            gb_per_s: gb_per_s(bytes, median_s),
            cpu_s,
            ratio: median_s / median(stack),
            ratio_min: pairs().fold(f64::INFINITY, f64::min),
            ratio_max: pairs().fold(0.0, f64::max),
            all_s,
        }
    }
}

impl Floor {
    /// A share that should be reached.
    pub(crate) fn at_least(what: String, wanted: f64, got: f64) -> Self {
        Self { what, wanted, got, pass: got >= wanted }
    }

    /// A time that should not be exceeded.
    pub(crate) fn below(what: String, wanted: f64, got: f64) -> Self {
        Self { what, wanted, got, pass: got < wanted }
    }
}

/// Billions of bytes a second.
pub(crate) fn gb_per_s(bytes: u64, seconds: f64) -> f64 {
    bytes as f64 / seconds / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_floor_is_kept_from_the_number_on() {
        let floors = |got| {
            let (share, time) =
                (Floor::at_least(String::new(), 2.0, got), Floor::below(String::new(), 2.0, got));
            assert_eq!((share.wanted, share.got, time.wanted, time.got), (2.0, got, 2.0, got));
            (share.pass, time.pass)
        };
        assert_eq!([1.9, 2.0, 2.1].map(floors), [(false, true), (true, false), (true, false)]);
    }

    #[test]
    fn a_limit_is_set_beside_the_turns_of_the_stack() {
        let limit = LimitTimes::new(
            "memcpy".to_owned(),
            6_000_000_000,
            vec![1.0, 3.0, 2.0],
            0.5,
            &[4.0, 4.0, 10.0],
        );
        assert_eq!((limit.median_s, limit.gb_per_s, limit.cpu_s), (2.0, 3.0, 0.5));
        assert_eq!((limit.ratio, limit.ratio_min, limit.ratio_max), (0.5, 0.2, 0.75));
    }
}

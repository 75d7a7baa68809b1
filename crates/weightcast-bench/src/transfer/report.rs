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
    use std::collections::BTreeSet;

    use serde_json::{Value, json};

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

    /// Whoever reads the JSON relies on these names.
    #[test]
    fn the_json_has_a_row_for_each_way_beside_each_of_its_limits() {
        let report = report();
        let json = serde_json::to_value(&report).unwrap();
        let rows = json!([
            {"way": "tcp", "median_s": 2.0, "limit": "best socket pair (2 x 1 MiB)", "of_limit": 0.75},
            {"way": "tcp", "median_s": 2.0, "limit": "memcpy x2", "of_limit": 0.25},
        ]);
        assert_eq!(json["transfers"][0]["rows"], rows);
        let fields = |at: &str| {
            let object = json.pointer(at).and_then(Value::as_object).expect(at);
            object.keys().cloned().collect::<BTreeSet<_>>()
        };
        for (at, names) in [
            ("", "machine publish quick runs seconds socket_pairs transfers verified"),
            ("/socket_pairs/0", "all_s bytes gb_per_s median_s shape"),
            ("/transfers/0", "bytes case rows source_shards target_shards tensors ways"),
            ("/transfers/0/ways/0", "floors limits stack unavailable way"),
            (
                "/transfers/0/ways/0/stack",
                "all_s content_ok cpu_s extra_bytes first_s gb_per_s median_s read_median_s \
                 seal_median_s verified_bytes",
            ),
            (
                "/transfers/0/ways/0/limits/0",
                "all_s cpu_s gb_per_s limit median_s ratio ratio_max ratio_min",
            ),
            ("/transfers/0/ways/0/floors/0", "got pass wanted what"),
            ("/publish/0", "all_s bytes median_s seal_median_s tensors"),
        ] {
            let names = names.split_whitespace().map(str::to_owned).collect();
            assert_eq!(fields(at), names, "{at}");
        }
        assert_eq!(json["socket_pairs"][0]["shape"], "2 x 1 MiB");
        assert_eq!(json["transfers"][0]["ways"][1]["unavailable"], "no");
    }

    /// One way that was measured, and one that is not possible.
    fn report() -> TransferReport {
        let limit =
            |name: &str, all_s| LimitTimes::new(name.to_owned(), 1_000, vec![all_s], 0.0, &[2.0]);
        let stack = StackTimes {
            median_s: 2.0,
            gb_per_s: 1.0,
            all_s: vec![2.0],
            read_median_s: 1.0,
            first_s: 1.0,
            seal_median_s: 1.0,
            cpu_s: 1.0,
            extra_bytes: None,
            verified_bytes: 1,
            content_ok: true,
        };
        let measured = WayTimes {
            way: "tcp",
            unavailable: None,
            stack: Some(stack),
            limits: vec![limit("best socket pair (2 x 1 MiB)", 1.5), limit("memcpy x2", 0.5)],
            floors: vec![Floor::below("seconds".to_owned(), 1.0, 2.0)],
        };
        let impossible = WayTimes {
            way: "direct",
            unavailable: Some("no".to_owned()),
            stack: None,
            limits: Vec::new(),
            floors: Vec::new(),
        };
        let ways = vec![measured, impossible];
        let shape = SocketShape { streams: 2, piece: 1 << 20 };
        TransferReport {
            machine: crate::base::machine::machine(),
            quick: true,
            runs: 1,
            socket_pairs: vec![SocketTimes {
                shape,
                bytes: 1,
                median_s: 1.0,
                gb_per_s: 1.0,
                all_s: vec![1.0],
            }],
            transfers: vec![CaseReport {
                case: "tiny".to_owned(),
                tensors: 1,
                bytes: 1_000,
                source_shards: 1,
                target_shards: 1,
                rows: ways.iter().flat_map(WayTimes::rows).collect(),
                ways,
            }],
            publish: vec![PublishTime {
                bytes: 1,
                tensors: 1,
                median_s: 1.0,
                all_s: vec![1.0],
                seal_median_s: 1.0,
            }],
            verified: true,
            seconds: 1.0,
        }
    }
}

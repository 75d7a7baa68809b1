//! What was seen while a case was played.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use weightcast_protocol::server::Counters;

use super::file::Measure;
use super::links::NetworkLink;

/// What a case came to. Times are in seconds of the cluster's clock, bytes in GB (10^9).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Outcome {
    /// Every measured wait for weights.
    pub stalls: Vec<Stall>,
    /// Time that measured `publish` and `unpublish` calls took, of all shards together.
    pub publishing_s: f64,
    /// GB that came into each datacentre from others, by version.
    #[serde(serialize_with = "crossed")]
    pub crossed: BTreeMap<(u64, String), f64>,
    /// GB on each link, warm-up included.
    pub links: Vec<LinkBytes>,
    /// What went wrong, and how often. Calls that failed were made again.
    pub failures: BTreeMap<String, u64>,
    /// Length of the play on the cluster's clock.
    pub play_s: f64,
    /// Events played.
    pub events: u64,
    /// The server's.
    #[serde(skip)]
    pub counters: Counters,
}

/// One shard's wait for a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// The group of the scenario.
    pub group: String,
    /// Which of its replicas.
    pub replica: u32,
    /// Which shard.
    pub shard: u32,
    /// What it got.
    pub version: u64,
    /// When it first asked.
    pub began_s: f64,
    /// How long its calls took together.
    pub stall_s: f64,
    /// When it had it.
    pub ended_s: f64,
}

/// What went over a link, one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkBytes {
    /// The link.
    pub name: String,
    /// How much.
    pub gb: f64,
}

impl From<&NetworkLink> for LinkBytes {
    fn from(link: &NetworkLink) -> Self {
        Self { name: link.name.clone(), gb: link.bytes / 1e9 }
    }
}

fn crossed<S: Serializer>(
    crossed: &BTreeMap<(u64, String), f64>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    let named = |((version, to), gb): (&(u64, String), &f64)| (format!("{version} to {to}"), *gb);
    serializer.collect_map(crossed.iter().map(named))
}

impl Outcome {
    pub(super) fn failed(&mut self, what: String) {
        *self.failures.entry(what).or_default() += 1;
    }

    /// A measure over the waits of a group and for a version, of all if not said. None if nobody
    /// waited.
    pub fn measure(&self, what: Measure, group: Option<&str>, version: Option<u64>) -> Option<f64> {
        if what == Measure::CrossedGb {
            let of = |of: &u64| version.is_none_or(|version| version == *of);
            return Some(self.crossed.iter().filter(|((v, _), _)| of(v)).map(|(_, gb)| gb).sum());
        }
        let chosen = |stall: &&Stall| {
            group.is_none_or(|group| group == stall.group)
                && version.is_none_or(|version| version == stall.version)
        };
        let stalls: Vec<&Stall> = self.stalls.iter().filter(chosen).collect();
        let mut times: Vec<f64> = stalls.iter().map(|stall| stall.stall_s).collect();
        times.sort_by(f64::total_cmp);
        let (first, last) = (*times.first()?, *times.last()?);
        let total: f64 = times.iter().sum();
        Some(match what {
            Measure::TotalStallS => total,
            Measure::MeanStallS => total / times.len() as f64,
            Measure::LeastStallS => first,
            Measure::MedianStallS => times[(times.len() - 1) / 2],
            Measure::LongestStallS => last,
            Measure::SpanS => {
                let began = stalls.iter().map(|stall| stall.began_s).fold(f64::INFINITY, f64::min);
                stalls.iter().map(|stall| stall.ended_s).fold(0.0, f64::max) - began
            }
            Measure::CrossedGb => unreachable!("answered above"),
        })
    }
}

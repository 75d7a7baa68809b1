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
    /// What went wrong, and how often. Failed calls were made again.
    pub failures: BTreeMap<String, u64>,
    /// Length of the play on the cluster's clock.
    pub play_s: f64,
    /// Events played.
    pub events: u64,
    /// The server's counters.
    #[serde(skip)]
    pub counters: Counters,
}

/// One shard's wait for a version.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stall {
    /// The group's name in the scenario.
    pub group: String,
    /// Number of the replica in its group.
    pub replica: u32,
    /// Number of the shard in its replica.
    pub shard: u32,
    /// The version's number that the shard got.
    pub version: u64,
    /// When the shard first asked.
    pub began_s: f64,
    /// How long the shard's calls for the version took together.
    pub stall_s: f64,
    /// When the shard held the version.
    pub ended_s: f64,
}

/// How much went over a link, one way.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LinkBytes {
    /// The link's name.
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

    /// A measure over the waits of one group and for one version; over all where none is given.
    /// None if no shard waited. `CrossedGb` counts all groups, and is never none.
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

//! A cluster and what it does, as a scenario file says it.
//!
//! Sizes are in GB (10^9 bytes), rates in GB/s, times in seconds unless the name says otherwise.

use std::collections::BTreeMap;

use serde::Deserialize;

/// A cluster and what it does.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setting {
    /// Shards of every group.
    pub shards: u32,
    /// Size of a shard.
    pub shard_gb: f64,
    /// By name.
    pub datacentres: BTreeMap<String, Datacentre>,
    /// Links between datacentres. Between two datacentres without one, only network cards limit the
    /// rate.
    #[serde(default)]
    pub links: Vec<Between>,
    /// Which part of a line's rate is goodput.
    pub goodput: Goodput,
    /// Waiting times of the network and of the machines.
    #[serde(default)]
    pub latency: LinkLatency,
    /// How the server and the sessions are configured.
    #[serde(default)]
    pub protocol: Protocol,
    /// By name.
    pub groups: BTreeMap<String, GroupSetting>,
    /// What happens, in order of time.
    pub script: Vec<ScriptStep>,
}

/// A datacentre: all its hosts are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Datacentre {
    /// GPUs, and so shards, of a host.
    pub gpus_per_host: u32,
    /// Network cards of a host for its own datacentre; its GPUs share them evenly.
    pub nics_per_host: u32,
    /// Line rate of each of these cards, in each direction at once.
    pub nic_gb_s: f64,
    /// Line rate of a host's one card to other datacentres.
    pub outer_nic_gb_s: f64,
}

/// A link between two datacentres.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Between {
    /// One end.
    pub a: String,
    /// The other.
    pub b: String,
    /// Rate of each direction.
    pub gb_s: f64,
}

/// Parts of the line rate that arrive as weights, with where the numbers are from.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodput {
    /// Within a datacentre.
    pub inner: f64,
    /// Between datacentres.
    pub outer: f64,
    /// Where the numbers are from.
    pub source: String,
}

/// Waiting times.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LinkLatency {
    /// One way between a session and the server, in milliseconds.
    pub control_ms: f64,
    /// One way between two hosts of a datacentre, in microseconds.
    pub inner_us: f64,
    /// One way between datacentres, in milliseconds.
    pub outer_ms: f64,
    /// How long a source may be silent before its reader gives it up.
    pub silence_s: f64,
    /// How fast a trainer digests a shard that it has published.
    pub digest_gb_s: f64,
}

impl Default for LinkLatency {
    fn default() -> Self {
        Self { control_ms: 0.5, inner_us: 20.0, outer_ms: 1.0, silence_s: 4.0, digest_gb_s: 200.0 }
    }
}

/// Configuration of the protocol. Everything else is the server's default.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Protocol {
    /// Whether replicas are read while they are being filled.
    pub relays: bool,
    /// Readers of one source at once, on other hosts.
    pub fanout: u32,
    /// Readers of one source at once, on its own host. Here these too are sent to over the cards of GPUs, so usually
    /// no more than elsewhere.
    pub host_fanout: u32,
    /// How long a chain of relays may be.
    pub depth_limit: u32,
    /// Length of a session's lease.
    pub lease_s: f64,
}

impl Default for Protocol {
    fn default() -> Self {
        Self { relays: true, fanout: 1, host_fanout: 1, depth_limit: 64, lease_s: 5.0 }
    }
}

/// A group of replicas that are alike.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GroupSetting {
    /// Trainer or rollout.
    pub role: GroupRole,
    /// How many replicas.
    pub replicas: u32,
    /// The datacentre of all replicas.
    pub datacentre: String,
    /// Whether the replicas run on spot instances, which may be taken away at any time.
    #[serde(default)]
    pub spot: bool,
    /// Whether updates leave crossings to a seed replica in CPU memory.
    #[serde(default)]
    pub offload_seeding: bool,
    /// Whether the replicas start only when the script says `join`.
    #[serde(default)]
    pub joins_later: bool,
}

/// What a group may do.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum GroupRole {
    /// Publishes.
    Trainer,
    /// Replicates.
    Rollout,
}

/// Something that the replicas of a group do, all at once unless `spread_s` says otherwise.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptStep {
    /// When.
    pub at_s: f64,
    /// What.
    #[serde(rename = "do")]
    pub verb: Verb,
    /// Who.
    pub group: String,
    /// Which replicas of the group; all if not given.
    pub replicas: Option<Vec<u32>>,
    /// The version to publish or to update to.
    pub version: Option<u64>,
    /// How long `update` waits between two polls.
    pub every_s: Option<f64>,
    /// How much later each replica begins than the one before.
    #[serde(default)]
    pub spread_s: f64,
    /// The step only prepares the measurement, and is not measured.
    #[serde(default)]
    pub warm_up: bool,
}

/// What a script can say.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub enum Verb {
    /// Publishes a version; unpublishes the version held before, if any.
    Publish,
    /// Unpublishes.
    Unpublish,
    /// Replicates the newest version.
    Replicate,
    /// Polls until it holds the version.
    Update,
    /// Starts processes, which then replicate.
    Join,
    /// Kills processes and their hosts, without a message.
    Kill,
}

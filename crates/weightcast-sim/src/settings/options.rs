//! What a world is made of.

use std::fmt;

use weightcast_protocol::limits::{Limits, ReelLimits};
use weightcast_protocol::{Safeguards, SessionId, Span};

use crate::settings::fault_kinds::{FaultCounts, FaultKind};

/// How many calls one shard may be ahead of its siblings. The bound is above what a shard reaches
/// while a sibling is held up, and below what a long life makes, so that calls that are never
/// forgotten show (T5).
const CALLS_AHEAD: usize = 64;

/// Size, length and faults of a world. The seed varies all of it below these bounds.
#[derive(Clone, Debug)]
pub struct WorldOptions {
    /// Trainer replicas; the first starts the runs, the others publish the same versions.
    pub trainers: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// The most shards that a group has.
    pub max_shards: u32,
    /// Chunks of one version, over all shards of a group.
    pub chunks: u32,
    /// Readers that a source may have at once in its datacentre, and as many that cross.
    pub fanout: u32,
    /// Readers that a source may have at once on its own host.
    pub host_fanout: u32,
    /// Sources that one reader may draw from at once.
    pub stripes: u32,
    /// Hosts of each datacentre; each group lies on one.
    pub hosts: u32,
    /// Bounds of the servers' memory.
    pub limits: Limits,
    /// The longest chain of replicas that read from each other.
    pub depth_limit: u32,
    /// Datacentres over which the replicas are spread.
    pub datacentres: u32,
    /// How many of a thousand rollouts run on spot instances.
    pub spot: u64,
    /// How many of a thousand groups of several shards hold everything on each shard.
    pub replicated: u64,
    /// How many of a thousand rollout groups stage their updates.
    pub staged: u64,
    /// Reference servers: the first acts, the others are its backups.
    pub servers: u32,
    /// How long a session that has lost its server looks for another; zero: the session ends at
    /// once.
    pub reconnect: Span,
    /// Length of a session's lease.
    pub lease: Span,
    /// How long the server waits for readers.
    pub drain_deadline: Span,
    /// How many of the newest versions the trainers retain.
    pub retain: u32,
    /// How many of a thousand copies and seeds fail for lack of memory; half as many are slow.
    pub offload_trouble: u64,
    /// How many of a thousand rollouts leave crossings to seed replicas.
    pub offload_seeding: u64,
    /// How long a seed replica may take.
    pub seed_deadline: Span,
    /// How long a last copy is held back until it is offloaded.
    pub offload_deadline: Span,
    /// The longest time to digest published memory.
    pub digest_time: Span,
    /// The longest time to read a chunk within a datacentre, from a source that is not slow.
    pub chunk_time: Span,
    /// How often shards tell the progress of their reads; `None`: never.
    pub progress_every: Option<Span>,
    /// How many of a thousand messages are late, until faults cease.
    pub late: u64,
    /// The longest delay of a late message.
    pub late_by: Span,
    /// How fast or slow clocks are at most, in thousandths.
    pub drift: u64,
    /// The deadline of every call of a program; zero: each call has its usual deadline.
    pub call_deadline: Span,
    /// The longest pause of a process between two calls.
    pub think_time: Span,
    /// How long faults happen.
    pub fault_time: Span,
    /// How long the world then has until everything must be well.
    pub quiet_time: Span,
    /// How many faults of each kind there are at most; a seed leaves some kinds out.
    pub faults: FaultCounts,
    /// Safeguards switched off.
    pub safeguards: Safeguards,
    /// How much the recorders of servers and sessions keep, if they record.
    pub recorders: Option<ReelLimits>,
    /// Servers check themselves after every event, and give up with a panic, as under `serve --paranoid`.
    pub paranoid: bool,
}

impl WorldOptions {
    /// The name of a session. A recording keeps the upper half; otherwise the number stands in the lower half, so that
    /// worlds go as they went.
    pub(crate) fn session_id(&self, number: u64) -> SessionId {
        let half = if self.recorders.is_some() { 64 } else { 0 };
        SessionId(u128::from(number) << half)
    }
}

impl Default for WorldOptions {
    fn default() -> Self {
        Self {
            trainers: 2,
            rollouts: 4,
            max_shards: 3,
            chunks: 12,
            fanout: 1,
            host_fanout: 1,
            stripes: 3,
            hosts: 4,
            limits: Limits { calls_ahead: CALLS_AHEAD, ..Limits::default() },
            depth_limit: 64,
            datacentres: 1,
            spot: 0,
            replicated: 0,
            staged: 300,
            servers: 2,
            reconnect: Span::from_secs(30),
            lease: Span::from_secs(1),
            drain_deadline: Span::from_millis(800),
            retain: 1,
            offload_trouble: 50,
            offload_seeding: 0,
            seed_deadline: Span::from_secs(3),
            offload_deadline: Span::from_millis(1_500),
            digest_time: Span::from_millis(60),
            chunk_time: Span::from_millis(6),
            progress_every: None,
            late: 20,
            late_by: Span::from_millis(150),
            // The leases' margin of 10 % on both sides leaves room for a drift of 4 % and more.
            drift: 40,
            call_deadline: Span(0),
            think_time: Span::from_millis(120),
            fault_time: Span::from_secs(10),
            quiet_time: Span::from_secs(20),
            faults: FaultCounts::usual(),
            safeguards: Safeguards::default(),
            recorders: None,
            paranoid: false,
        }
    }
}

impl fmt::Display for WorldOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = |span: Span| span.0 as f64 / 1e9;
        writeln!(
            f,
            "{} trainers and {} rollouts of at most {} shards, {} chunks, fan-out {} and {} on \
             a host, {} stripes, depth {}",
            self.trainers,
            self.rollouts,
            self.max_shards,
            self.chunks,
            self.fanout,
            self.host_fanout,
            self.stripes,
            self.depth_limit
        )?;
        writeln!(
            f,
            "{} versions remembered, {} calls ahead, {} sources of {} shards at once",
            self.limits.versions,
            self.limits.calls_ahead,
            self.limits.sources,
            self.limits.source_shards
        )?;
        writeln!(
            f,
            "{} datacentres of {} hosts, {} of 1000 rollouts spot, {} stage their updates, {} groups \
             replicated",
            self.datacentres, self.hosts, self.spot, self.staged, self.replicated
        )?;
        let seed_time = seconds(self.seed_deadline);
        writeln!(f, "{} of 1000 rollouts seed, in {seed_time} s at most", self.offload_seeding)?;
        let patience = seconds(self.reconnect);
        writeln!(f, "{} servers, sessions look for another for {patience} s", self.servers)?;
        writeln!(
            f,
            "{} versions retained, {} of 1000 offloads out of memory, each has {} s",
            self.retain,
            self.offload_trouble,
            seconds(self.offload_deadline)
        )?;
        writeln!(
            f,
            "lease {} s, drain {} s, at most {} s a chunk and {} s between calls",
            seconds(self.lease),
            seconds(self.drain_deadline),
            seconds(self.chunk_time),
            seconds(self.think_time)
        )?;
        writeln!(f, "{} of 1000 messages late, clocks off by {} of 1000", self.late, self.drift)?;
        if self.call_deadline > Span(0) {
            writeln!(f, "calls have {} s", seconds(self.call_deadline))?;
        }
        let faults: Vec<String> = FaultKind::ALL
            .iter()
            .filter(|kind| self.faults.most(**kind) > 0)
            .map(|kind| format!("{} {}", kind.name(), self.faults.most(*kind)))
            .collect();
        writeln!(
            f,
            "faults for {} s, at most: {}; then {} s of quiet",
            seconds(self.fault_time),
            if faults.is_empty() { "none".to_owned() } else { faults.join(", ") },
            seconds(self.quiet_time)
        )
    }
}

//! What a world is made of.

use weightcast_protocol::Span;
use weightcast_protocol::mutants::Mutants;

/// Size, length and faults of a world. The seed varies all of it below these bounds.
#[derive(Clone, Debug)]
pub struct Options {
    /// Trainer replicas; the first starts the runs, the others publish the same versions.
    pub trainers: u32,
    /// Rollout replicas.
    pub rollouts: u32,
    /// The most shards that a group has.
    pub max_shards: u32,
    /// Chunks of one version, over all shards of a group.
    pub chunks: u32,
    /// Readers that a source may have at once.
    pub fanout: u32,
    /// Length of a session's lease.
    pub lease: Span,
    /// How long faults happen.
    pub fault_time: Span,
    /// How long the world then has to come right.
    pub quiet_time: Span,
    /// How many faults of each kind there are at most; a seed leaves some kinds out.
    pub faults: FaultCounts,
    /// Safeguards switched off.
    pub mutants: Mutants,
}

/// How often each kind of fault happens at most in one world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaultCounts {
    /// A stream breaks, with what is on it.
    pub breaks: u64,
    /// A process can't reach the server for a while, up to twice the lease (F2).
    pub partitions: u64,
    /// A process dies and is started again (F3, F4).
    pub crashes: u64,
    /// A process is suspended, up to twice the lease (F6, F7).
    pub pauses: u64,
    /// A bit flips on the path of a read (F10).
    pub flips: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            trainers: 2,
            rollouts: 4,
            max_shards: 3,
            chunks: 12,
            fanout: 1,
            lease: Span::from_secs(1),
            fault_time: Span::from_secs(10),
            quiet_time: Span::from_secs(12),
            faults: FaultCounts { breaks: 12, partitions: 4, crashes: 4, pauses: 6, flips: 4 },
            mutants: Mutants::default(),
        }
    }
}

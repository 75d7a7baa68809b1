//! What the server counts.

/// How often things happened since the server started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Counters {
    /// Versions published, counting each replica.
    pub publishes: u64,
    /// Published replicas whose digests came in and were right.
    pub seals: u64,
    /// Published replicas whose digests were wrong.
    pub fenced: u64,
    /// Assignments of sources to groups.
    pub assignments: u64,
    /// Replicas committed.
    pub commits: u64,
    /// Staged updates whose bytes were verified before the old copy was given up.
    pub staged: u64,
    /// Reads that failed because of the source.
    pub read_failures: u64,
    /// Assignments of a source that is being filled itself.
    pub relays: u64,
    /// Assignments of several sources at once.
    pub striped: u64,
    /// Readers that went on with one of several sources, because another reader needed a source.
    pub unstriped: u64,
    /// Readers that went on elsewhere, because a source was slow.
    pub moved_on: u64,
    /// Assignments with which a transfer continued, keeping the bytes that it had.
    pub resumes: u64,
    /// Assignments of a source in another datacentre.
    pub crossings: u64,
    /// Updates answered as unchanged while a first copy was on its way to their datacentre.
    pub skips: u64,
    /// Reports of readers that a source's content is wrong.
    pub accusations: u64,
    /// Sources fenced because two replicas accused them.
    pub accused_fenced: u64,
    /// Transfers whose digests were not the publisher's.
    pub digest_mismatches: u64,
    /// Readers cut off because a drain deadline passed.
    pub drains_cut: u64,
    /// Sessions whose lease ran out.
    pub evictions: u64,
    /// Offload replicas that came to hold a version.
    pub offloads: u64,
    /// Offload replicas that were told to go.
    pub offloads_released: u64,
    /// Retained versions whose last copy was given up, since it could not be offloaded.
    pub retention_lost: u64,
    /// Pairs of copies whose shards were asked to show the bytes.
    pub challenges: u64,
    /// Pairs of these that showed equal bytes.
    pub proofs: u64,
    /// Copies that a proved copy showed to have other bytes.
    pub refuted: u64,
    /// Seed replicas that groups were asked for.
    pub seeds_asked: u64,
    /// Seed replicas that came to hold a version.
    pub seeds: u64,
    /// Seed replicas that were asked for and failed.
    pub seeds_failed: u64,
    /// Seed replicas that held a version and were told to go.
    pub seeds_released: u64,
    /// Groups whose shards made different calls.
    pub divergences: u64,
    /// Calls that ended at their deadline.
    pub timeouts: u64,
    /// Sessions refused.
    pub refusals: u64,
    /// Terms taken.
    pub terms: u64,
    /// Groups that came over from an earlier term.
    pub recoveries: u64,
    /// Copies not given up before all clients of an earlier term could have come over (A5).
    pub held_back: u64,
}

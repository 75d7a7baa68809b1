//! Safeguards that a test rig may switch off, to show that it notices. Never off in a job.

/// Each field switches one safeguard off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mutants {
    /// `unpublish` is answered although the replica is being read (S9).
    pub no_drain: bool,
    /// Every shard's call is resolved on its own (G1, G3).
    pub no_group_transaction: bool,
    /// Replicas commit without comparing their content with the publisher's (S6).
    pub no_digest_check: bool,
    /// Replicas commit although their source went away meanwhile (S5).
    pub no_commit_fence: bool,
    /// Sessions go on serving a generation whose memory has become mutable (S3).
    pub no_source_fence: bool,
}

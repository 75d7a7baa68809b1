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
    /// `unpublish` does not say that what was published had been refused (S7).
    pub silent_refusal: bool,
    /// Replicas commit although their source went away meanwhile (S5).
    pub no_commit_fence: bool,
    /// Sessions go on serving a generation whose memory has become mutable (S3).
    pub no_source_fence: bool,
    /// Readers take the progress of a source whatever generation it is of (S4). Read by the
    /// simulator alone, whose chunk loop stands for the transports: nothing here looks at it.
    pub untagged_progress: bool,
    /// Replicas commit although the one they read has not (S5).
    pub no_dag_order: bool,
    /// Sources are chosen without looking whom they read from themselves (D2).
    pub naive_source_choice: bool,
    /// Sessions keep what they read from a source that was proved bad (D5).
    pub keep_suspect: bool,
    /// A server goes on in its term although a client knows a later one, and sessions act on
    /// earlier terms than they have known (T2, T3).
    pub stale_term_accepted: bool,
    /// A group goes on in a new term although its shards were answered differently before (G1, G4).
    pub unequal_recovery: bool,
    /// A server acts at once on what it knows, though its clients have not all announced (A5).
    pub no_recovery_window: bool,
    /// The last copy of a retained version is given up before it was offloaded (A2).
    pub no_offload_wait: bool,
    /// A copy counts although its shards have not shown that they hold the bytes (A2).
    pub claims_counted: bool,
    /// An offload replica is released although nobody else holds its version (A3).
    pub early_release: bool,
    /// An update reads from another datacentre although its group has offload seeding (O1).
    pub cross_in_place: bool,
    /// A group is asked to seed although another one does (O2).
    pub second_seed: bool,
    /// A seed replica is kept although nobody in its datacentre lacks its version (O3).
    pub keep_seed: bool,
    /// Sessions copy a staged version into place as soon as it is read, though the old one is still
    /// held and served (S2, S3).
    pub staged_early_copy: bool,
    /// Of several sources that one reader draws from, only the first has to stand (S5).
    pub first_stripe_only: bool,
    /// A reader that is to let go of its further sources keeps their places (T5).
    pub unstriped_kept: bool,
    /// The first of several sources is accused of what a reader drew from all of them (T4).
    pub accuse_first_stripe: bool,
    /// A wait for all rollouts does not look at those that hold nothing (W1).
    pub blind_wait: bool,
    /// A version's content is whatever was sealed last (S7).
    pub any_content: bool,
    /// A replica is listed as soon as one shard has published (S8).
    pub partial_publish: bool,
    /// A replica is listed until the last shard has called `unpublish` (S8).
    pub late_retraction: bool,
    /// A server that takes over counts revisions from the start (S10).
    pub revisions_restart: bool,
    /// A copy goes out of the listing without a new revision (S10).
    pub silent_retraction: bool,
    /// A transfer is committed as soon as one shard has read (G4).
    pub partial_commit: bool,
    /// What a shard says of an earlier assignment counts for the present one (G4).
    pub stale_reports: bool,
    /// An `unpublish` takes effect with the first shard's call (L8).
    pub unpublish_by_one: bool,
    /// A call runs out of time after half of it (L1).
    pub early_timeouts: bool,
    /// A call that is made again is carried out again (G5).
    pub repeats_run_again: bool,
    /// A source has any number of readers (D1).
    pub no_fanout: bool,
    /// Another datacentre is as good as one's own (D3).
    pub far_as_near: bool,
    /// A version crosses although it is crossing already (D4).
    pub many_crossings: bool,
    /// Chains grow without bound (D6).
    pub no_depth_bound: bool,
    /// One reader's word fences a source, even the last one (T4).
    pub one_accuser: bool,
    /// A source that is free again is offered to nobody who waits (L2).
    pub missed_wakeup: bool,
    /// Readers of a copy that is being given up have as long as they like (L3).
    pub endless_drain: bool,
    /// Who finds every source of a version busy is told that there is none (A1).
    pub busy_is_gone: bool,
    /// An offload replica is no copy to anybody else: the next holder's is offloaded as well (A4).
    pub blind_to_offloads: bool,
    /// A shard that may have missed what became of its copy is not told again (G1).
    pub verdict_said_once: bool,
    /// A call that is made again when the group is at its end is answered with that (G5).
    pub end_over_record: bool,
    /// A reader that went on after another source accuses its last one of all (T4).
    pub accuse_resumed: bool,
    /// Calls that all shards have gone past are kept (T5).
    pub calls_kept: bool,
    /// Models that nobody is in any more are kept (L6).
    pub models_kept: bool,
    /// Offload replicas are never released (L6).
    pub offloads_kept: bool,
    /// A session that an acting server has refused for now may make the next one act (L5).
    pub refused_may_activate: bool,
    /// What was read when a call ran out of time is not kept for the next one (L4).
    pub reads_from_zero: bool,
    /// A reader whose source is slow stays there (L2).
    pub slow_source_kept: bool,
    /// Digests that could not be sent when they came are not sent later (L7).
    pub seal_said_once: bool,
    /// A lease counts from when its renewal was answered, not from when it was asked for (T1).
    pub lease_from_answer: bool,
    /// A server that was told of another one that acts takes over from it at once (L5).
    pub no_deference: bool,
    /// A server believes tickets and terms that no server has given (T6).
    pub tickets_unchecked: bool,
    /// A shard may announce more than its ticket says that it held (T6).
    pub claims_unproved: bool,
}

//! The table of mutants: each switches one safeguard off, or several that mask each other. A
//! checker is believed only because it finds them. A new mutant is one entry here.

use weightcast_protocol::Span;
use weightcast_protocol::mutants::Mutants;

use crate::fault_kinds::{FaultCounts, FaultKind};
use crate::options::Options;
use crate::report::Violation;

/// A protocol with something missing.
#[derive(Clone, Copy, Debug)]
pub struct Mutant {
    /// As the command line has it.
    pub name: &'static str,
    /// What is switched off.
    pub what: &'static str,
    /// The invariants whose checkers must find it; one is enough.
    pub found_by: &'static [&'static str],
    switch: fn(&mut Mutants),
    /// Makes the world one in which it can show.
    scenario: fn(Options) -> Options,
}

impl Mutant {
    /// The one of this name.
    pub fn named(name: &str) -> Option<&'static Mutant> {
        MUTANTS.iter().find(|mutant| mutant.name == name)
    }

    /// Whether this is what had to be found.
    pub(crate) fn expects(&self, violation: &Violation) -> bool {
        self.found_by.contains(&violation.invariant.as_str())
    }

    /// The world in which this seed plays it.
    pub fn options(&self, seed: u64) -> Options {
        let mut options = (self.scenario)(Options::drawn(seed));
        (self.switch)(&mut options.mutants);
        options
    }
}

/// All of them.
pub const MUTANTS: &[Mutant] = &[
    Mutant {
        name: "no_drain",
        what: "unpublish is answered although the replica is being read",
        found_by: &["S9"],
        switch: |off| off.no_drain = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "no_group_transaction",
        what: "every shard's call is resolved on its own",
        found_by: &["G1"],
        switch: |off| off.no_group_transaction = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "no_digest",
        what: "replicas commit without comparing their content with the publisher's",
        found_by: &["S1"],
        switch: |off| off.no_digest_check = true,
        scenario: flipping,
    },
    Mutant {
        name: "no_commit_fence",
        what: "replicas commit although their source went away meanwhile",
        found_by: &["S5"],
        switch: |off| off.no_commit_fence = true,
        scenario: late_reports,
    },
    Mutant {
        name: "no_source_fence",
        what: "sessions go on serving a generation whose memory has become mutable",
        found_by: &["S3"],
        switch: |off| off.no_source_fence = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "no_digest+no_commit_fence",
        what: "neither digests nor the server's fence: a zombie's read counts",
        found_by: &["S1", "S5"],
        switch: |off| (off.no_digest_check, off.no_commit_fence) = (true, true),
        scenario: busy,
    },
    Mutant {
        name: "no_drain+no_source_fence+no_digest",
        what: "nothing stands between a write and a read: torn weights are accepted",
        found_by: &["S1"],
        switch: |off| {
            (off.no_drain, off.no_source_fence, off.no_digest_check) = (true, true, true);
        },
        scenario: unflipped,
    },
    Mutant {
        name: "staged_early_copy",
        what: "a staged version is copied into place while the old one is held and served",
        found_by: &["S3"],
        switch: |off| off.staged_early_copy = true,
        scenario: |options| Options { staged: 1_000, ..options },
    },
    Mutant {
        name: "first_stripe_only",
        what: "of several sources that one reader draws from, only the first has to stand",
        found_by: &["S5"],
        switch: |off| off.first_stripe_only = true,
        scenario: leaving_helpers,
    },
    Mutant {
        name: "accuse_first_stripe",
        what: "wrong bytes drawn from several sources are said to be the first one's",
        found_by: &["T4"],
        switch: |off| off.accuse_first_stripe = true,
        scenario: flipped_stripes,
    },
    Mutant {
        name: "blind_wait",
        what: "a wait for all rollouts does not look at those that hold nothing",
        found_by: &["W1"],
        switch: |off| off.blind_wait = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "untagged_progress",
        what: "progress says nothing of its generation: what was there before counts",
        found_by: &["S4"],
        switch: |off| off.untagged_progress = true,
        scenario: crowd,
    },
    Mutant {
        name: "no_dag_order",
        what: "replicas commit before those that they were read from",
        found_by: &["S5"],
        switch: |off| off.no_dag_order = true,
        scenario: crowd,
    },
    Mutant {
        name: "naive_source_choice",
        what: "a replica may read from one that reads from it",
        found_by: &["D2"],
        switch: |off| off.naive_source_choice = true,
        scenario: crowd,
    },
    Mutant {
        name: "keep_suspect",
        what: "what came from a source proved bad is kept when another goes on",
        found_by: &["D5", "L1"],
        switch: |off| off.keep_suspect = true,
        scenario: |options| flipping(crowd(options)),
    },
    Mutant {
        name: "stale_term_accepted",
        what: "servers and sessions go on in a term although there is a later one",
        found_by: &["T2", "T3", "L5"],
        switch: |off| off.stale_term_accepted = true,
        scenario: failing_over,
    },
    Mutant {
        name: "tickets_unchecked",
        what: "servers believe terms and pasts that no server has written",
        found_by: &["T6"],
        switch: |off| off.tickets_unchecked = true,
        scenario: pretending,
    },
    Mutant {
        name: "claims_unproved",
        what: "a shard that comes over may say that it held what no server has seen it hold",
        found_by: &["T6"],
        switch: |off| off.claims_unproved = true,
        scenario: pretending,
    },
    Mutant {
        name: "unequal_recovery",
        what: "a group goes on in a later term although its shards were answered differently",
        found_by: &["G1", "G4", "T3"],
        switch: |off| off.unequal_recovery = true,
        scenario: failing_over,
    },
    Mutant {
        name: "no_recovery_window",
        what: "a server that took over acts as if it knew all that there is",
        found_by: &["A5"],
        switch: |off| off.no_recovery_window = true,
        scenario: failing_over,
    },
    Mutant {
        name: "no_offload_wait",
        what: "unpublish does not wait until the last copy of a retained version is offloaded",
        found_by: &["A2"],
        switch: |off| off.no_offload_wait = true,
        scenario: retaining,
    },
    Mutant {
        name: "claims_counted",
        what: "a copy counts although its shards have not shown that they hold the bytes",
        found_by: &["A2"],
        switch: |off| off.claims_counted = true,
        scenario: claiming,
    },
    Mutant {
        name: "early_release",
        what: "an offload replica is released though nobody else holds its version",
        found_by: &["A3"],
        switch: |off| off.early_release = true,
        scenario: retaining,
    },
    Mutant {
        name: "cross_in_place",
        what: "an update crosses although its group leaves that to a seed",
        found_by: &["O1"],
        switch: |off| off.cross_in_place = true,
        scenario: seeding,
    },
    Mutant {
        name: "second_seed",
        what: "a group is asked for a seed though its datacentre has one",
        found_by: &["O2"],
        switch: |off| off.second_seed = true,
        scenario: seeding,
    },
    Mutant {
        name: "keep_seed",
        what: "a seed is kept though nobody in its datacentre lacks its version",
        found_by: &["O3"],
        switch: |off| off.keep_seed = true,
        scenario: seeding,
    },
    Mutant {
        name: "any_content",
        what: "a version's content is whatever was sealed last",
        found_by: &["S7"],
        switch: |off| off.any_content = true,
        scenario: forging,
    },
    Mutant {
        name: "silent_refusal",
        what: "unpublish does not say that what was published had been refused",
        found_by: &["S7"],
        switch: |off| off.silent_refusal = true,
        scenario: forging,
    },
    Mutant {
        name: "partial_publish",
        what: "a replica is listed as soon as one shard has published",
        found_by: &["S8"],
        switch: |off| off.partial_publish = true,
        scenario: sharded,
    },
    Mutant {
        name: "late_retraction",
        what: "a replica is listed until the last shard has called unpublish",
        found_by: &["S8"],
        switch: |off| off.late_retraction = true,
        scenario: sharded,
    },
    Mutant {
        name: "silent_retraction",
        what: "a copy goes out of the listing without a new revision",
        found_by: &["S10"],
        switch: |off| off.silent_retraction = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "partial_commit",
        what: "a transfer is committed as soon as one shard has read",
        found_by: &["G4"],
        switch: |off| off.partial_commit = true,
        scenario: sharded,
    },
    Mutant {
        name: "repeats_run_again",
        what: "a call that is made again is carried out again",
        found_by: &["G5"],
        switch: |off| off.repeats_run_again = true,
        scenario: busy,
    },
    Mutant {
        name: "no_fanout",
        what: "a source has any number of readers",
        found_by: &["D1"],
        switch: |off| off.no_fanout = true,
        scenario: crowd,
    },
    Mutant {
        name: "far_as_near",
        what: "a source in another datacentre is as good as one in the reader's own",
        found_by: &["D3"],
        switch: |off| off.far_as_near = true,
        scenario: spread,
    },
    Mutant {
        name: "many_crossings",
        what: "a version crosses to a datacentre although it is crossing already",
        found_by: &["D4"],
        switch: |off| off.many_crossings = true,
        scenario: spread,
    },
    Mutant {
        name: "no_depth_bound",
        what: "chains of replicas grow without bound",
        found_by: &["D6"],
        switch: |off| off.no_depth_bound = true,
        scenario: shallow,
    },
    Mutant {
        name: "one_accuser",
        what: "one reader's word fences a source, even the last one",
        found_by: &["T4"],
        switch: |off| off.one_accuser = true,
        scenario: |options| flipping(crowd(options)),
    },
    Mutant {
        name: "missed_wakeup",
        what: "a source that is free again is offered to nobody who waits",
        found_by: &["L2"],
        switch: |off| off.missed_wakeup = true,
        scenario: crowd,
    },
    Mutant {
        name: "seal_said_once",
        what: "digests that came while a session had no server are never told to one",
        found_by: &["L7"],
        switch: |off| off.seal_said_once = true,
        scenario: sealing,
    },
    Mutant {
        name: "slow_source_kept",
        what: "who reads from a slow source stays there though another one is free",
        found_by: &["L2"],
        switch: |off| off.slow_source_kept = true,
        scenario: slow_sources,
    },
    Mutant {
        name: "reads_from_zero",
        what: "what was read when a call ran out of time is not kept for the next one",
        found_by: &["L1"],
        switch: |off| off.reads_from_zero = true,
        scenario: long_reads,
    },
    Mutant {
        name: "endless_drain",
        what: "readers of a copy that is being given up are never cut off",
        found_by: &["L3"],
        switch: |off| off.endless_drain = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "busy_is_gone",
        what: "who finds every source of a version busy is told that there is none",
        found_by: &["A1"],
        switch: |off| off.busy_is_gone = true,
        scenario: crowd,
    },
    Mutant {
        name: "blind_to_offloads",
        what: "an offload replica is not seen as a copy, so the next holder's is offloaded as well",
        found_by: &["A4"],
        switch: |off| off.blind_to_offloads = true,
        scenario: retaining,
    },
    Mutant {
        name: "calls_kept",
        what: "calls that all shards have gone past are kept",
        found_by: &["T5"],
        switch: |off| off.calls_kept = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "models_kept",
        what: "models that nobody is in any more are kept",
        found_by: &["L6"],
        switch: |off| off.models_kept = true,
        scenario: as_drawn,
    },
    Mutant {
        name: "offloads_kept",
        what: "offload replicas are never released",
        found_by: &["L6"],
        switch: |off| off.offloads_kept = true,
        scenario: retaining,
    },
    Mutant {
        name: "refused_may_activate+no_deference",
        what: "who was refused by a server that acts may make the next one act, at once",
        found_by: &["L5"],
        switch: |off| (off.refused_may_activate, off.no_deference) = (true, true),
        scenario: failing_over,
    },
];

/// Trainers publish other content under numbers that have theirs.
fn forging(options: Options) -> Options {
    let faults = options.faults.with(FaultKind::Forge, 12);
    Options { trainers: options.trainers.max(2), faults, ..options }
}

/// Groups of several shards.
fn sharded(options: Options) -> Options {
    Options { max_shards: 4, ..options }
}

/// Two datacentres, with many replicas in each.
fn spread(options: Options) -> Options {
    Options { datacentres: 2, rollouts: 7, ..options }
}

/// Whoever reads from a replica that is being filled is one too deep.
fn shallow(options: Options) -> Options {
    Options { depth_limit: 1, ..crowd(options) }
}

/// Rollouts far from the trainer, all of which leave crossings to seeds that have room.
fn seeding(options: Options) -> Options {
    let rollouts = options.rollouts.max(4);
    let seeding = Options { offload_seeding: 1_000, offload_trouble: 0, ..options };
    Options { datacentres: 2, rollouts, ..seeding }
}

/// Servers come and go.
fn failing_over(options: Options) -> Options {
    let faults = FaultCounts::none()
        .with(FaultKind::Break, 20)
        .with(FaultKind::Pause, 6)
        .with(FaultKind::ServerCrash, 8)
        .with(FaultKind::ServerPause, 8)
        .with(FaultKind::Rift, 8);
    Options { servers: 3, reconnect: Span::from_secs(30), faults, ..options }
}

/// The same, and somebody makes use of it.
fn pretending(options: Options) -> Options {
    let options = failing_over(options);
    Options { faults: options.faults.clone().with(FaultKind::Pretend, 60), ..options }
}

/// Versions are retained, and their offloads have room.
fn retaining(options: Options) -> Options {
    Options { retain: options.retain.max(1), offload_trouble: 0, ..options }
}

/// Versions are retained, and readers say that they have read them.
fn claiming(options: Options) -> Options {
    let options = retaining(options);
    let faults = options.faults.with(FaultKind::Claim, 30);
    Options { faults, rollouts: options.rollouts.clamp(1, 3), ..options }
}

/// Many replicas of one size, in one place: long chains.
fn crowd(options: Options) -> Options {
    Options { rollouts: 6, max_shards: 1, datacentres: 1, depth_limit: 64, ..options }
}

/// Reports are later than a drain takes.
fn late_reports(options: Options) -> Options {
    Options { late: 300, late_by: Span::from_millis(1_500), ..crowd(busy(options)) }
}

/// Idle replicas enough to draw from several, and many bits that flip.
fn flipped_stripes(options: Options) -> Options {
    let faults = FaultCounts::none().with(FaultKind::Flip, 120);
    Options { trainers: 3, fanout: 1, stripes: 4, staged: 0, faults, ..crowd(options) }
}

/// Many replicas that hold a version and have nothing to do, and that leave soon after one has read
/// from them, before its report has come.
fn leaving_helpers(options: Options) -> Options {
    Options {
        trainers: 3,
        rollouts: 8,
        chunks: 4,
        chunk_time: Span::from_millis(2),
        think_time: Span::from_millis(100),
        drain_deadline: Span::from_millis(20),
        late: 200,
        late_by: Span::from_millis(800),
        fanout: 1,
        stripes: 4,
        staged: 0,
        faults: FaultCounts::none().with(FaultKind::Close, 200).with(FaultKind::Pause, 12),
        ..crowd(options)
    }
}

/// Servers die while versions are sealed, which takes longer than to find another one.
fn sealing(options: Options) -> Options {
    let faults = FaultCounts::none().with(FaultKind::SealCrash, 12).with(FaultKind::Break, 40);
    let digest_time = Span::from_millis(4_000);
    Options { servers: 2, reconnect: Span::from_secs(30), digest_time, faults, ..options }
}

/// Sources give a hundredth of what they could, and others stand by.
fn slow_sources(options: Options) -> Options {
    let options = Options { trainers: 3, fanout: 1, ..crowd(options) };
    Options { faults: options.faults.clone().with(FaultKind::Slow, 40), ..options }
}

/// One version crosses at a time, and takes most of a call's deadline: who waits for it first is cut off
/// while it reads.
fn long_reads(options: Options) -> Options {
    let (trainers, rollouts, max_shards, datacentres) = (1, 2, 1, 1);
    let (chunks, chunk_time) = (24, Span::from_millis(170));
    let (fanout, stripes, depth_limit) = (1, 1, 1);
    Options {
        trainers,
        rollouts,
        max_shards,
        datacentres,
        chunks,
        chunk_time,
        fanout,
        stripes,
        depth_limit,
        ..options
    }
}

fn as_drawn(options: Options) -> Options {
    options
}

fn flipping(options: Options) -> Options {
    Options { faults: options.faults.with(FaultKind::Flip, 8), ..options }
}

fn unflipped(options: Options) -> Options {
    Options { faults: options.faults.with(FaultKind::Flip, 0), ..options }
}

/// Sources go while their readers' reports are on their way.
fn busy(options: Options) -> Options {
    let faults = FaultCounts::none()
        .with(FaultKind::Break, 60)
        .with(FaultKind::Partition, 12)
        .with(FaultKind::Crash, 8)
        .with(FaultKind::Pause, 24);
    Options { faults, ..options }
}

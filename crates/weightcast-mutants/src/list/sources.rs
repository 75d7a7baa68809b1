//! Mutants of the choice of a source, and of those who wait for one.

use weightcast_protocol::{Safeguard, Span};
use weightcast_sim::{FaultCounts, FaultKind, WorldOptions};

use super::Mutant;
use super::worlds::{crowd, flipping};

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "first_stripe_only",
        what: "of several sources that one reader draws from, only the first has to stand",
        found_by: &["S5"],
        off: &[Safeguard::EveryStripe],
        scenario: leaving_helpers,
    },
    Mutant {
        name: "accuse_first_stripe",
        what: "wrong bytes drawn from several sources are said to be the first one's",
        found_by: &["T4"],
        off: &[Safeguard::OneSourceAccused],
        scenario: flipped_stripes,
    },
    Mutant {
        name: "unstriped_kept",
        what: "a reader that is to let go of its further sources keeps their places",
        found_by: &["T5"],
        off: &[Safeguard::StripeRelease],
        scenario: unlike,
    },
    Mutant {
        name: "no_dag_order",
        what: "replicas commit before those that they were read from",
        found_by: &["S5"],
        off: &[Safeguard::DagOrder],
        scenario: crowd,
    },
    Mutant {
        name: "naive_source_choice",
        what: "a replica may read from one that reads from it",
        found_by: &["D2"],
        off: &[Safeguard::AcyclicChoice],
        scenario: crowd,
    },
    Mutant {
        name: "no_fanout",
        what: "a source has any number of readers",
        found_by: &["D1"],
        off: &[Safeguard::Fanout],
        scenario: crowd,
    },
    Mutant {
        name: "far_as_near",
        what: "a source in another datacentre is as good as one in the reader's own",
        found_by: &["D3"],
        off: &[Safeguard::NearFirst],
        scenario: spread,
    },
    Mutant {
        name: "host_entered_often",
        what: "a source on another host is as good as one on the reader's own",
        found_by: &["D7"],
        off: &[Safeguard::HostFirst],
        scenario: neighbours,
    },
    Mutant {
        name: "host_entered_by_all",
        what: "shards of one host each read what all of them hold from another host",
        found_by: &["D8"],
        off: &[Safeguard::HostEnteredOnce],
        scenario: siblings,
    },
    Mutant {
        name: "siblings_left_open",
        what: "siblings take from a shard's memory that may change",
        found_by: &["S3"],
        off: &[Safeguard::SharingCloses],
        scenario: siblings,
    },
    Mutant {
        name: "nameless_openings+siblings_left_open",
        what: "siblings take what a shard has brought, in whatever call and of whatever version",
        found_by: &["S11"],
        off: &[Safeguard::OpeningNamed, Safeguard::SharingCloses],
        scenario: siblings,
    },
    Mutant {
        name: "accuse_for_siblings",
        what: "a source is accused of bytes that shards of one host have brought each other",
        found_by: &["T4"],
        off: &[Safeguard::SharedNotAccused],
        scenario: flipped_siblings,
    },
    Mutant {
        name: "doubted_shared",
        what: "after wrong bytes shards of one host go on bringing each other what they hold",
        found_by: &["T4"],
        off: &[Safeguard::DoubtedAlone],
        scenario: flipped_siblings,
    },
    Mutant {
        name: "many_crossings",
        what: "a version crosses to a datacentre although it is crossing already",
        found_by: &["D4"],
        off: &[Safeguard::OneCrossing],
        scenario: spread,
    },
    Mutant {
        name: "no_depth_bound",
        what: "chains of replicas grow without bound",
        found_by: &["D6"],
        off: &[Safeguard::DepthBound],
        scenario: shallow,
    },
    Mutant {
        name: "one_accuser",
        what: "one reader's word fences a source, even the last one",
        found_by: &["T4"],
        off: &[Safeguard::TwoAccusers],
        scenario: |options| flipping(crowd(options)),
    },
    Mutant {
        name: "accuse_resumed",
        what: "a reader that went on after another source accuses its last one of all that it has",
        found_by: &["T4"],
        off: &[Safeguard::ResumedNotAccused],
        scenario: resuming,
    },
    Mutant {
        name: "missed_wakeup",
        what: "a source that is free again is offered to nobody who waits",
        found_by: &["L2"],
        off: &[Safeguard::Wakeup],
        scenario: crowd,
    },
    Mutant {
        name: "slow_source_kept",
        what: "who reads from a slow source stays there though another one is free",
        found_by: &["L2"],
        off: &[Safeguard::SlowSourceLeft],
        scenario: slow_sources,
    },
    Mutant {
        name: "reads_from_zero",
        what: "what was read when a call ran out of time is not kept for the next one",
        found_by: &["L1"],
        off: &[Safeguard::ReadsKept],
        scenario: long_reads,
    },
    Mutant {
        name: "busy_is_gone",
        what: "who finds every source of a version busy is told that there is none",
        found_by: &["A1"],
        off: &[Safeguard::BusyIsWaitedFor],
        scenario: crowd,
    },
];

/// Two datacentres, with many replicas in each.
fn spread(options: WorldOptions) -> WorldOptions {
    WorldOptions { datacentres: 2, rollouts: 7, hosts: 64, ..options }
}

/// Replicas of many layouts: hardly any can read from one that is being filled.
fn unlike(options: WorldOptions) -> WorldOptions {
    WorldOptions { max_shards: 4, trainers: 3, fanout: 1, stripes: 4, ..crowd(options) }
}

/// Many replicas on two hosts.
fn neighbours(options: WorldOptions) -> WorldOptions {
    WorldOptions { hosts: 2, ..crowd(options) }
}

/// Groups of several shards which all hold everything.
fn siblings(options: WorldOptions) -> WorldOptions {
    WorldOptions { max_shards: 4, replicated: 1_000, hosts: 64, ..crowd(options) }
}

/// The same, with many bits that flip, and further copies of each version.
fn flipped_siblings(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::Flip, 120);
    WorldOptions { trainers: 3, fanout: 2, stripes: 1, faults, ..siblings(options) }
}

/// Whoever reads from a replica that is being filled is one too deep.
fn shallow(options: WorldOptions) -> WorldOptions {
    WorldOptions { depth_limit: 1, ..crowd(options) }
}

/// Idle replicas enough to draw from several, and many bits that flip.
fn flipped_stripes(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::Flip, 120);
    WorldOptions { trainers: 3, fanout: 1, stripes: 4, staged: 0, faults, ..crowd(options) }
}

/// Many replicas that hold a version and have nothing to do, and that leave soon after one has read
/// from them, before its report has come.
fn leaving_helpers(options: WorldOptions) -> WorldOptions {
    WorldOptions {
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

/// Sources give a hundredth of what they could, and others stand by.
fn slow_sources(options: WorldOptions) -> WorldOptions {
    let options = WorldOptions { trainers: 3, fanout: 1, ..crowd(options) };
    WorldOptions { faults: options.faults.clone().with(FaultKind::Slow, 40), ..options }
}

/// One version crosses at a time, and takes most of a call's deadline: who waits for it first is cut off
/// while it reads.
fn long_reads(options: WorldOptions) -> WorldOptions {
    let (trainers, rollouts, max_shards, datacentres) = (1, 2, 1, 1);
    let (chunks, chunk_time) = (24, Span::from_millis(170));
    let (fanout, stripes, depth_limit) = (1, 1, 1);
    WorldOptions {
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

/// Sources go while they are read, and bits flip.
fn resuming(options: WorldOptions) -> WorldOptions {
    let faults = options.faults.with(FaultKind::Flip, 60).with(FaultKind::Mute, 30);
    let faults = faults.with(FaultKind::Crash, 12).with(FaultKind::Slow, 12);
    crowd(WorldOptions { faults, stripes: 1, ..options })
}

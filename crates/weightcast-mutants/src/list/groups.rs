//! Mutants of groups: one answer for all shards, one listing, and nothing left of what is over.

use weightcast_protocol::Safeguard;
use weightcast_sim::{FaultCounts, FaultKind, WorldOptions};

use super::Mutant;
use super::worlds::{as_drawn, busy};

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "no_group_transaction",
        what: "every shard's call is resolved on its own",
        found_by: &["G1"],
        off: &[Safeguard::GroupTransaction],
        scenario: as_drawn,
    },
    Mutant {
        name: "stale_reports",
        what: "what a shard says of an earlier assignment counts for the present one",
        found_by: &["G4", "T4"],
        off: &[Safeguard::CurrentReports],
        scenario: sharded,
    },
    Mutant {
        name: "unpublish_by_one",
        what: "an unpublish takes effect with the first shard's call",
        found_by: &["L8"],
        off: &[Safeguard::WholeUnpublish],
        scenario: sharded,
    },
    Mutant {
        name: "early_timeouts",
        what: "a call runs out of time after half of it",
        found_by: &["L1"],
        off: &[Safeguard::FullDeadline],
        scenario: as_drawn,
    },
    Mutant {
        name: "blind_wait",
        what: "a wait for all rollouts does not look at those that hold nothing",
        found_by: &["W1"],
        off: &[Safeguard::EmptyReplicasWaitedFor],
        scenario: as_drawn,
    },
    Mutant {
        name: "partial_publish",
        what: "a replica is listed as soon as one shard has published",
        found_by: &["S8"],
        off: &[Safeguard::WholePublish],
        scenario: sharded,
    },
    Mutant {
        name: "late_retraction",
        what: "a replica is listed until the last shard has called unpublish",
        found_by: &["S8"],
        off: &[Safeguard::EarlyRetraction],
        scenario: sharded,
    },
    Mutant {
        name: "silent_retraction",
        what: "a copy goes out of the listing without a new revision",
        found_by: &["S10"],
        off: &[Safeguard::RetractionRevision],
        scenario: as_drawn,
    },
    Mutant {
        name: "partial_commit",
        what: "a transfer is committed as soon as one shard has read",
        found_by: &["G4"],
        off: &[Safeguard::WholeCommit, Safeguard::DigestCheck],
        scenario: sharded,
    },
    Mutant {
        name: "repeats_run_again",
        what: "a call that is made again is carried out again",
        found_by: &["G5"],
        off: &[Safeguard::RepeatsAnswered],
        scenario: busy,
    },
    Mutant {
        name: "verdict_said_once",
        what: "a shard that may have missed that its copy was refused is not told again",
        found_by: &["G1"],
        off: &[Safeguard::VerdictRepeated],
        scenario: refusing,
    },
    Mutant {
        name: "end_over_record",
        what: "a call that is made again at the end of a group is not answered from the record",
        found_by: &["G5"],
        off: &[Safeguard::RecordOverEnd],
        scenario: closing,
    },
    Mutant {
        name: "calls_kept",
        what: "calls that all shards have gone past are kept",
        found_by: &["T5"],
        off: &[Safeguard::CallsForgotten],
        scenario: as_drawn,
    },
    Mutant {
        name: "models_kept",
        what: "models that nobody is in any more are kept",
        found_by: &["L6"],
        off: &[Safeguard::ModelsForgotten],
        scenario: as_drawn,
    },
];

/// Copies are refused while streams break.
fn refusing(options: WorldOptions) -> WorldOptions {
    let faults = busy(options.clone()).faults.with(FaultKind::Forge, 12);
    sharded(WorldOptions { trainers: options.trainers.max(2), faults, ..options })
}

/// Shards close while others have lost their streams.
fn closing(options: WorldOptions) -> WorldOptions {
    let faults = FaultCounts::none().with(FaultKind::Break, 200).with(FaultKind::Partition, 60);
    let faults = faults.with(FaultKind::Close, 80);
    sharded(WorldOptions { faults, ..options })
}

/// Groups of several shards.
fn sharded(options: WorldOptions) -> WorldOptions {
    WorldOptions { max_shards: 4, ..options }
}

//! Mutants that let wrong bytes through: digests, fences, drains.

use weightcast_protocol::{Safeguard, Span};
use weightcast_sim::{FaultKind, WorldOptions};

use super::Mutant;
use super::worlds::{as_drawn, busy, crowd, flipping};

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "no_drain",
        what: "unpublish is answered although the replica is being read",
        found_by: &["S9"],
        off: &[Safeguard::Drain],
        scenario: as_drawn,
    },
    Mutant {
        name: "no_digest",
        what: "replicas commit without comparing their content with the publisher's",
        found_by: &["S1"],
        off: &[Safeguard::DigestCheck],
        scenario: flipping,
    },
    Mutant {
        name: "no_commit_fence",
        what: "replicas commit although their source went away meanwhile",
        found_by: &["S5"],
        off: &[Safeguard::CommitFence],
        scenario: late_reports,
    },
    Mutant {
        name: "no_source_fence",
        what: "sessions go on serving a generation whose memory has become mutable",
        found_by: &["S3"],
        off: &[Safeguard::SourceFence],
        scenario: as_drawn,
    },
    Mutant {
        name: "no_digest+no_commit_fence",
        what: "neither digests nor the server's fence: a zombie's read counts",
        found_by: &["S1", "S5"],
        off: &[Safeguard::DigestCheck, Safeguard::CommitFence],
        scenario: busy,
    },
    Mutant {
        name: "no_drain+no_source_fence+no_digest",
        what: "nothing stands between a write and a read: torn weights are accepted",
        found_by: &["S1"],
        off: &[Safeguard::Drain, Safeguard::SourceFence, Safeguard::DigestCheck],
        scenario: unflipped,
    },
    Mutant {
        name: "staged_early_copy",
        what: "a staged version is copied into place while the old one is held and served",
        found_by: &["S3"],
        off: &[Safeguard::StagedInstall],
        scenario: |options| WorldOptions { staged: 1_000, ..options },
    },
    Mutant {
        name: "untagged_progress",
        what: "progress says nothing of its generation: what was there before counts",
        found_by: &["S4"],
        off: &[Safeguard::TaggedProgress],
        scenario: crowd,
    },
    Mutant {
        name: "keep_suspect",
        what: "what came from a source proved bad is kept when another goes on",
        found_by: &["D5", "L1"],
        off: &[Safeguard::DropSuspect],
        scenario: |options| flipping(crowd(options)),
    },
    Mutant {
        name: "any_content",
        what: "a version's content is whatever was sealed last",
        found_by: &["S7"],
        off: &[Safeguard::OneContent],
        scenario: forging,
    },
    Mutant {
        name: "silent_refusal",
        what: "unpublish does not say that what was published had been refused",
        found_by: &["S7"],
        off: &[Safeguard::TellRefusal],
        scenario: forging,
    },
    Mutant {
        name: "endless_drain",
        what: "readers of a copy that is being given up are never cut off",
        found_by: &["L3"],
        off: &[Safeguard::DrainDeadline],
        scenario: as_drawn,
    },
];

/// Trainers publish other content under numbers that have theirs.
fn forging(options: WorldOptions) -> WorldOptions {
    let faults = options.faults.with(FaultKind::Forge, 12);
    WorldOptions { trainers: options.trainers.max(2), faults, ..options }
}

/// Reports are later than a drain takes.
fn late_reports(options: WorldOptions) -> WorldOptions {
    WorldOptions { late: 300, late_by: Span::from_millis(1_500), ..crowd(busy(options)) }
}

fn unflipped(options: WorldOptions) -> WorldOptions {
    WorldOptions { faults: options.faults.with(FaultKind::Flip, 0), ..options }
}

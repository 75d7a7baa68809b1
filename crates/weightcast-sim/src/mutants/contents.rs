//! Mutants that let wrong bytes through: digests, fences, drains.

use weightcast_protocol::Span;

use super::Mutant;
use super::worlds::{as_drawn, busy, crowd, flipping};
use crate::fault_kinds::FaultKind;
use crate::options::Options;

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "no_drain",
        what: "unpublish is answered although the replica is being read",
        found_by: &["S9"],
        switch: |off| off.no_drain = true,
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
        name: "untagged_progress",
        what: "progress says nothing of its generation: what was there before counts",
        found_by: &["S4"],
        switch: |off| off.untagged_progress = true,
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
        name: "endless_drain",
        what: "readers of a copy that is being given up are never cut off",
        found_by: &["L3"],
        switch: |off| off.endless_drain = true,
        scenario: as_drawn,
    },
];

/// Trainers publish other content under numbers that have theirs.
fn forging(options: Options) -> Options {
    let faults = options.faults.with(FaultKind::Forge, 12);
    Options { trainers: options.trainers.max(2), faults, ..options }
}

/// Reports are later than a drain takes.
fn late_reports(options: Options) -> Options {
    Options { late: 300, late_by: Span::from_millis(1_500), ..crowd(busy(options)) }
}

fn unflipped(options: Options) -> Options {
    Options { faults: options.faults.with(FaultKind::Flip, 0), ..options }
}

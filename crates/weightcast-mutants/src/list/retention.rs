//! Mutants of retention: the last copy of a version that is to survive.

use weightcast_protocol::Safeguard;
use weightcast_sim::{FaultKind, WorldOptions};

use super::Mutant;
use super::terms::failing_over;

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "no_offload_wait",
        what: "unpublish does not wait until the last copy of a retained version is offloaded",
        found_by: &["A2"],
        off: &[Safeguard::OffloadWait],
        scenario: retaining,
    },
    Mutant {
        name: "claims_counted",
        what: "a copy counts although its shards have not shown that they hold the bytes",
        found_by: &["A2"],
        off: &[Safeguard::ProvedCopies],
        scenario: claiming,
    },
    Mutant {
        name: "early_release",
        what: "an offload replica is released though nobody else holds its version",
        found_by: &["A3"],
        off: &[Safeguard::OffloadNeeded],
        scenario: retaining,
    },
    Mutant {
        name: "blind_to_offloads",
        what: "an offload replica is not seen as a copy, so the next holder's is offloaded as well",
        found_by: &["A4"],
        off: &[Safeguard::OffloadsCount],
        scenario: retaining,
    },
    Mutant {
        name: "offloads_kept",
        what: "offload replicas are never released",
        found_by: &["L6"],
        off: &[Safeguard::OffloadRelease],
        scenario: retaining,
    },
    Mutant {
        name: "exact_forgotten",
        what: "what a group has had kept by name is not retained",
        found_by: &["A2"],
        off: &[Safeguard::ExactRetained],
        scenario: retaining,
    },
    Mutant {
        name: "kept_for_ever",
        what: "versions stay kept for a group that has left",
        found_by: &["T5"],
        off: &[Safeguard::KeptUntilEnd],
        scenario: retaining,
    },
    Mutant {
        name: "kept_left_behind",
        what: "a shard does not bring over what is kept for its group",
        found_by: &["L8"],
        off: &[Safeguard::KeptBroughtOver],
        scenario: failing_over,
    },
];

/// Versions are retained, and their offloads have room.
fn retaining(options: WorldOptions) -> WorldOptions {
    WorldOptions { retain: options.retain.max(1), offload_trouble: 0, ..options }
}

/// Versions are retained, and readers say that they have read them.
fn claiming(options: WorldOptions) -> WorldOptions {
    let options = retaining(options);
    let faults = options.faults.with(FaultKind::Claim, 30);
    WorldOptions { faults, rollouts: options.rollouts.clamp(1, 3), ..options }
}

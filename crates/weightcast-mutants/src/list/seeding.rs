//! Mutants of offload seeding: who crosses, and how often.

use weightcast_protocol::Safeguard;
use weightcast_sim::WorldOptions;

use super::Mutant;

pub(super) const LIST: &[Mutant] = &[
    Mutant {
        name: "cross_in_place",
        what: "an update crosses although its group leaves that to a seed",
        found_by: &["O1"],
        off: &[Safeguard::SeedFirst],
        scenario: seeding,
    },
    Mutant {
        name: "second_seed",
        what: "a group is asked for a seed though its datacentre has one",
        found_by: &["O2"],
        off: &[Safeguard::OneSeed],
        scenario: seeding,
    },
    Mutant {
        name: "keep_seed",
        what: "a seed is kept though nobody in its datacentre lacks its version",
        found_by: &["O3"],
        off: &[Safeguard::SeedRelease],
        scenario: seeding,
    },
];

/// Rollouts far from the trainer, all of which leave crossings to seeds that have room.
fn seeding(options: WorldOptions) -> WorldOptions {
    let rollouts = options.rollouts.max(4);
    let seeding = WorldOptions { offload_seeding: 1_000, offload_trouble: 0, ..options };
    WorldOptions { datacentres: 2, rollouts, ..seeding }
}

//! Mutants of offload seeding: who crosses, and how often.

use super::Mutant;
use crate::options::Options;

pub(super) const LIST: &[Mutant] = &[
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
];

/// Rollouts far from the trainer, all of which leave crossings to seeds that have room.
fn seeding(options: Options) -> Options {
    let rollouts = options.rollouts.max(4);
    let seeding = Options { offload_seeding: 1_000, offload_trouble: 0, ..options };
    Options { datacentres: 2, rollouts, ..seeding }
}

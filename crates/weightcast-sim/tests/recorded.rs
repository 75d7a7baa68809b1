//! Worlds in which something went wrong once, as they were written down.

use weightcast_protocol::mutants::Mutants;
use weightcast_sim::{RECORDED, Recorded};

const SEEDS: std::ops::Range<u64> = 0..10;

fn recorded(name: &str) -> &'static Recorded {
    RECORDED.iter().find(|world| world.name == name).expect("it is written down")
}

/// In how many of the seeds one of these invariants does not hold.
fn broken(name: &str, mutants: Mutants, invariants: &[&str]) -> usize {
    let reports = SEEDS.map(|seed| recorded(name).play(seed, mutants));
    let wrong = |report: &weightcast_sim::Report| {
        report.violations.iter().any(|v| invariants.contains(&v.invariant.as_str()))
    };
    reports.filter(wrong).count()
}

#[test]
fn nothing_goes_wrong_in_them_any_more() {
    for world in RECORDED {
        for seed in SEEDS {
            let report = world.play(seed, Mutants::default());
            assert_eq!(report.violations, [], "{}, seed {seed}", world.name);
        }
    }
}

#[test]
fn servers_duel_if_those_who_were_refused_make_others_act() {
    let mutants = Mutants { refused_may_activate: true, no_deference: true, ..Mutants::default() };
    assert!(broken("duel", mutants, &["L5"]) > 0);
}

#[test]
fn reads_never_end_if_what_was_cut_off_begins_at_zero() {
    let mutants = Mutants { reads_from_zero: true, ..Mutants::default() };
    assert!(broken("line", mutants, &["L1"]) > 0);
}

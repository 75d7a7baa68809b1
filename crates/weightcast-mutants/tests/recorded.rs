//! Worlds in which something went wrong once, without the safeguard that was the cure.

use weightcast_protocol::{Safeguard, Safeguards};
use weightcast_sim::RECORDED;

/// In how many of the seeds one of these invariants does not hold.
fn broken(name: &str, off: &[Safeguard], invariants: &[&str]) -> usize {
    let world = RECORDED.iter().find(|world| world.name == name).expect("it is written down");
    let safeguards = Safeguards::default().without(off);
    let reports = (0..10).map(|seed| world.play(seed, safeguards));
    let wrong = |report: &weightcast_sim::Report| {
        report.violations.iter().any(|v| invariants.contains(&v.invariant.as_str()))
    };
    reports.filter(wrong).count()
}

#[test]
fn servers_duel_if_those_who_were_refused_make_others_act() {
    let off = [Safeguard::RefusalIsAnswer, Safeguard::Deference];
    assert!(broken("duel", &off, &["L5"]) > 0);
}

#[test]
fn reads_never_end_if_what_was_cut_off_begins_at_zero() {
    assert!(broken("line", &[Safeguard::ReadsKept], &["L1"]) > 0);
}

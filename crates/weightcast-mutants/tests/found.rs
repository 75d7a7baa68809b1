//! Each mutant until it is found.

use weightcast_mutants::{Mutant, PlayedMutant, PushMutant, hunt};
use weightcast_sim::{InvariantViolation, replay, run, run_pushes};

use crate::SEEDS;

/// A lease that is counted too long is masked by every other fence: T1 sees the act itself, before
/// anything has come of it.
#[test]
fn a_lease_counted_from_its_answer_shows_by_t1_alone() {
    let mutant = Mutant::named("lease_from_answer").unwrap();
    let caught = hunt(mutant, SEEDS).unwrap();
    let report = run(caught.seed, &mutant.options(caught.seed));
    assert_eq!(report.violations[0], caught.violation);
    assert_eq!(caught.violation.invariant, "T1");
}

/// Mutants, the invariant that each breaks, and a word of the checker that sees it from outside: by what
/// is said, heard and given, without a look at the books of the server.
const SEEN_FROM_OUTSIDE: [(&str, &str, &str); 10] = [
    ("late_retraction", "S9", "which unpublishes"),
    ("no_drain", "S9", "has unpublished, and"),
    ("no_source_fence", "S9", ", unpublished"),
    ("calls_kept", "T5", "the server remembers"),
    ("unstriped_kept", "T5", "one event has the server say"),
    ("verdict_said_once", "G1", "asks, and is not told"),
    ("no_group_transaction", "G1", "has not made it"),
    ("end_over_record", "G5", "was answered"),
    ("stale_reports", "T4", "which is over"),
    ("accuse_resumed", "T4", "have read all of it"),
];

#[test]
fn what_breaks_shows_without_the_books() {
    let seen = |(name, invariant, word): &(&str, &str, &str)| {
        let mutant = Mutant::named(name).unwrap();
        let is = |of: &InvariantViolation| of.invariant == *invariant && of.detail.contains(word);
        SEEDS.into_iter().any(|seed| run(seed, &mutant.options(seed)).violations.iter().any(is))
    };
    let missed: Vec<_> = SEEN_FROM_OUTSIDE.iter().filter(|row| !seen(row)).collect();
    assert!(missed.is_empty(), "not seen from outside in 600 worlds: {missed:?}");
}

/// The same for mutants of pushes, which the machines' own look at themselves would find too.
#[test]
fn what_breaks_of_a_push_shows_without_the_machines() {
    let rows = [
        ("compared_open", "compares its memory, and has grants"),
        ("asleep_open", "gives its memory away, and has grants"),
        ("moved_open", "open"),
        ("closed_counts", "closed"),
    ];
    let seen = |(name, word): &(&str, &str)| {
        let mutant = PushMutant::named(name).unwrap();
        let outside = |of: &InvariantViolation| {
            mutant.expects(of) && of.detail.contains(word) && !of.detail.contains(": target")
        };
        let found = |seed| run_pushes(seed, &mutant.options(seed)).violations;
        (0..100).any(|seed| found(seed).iter().any(outside))
    };
    let missed: Vec<_> = rows.iter().filter(|row| !seen(row)).collect();
    assert!(missed.is_empty(), "not seen from outside in 100 worlds: {missed:?}");
}

#[test]
fn a_world_that_would_go_on_for_ever_ends_with_its_story() {
    let mutant = Mutant::named("unstriped_kept").unwrap();
    let caught = hunt(mutant, SEEDS).unwrap();
    let (report, story) = replay(caught.seed, &mutant.options(caught.seed));
    assert_eq!(report.violations[0], caught.violation);
    let last = report.violations.last().unwrap();
    assert!(last.detail.starts_with("an event had no end"), "{last:?}");
    assert_eq!(story.last().unwrap().invariant.as_deref(), Some("T5"));
}

#[test]
fn every_mutant_is_found() {
    let missed = |mutant: &PlayedMutant| mutant.hunt(SEEDS).is_none();
    let missed: Vec<_> = PlayedMutant::all().filter(missed).map(|mutant| mutant.name()).collect();
    assert!(missed.is_empty(), "not found in 600 worlds: {missed:?}");
}

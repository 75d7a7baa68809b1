//! The smallest pushes, looked at whole: a few seconds. `make model` looks at larger ones.

use weightcast_explore::{PushBounds, PushFaults, SearchResult, push_suite, push_without, search};

fn none() -> PushFaults {
    PushFaults::default()
}

/// Searches on one thread, and expects that all holds and that something is shown.
fn holds(bounds: PushBounds, least: usize) -> SearchResult {
    let found = search(bounds, 1, None);
    assert!(found.broken.is_empty(), "{bounds}: {:?}", found.broken);
    assert!(found.missed.is_empty(), "{bounds}: never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > least, "{bounds}: {found:?}");
    found
}

#[test]
fn without_faults_every_state_of_a_push_is_right() {
    holds(PushBounds::quiet(), 10);
    holds(PushBounds { parcels: 2, ..PushBounds::quiet() }, 20);
    holds(PushBounds { senders: 2, parcels: 2, ..PushBounds::quiet() }, 40);
}

#[test]
fn each_fault_alone_leaves_every_state_right() {
    let faults = [
        PushFaults { driver_deaths: 1, ..none() },
        PushFaults { splits: 1, ..none() },
        PushFaults { sender_deaths: 1, ..none() },
        PushFaults { stalls: 1, ..none() },
        PushFaults { moves_on: 1, ..none() },
        PushFaults { late_writes: 1, ..none() },
        PushFaults { flips: 1, ..none() },
        PushFaults { target_deaths: 1, ..none() },
        PushFaults { sleeps: 1, ..none() },
        PushFaults { leaves: 1, ..none() },
        PushFaults { cancels: 1, ..none() },
        PushFaults { losses: 1, ..none() },
        PushFaults { repeats: 1, ..none() },
        PushFaults { timeouts: 1, ..none() },
    ];
    for faults in faults {
        holds(PushBounds::quiet().with(faults), 30);
    }
}

#[test]
fn a_target_whose_dismissal_is_lost_closes_its_grants_by_itself() {
    holds(PushBounds::quiet().with(PushFaults { cancels: 1, losses: 1, ..none() }), 100);
}

#[test]
fn a_comparison_of_an_earlier_push_says_nothing_of_a_later_one() {
    holds(PushBounds::quiet().with(PushFaults { splits: 1, flips: 1, ..none() }), 1_000);
}

#[test]
fn parcels_of_a_sender_that_stands_still_arrive() {
    let bounds = PushBounds { senders: 2, ..PushBounds::quiet() };
    holds(bounds.with(PushFaults { stalls: 1, ..none() }), 200);
}

#[test]
fn a_driver_that_pushes_again_beside_the_first_one_disturbs_nothing() {
    let bounds = PushBounds { again: true, ..PushBounds::quiet() };
    holds(bounds.with(PushFaults { splits: 1, ..none() }), 200);
}

#[test]
fn what_each_safeguard_is_there_for_is_found() {
    for case in push_suite().into_iter().filter(|case| case.found.is_some()) {
        let found = search(case.bounds, 1, None);
        let broken: Vec<_> = found.broken.iter().map(|(invariant, _)| *invariant).collect();
        assert_eq!(broken, [case.found.expect("it breaks")], "{}: {found:?}", case.off);
    }
}

#[test]
fn a_story_of_a_write_that_counts_too_late_names_the_word() {
    let safeguards = push_without("closed_counts").unwrap();
    let faults = PushFaults { stalls: 1, ..none() };
    let bounds = PushBounds { senders: 2, safeguards, only: Some("P2"), ..PushBounds::quiet() };
    let found = search(bounds.with(faults), 1, None);
    let (invariant, story) = found.broken.first().expect("a closed grant counts");
    assert_eq!(*invariant, "P2");
    assert!(story.contains("sender 1 stands still"), "{story}");
    assert!(
        story.contains("the word of sender 1 to target 101: wrote {0} under grant 1"),
        "{story}"
    );
}

#[test]
fn unknown_safeguards_are_named() {
    let error = push_without("nothing").unwrap_err();
    assert!(error.contains("closed_counts"), "{error}");
}

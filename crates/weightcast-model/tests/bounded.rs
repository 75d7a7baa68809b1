//! The smallest worlds, looked at whole: a few seconds. `make model` looks at larger ones.

use weightcast_model::{Bounds, mutants, search};

#[test]
fn without_faults_every_state_is_right() {
    let found = search(Bounds { expiries: 0, ..Bounds::three_workers() }, 1, None);
    assert!(found.broken.is_empty(), "{:?}", found.broken);
    assert!(found.missed.is_empty(), "never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > 1_000, "{found:?}");
}

#[test]
fn a_drain_that_nobody_waits_for_is_found() {
    let mutants = mutants("no_drain").unwrap();
    let found = search(Bounds { expiries: 0, mutants, ..Bounds::three_workers() }, 1, None);
    assert_eq!(found.broken.first().map(|(invariant, _)| *invariant), Some("S9"), "{found:?}");
}

#[test]
fn a_false_expiry_without_fences_and_digests_tears() {
    let mutants = mutants("no_source_fence+no_commit_fence+no_digest_check").unwrap();
    let bounds = Bounds { rollouts: 1, mutants, only: Some("S1"), ..Bounds::three_workers() };
    let found = search(bounds, 1, None);
    let (invariant, story) = found.broken.first().expect("a torn accept is found");
    assert_eq!(*invariant, "S1");
    assert!(story.contains("reads chunk"), "{story}");
}

#[test]
fn the_digest_alone_keeps_torn_bytes_out() {
    let mutants = mutants("no_source_fence+no_commit_fence").unwrap();
    let bounds = Bounds { rollouts: 1, mutants, only: Some("S1"), ..Bounds::three_workers() };
    let found = search(bounds, 1, None);
    assert!(found.broken.is_empty() && found.exhaustive, "{:?}", found.broken);
}

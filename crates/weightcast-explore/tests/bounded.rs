//! The smallest worlds, looked at whole: a few seconds. `make model` looks at larger ones.

use weightcast_explore::{Bounds, search, without};

#[test]
fn without_faults_every_state_is_right() {
    let found = search(Bounds { expiries: 0, ..Bounds::three_workers() }, 1, None);
    assert!(found.broken.is_empty(), "{:?}", found.broken);
    assert!(found.missed.is_empty(), "never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > 1_000, "{found:?}");
}

#[test]
fn a_drain_that_nobody_waits_for_is_found() {
    let safeguards = without("no_drain").unwrap();
    let found = search(Bounds { expiries: 0, safeguards, ..Bounds::three_workers() }, 1, None);
    assert_eq!(found.broken.first().map(|(invariant, _)| *invariant), Some("S9"), "{found:?}");
}

#[test]
fn a_false_expiry_without_fences_and_digests_tears() {
    let safeguards = without("no_source_fence+no_commit_fence+no_digest_check").unwrap();
    let bounds = Bounds { rollouts: 1, safeguards, only: Some("S1"), ..Bounds::three_workers() };
    let found = search(bounds, 1, None);
    let (invariant, story) = found.broken.first().expect("a torn accept is found");
    assert_eq!(*invariant, "S1");
    assert!(story.contains("reads chunk"), "{story}");
}

#[test]
fn the_digest_alone_keeps_torn_bytes_out() {
    let safeguards = without("no_source_fence+no_commit_fence").unwrap();
    let bounds = Bounds { rollouts: 1, safeguards, only: Some("S1"), ..Bounds::three_workers() };
    let found = search(bounds, 1, None);
    assert!(found.broken.is_empty() && found.exhaustive, "{:?}", found.broken);
}

/// One trainer, one rollout, each of one shard and read once.
fn pair() -> Bounds {
    Bounds { rollouts: 1, reads: 1, expiries: 0, ..Bounds::three_workers() }
}

#[test]
fn a_restarted_server_changes_nothing_that_it_should_not() {
    let found = search(Bounds { restarts: 1, ..pair() }, 1, None);
    assert!(found.broken.is_empty(), "{:?}", found.broken);
    assert!(found.missed.is_empty(), "never seen: {:?}", found.missed);
    assert!(found.exhaustive && found.unique > 1_000, "{found:?}");
}

#[test]
fn workers_go_over_to_another_server_that_lives_or_is_left() {
    for (bounds, least) in [
        (Bounds { death: true, versions: 1, ..pair() }, 1_000),
        (Bounds { partings: 1, versions: 1, ..pair() }, 1_000),
    ] {
        let found = search(bounds, 1, None);
        assert!(found.broken.is_empty(), "{bounds}: {:?}", found.broken);
        // Of one version none is taken back. That a group comes over is seen, and that two act.
        assert_eq!(found.missed, ["a copy is drained"], "{bounds}");
        assert!(found.exhaustive && found.unique > least, "{bounds}: {found:?}");
    }
}

#[test]
fn each_safeguard_of_failover_is_there_for_something() {
    let restarted = Bounds { restarts: 1, ..pair() };
    let parted = Bounds { partings: 1, ..pair() };
    for (off, invariant, bounds) in [
        ("no_recovery_window", "A5", restarted),
        ("stale_term_accepted", "T2", parted),
        ("stale_term_accepted", "T3", parted),
    ] {
        let safeguards = without(off).unwrap();
        let found = search(Bounds { safeguards, only: Some(invariant), ..bounds }, 1, None);
        let broken: Vec<_> = found.broken.iter().map(|(invariant, _)| *invariant).collect();
        assert_eq!(broken, [invariant], "{off}");
    }
}

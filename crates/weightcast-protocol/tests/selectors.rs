//! What each selector means among versions with gaps, and that no update goes back unasked.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, EpochPolicy, Open, Role};
use weightcast_protocol::{CallError, Selector};

/// Versions 1, 3 and 7 are available, each of a trainer of its own; 2 was, and is gone.
fn gaps() -> Cluster {
    let mut cluster = Cluster::new();
    for number in [1, 2, 3, 7] {
        let trainer = cluster.trainer(&format!("trainer-{number}"), 1);
        cluster.publish(&trainer, number, number * 11);
        if number == 2 {
            cluster.call_all(&trainer, |_| Call::Unpublish);
        }
    }
    cluster
}

/// What came of a call at once; `None` if it waits.
fn at_once(cluster: &mut Cluster, call: Call) -> Option<Outcome> {
    let name = format!("rollout-{}", cluster.clients.len());
    let rollout = cluster.rollout(&name, 1);
    cluster.call(rollout[0], call);
    (cluster.ended(rollout[0]) == 2).then(|| cluster.outcome(rollout[0]).expect("has ended"))
}

#[test]
fn every_selector_among_versions_with_gaps() {
    let picks = [
        (Selector::Latest, 7),
        (Selector::Exact(3), 3),
        (Selector::NthLatest(0), 7),
        (Selector::NthLatest(1), 3),
        (Selector::NthLatest(2), 1),
        (Selector::AtLeast(2), 7),
        (Selector::AtLeast(7), 7),
        (Selector::LatestMinus(0), 7),
        (Selector::LatestMinus(4), 3),
        (Selector::LatestMinus(6), 1),
    ];
    for (selector, number) in picks {
        let outcome = at_once(&mut gaps(), replicate(selector)).expect("there is one");
        assert_eq!(committed(&outcome), Some(number), "{selector}: {outcome:?}");
    }
}

#[test]
fn what_was_or_never_will_be_is_an_error_at_once() {
    // latest-5 is 2, which is gone; latest-3 never was; latest-8 is below zero.
    let gone = [
        Selector::Exact(2),
        Selector::Exact(5),
        Selector::LatestMinus(5),
        Selector::LatestMinus(3),
        Selector::LatestMinus(8),
    ];
    for selector in gone {
        let outcome = at_once(&mut gaps(), replicate(selector)).expect("nothing to wait for");
        let Err(CallError::VersionUnavailable { latest, .. }) = outcome else {
            panic!("{selector}: {outcome:?}");
        };
        assert_eq!(latest.map(|version| version.number), Some(7), "{selector}");
    }
}

#[test]
fn what_may_come_is_waited_for() {
    let to_come = [Selector::Exact(8), Selector::AtLeast(8), Selector::NthLatest(3)];
    for selector in to_come {
        let mut cluster = gaps();
        let rollout = cluster.rollout("rollout", 1);
        cluster.call(rollout[0], replicate(selector));
        assert_eq!(cluster.ended(rollout[0]), 1, "{selector}");
        let trainer = cluster.trainer("trainer-8", 1);
        cluster.publish(&trainer, 8, 88);
        let came = committed(&cluster.outcome(rollout[0]).expect("has ended"));
        assert_eq!(
            came,
            Some(if selector == Selector::NthLatest(3) { 1 } else { 8 }),
            "{selector}"
        );
    }
    // With nothing there at all, the arithmetic has nothing to start from yet.
    assert_eq!(at_once(&mut Cluster::new(), replicate(Selector::LatestMinus(1))), None);
}

#[test]
fn an_update_never_goes_back_unless_it_is_allowed_to() {
    let older = [Selector::Exact(1), Selector::NthLatest(2), Selector::LatestMinus(6)];
    for (selector, staged) in older.into_iter().flat_map(|s| [(s, false), (s, true)]) {
        let mut cluster = gaps();
        let rollout = cluster.rollout("rollout", 2);
        cluster.call_all(&rollout, |_| replicate(Selector::Exact(3)));
        let go = |allow_rollback| Call::Update { selector, allow_rollback, staged };
        for outcome in cluster.call_all(&rollout, |_| go(false)) {
            assert_eq!(outcome, Ok(Answer::Unchanged { held: Some(version(0, 3)) }), "{selector}");
        }
        assert_eq!(cluster.content(&rollout), 33);
        for outcome in cluster.call_all(&rollout, |_| go(true)) {
            assert_eq!(committed(&outcome), Some(1), "{selector}");
        }
        assert_eq!(cluster.content(&rollout), 11);
    }
}

/// What an update comes to, whatever is held and asked for: a newer version is read, an older one if that is
/// allowed, and the held one never again.
#[test]
fn an_update_reads_what_is_newer_or_older_and_never_what_it_holds() {
    let asked = [(Selector::Latest, 7), (Selector::Exact(1), 1), (Selector::NthLatest(1), 3)];
    for (held, (selector, number)) in [1, 3, 7].into_iter().flat_map(|h| asked.map(|a| (h, a))) {
        for (allow_rollback, staged) in [(false, false), (false, true), (true, false), (true, true)]
        {
            let mut cluster = gaps();
            let rollout = cluster.rollout("rollout", 1);
            cluster.call_all(&rollout, |_| replicate(Selector::Exact(held)));
            let outcome =
                cluster.call_all(&rollout, |_| Call::Update { selector, allow_rollback, staged });
            let reads = number > held || allow_rollback && number < held;
            let what = format!("{selector} with {held}, back: {allow_rollback}, staged: {staged}");
            if reads {
                assert_eq!(committed(&outcome[0]), Some(number), "{what}");
            } else {
                let held = Some(version(0, held));
                assert_eq!(outcome[0], Ok(Answer::Unchanged { held }), "{what}");
            }
        }
    }
}

#[test]
fn latest_that_went_back_takes_nobody_along() {
    let mut cluster = gaps();
    let rollout = cluster.rollout("rollout", 1);
    let trainer = cluster.trainer("trainer-9", 1);
    cluster.publish(&trainer, 9, 99);
    cluster.call_all(&rollout, |_| update());
    // Its own copy is listed: others go back only if there is no other one.
    cluster.call_all(&trainer, |_| Call::Unpublish);
    let held = Some(version(0, 9));
    assert_eq!(cluster.call_all(&rollout, |_| update()), [Ok(Answer::Unchanged { held })]);
    cluster.call_all(&rollout, |_| Call::Unpublish);
    let outcomes = cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    assert_eq!(committed(&outcomes[0]), Some(7));
}

#[test]
fn a_lower_number_of_a_newer_run_is_newer() {
    let mut cluster = gaps();
    let rollout = cluster.rollout("rollout", 1);
    cluster.call_all(&rollout, |_| update());
    let open = Open { epoch: EpochPolicy::New, ..open("restarted", 0, 1, Role::Trainer) };
    let restarted = vec![cluster.start(open)];
    cluster.call_all(&restarted, register);
    cluster.publish(&restarted, 2, 222);
    let outcomes = cluster.call_all(&rollout, |_| update());
    assert_eq!(committed(&outcomes[0]), Some(2));
    assert_eq!(cluster.content(&rollout), 222);
}

/// What a shard's publish is refused with.
fn refused(outcomes: &[Outcome]) -> String {
    match &outcomes[0] {
        Err(CallError::Misuse { detail }) => detail.clone(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_number_below_the_newest_is_refused_with_what_to_do() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let other = cluster.trainer("other", 1);
    for number in [5, 6] {
        cluster.publish(&trainer, number, number * 11);
        cluster.call_all(&trainer, |_| Call::Unpublish);
    }
    let detail = refused(&cluster.publish(&trainer, 3, 33));
    for part in ["3 (epoch 4294967296)", "6 (epoch 4294967296)", "above 6", "epoch=\"new\""] {
        assert!(detail.contains(part), "{part} in {detail}");
    }
    // Others may be late with what was published before, and the trainer goes on as it should have.
    assert_eq!(cluster.publish(&other, 5, 55), [Ok(Answer::Published { version: version(0, 5) })]);
    assert_eq!(
        cluster.publish(&trainer, 7, 77),
        [Ok(Answer::Published { version: version(0, 7) })]
    );
}

/// A trainer that starts a run, or joins one that has just been started.
fn starts_run(cluster: &mut Cluster, replica: &str) -> Vec<usize> {
    let open = Open { epoch: EpochPolicy::New, ..open(replica, 0, 1, Role::Trainer) };
    let trainer = vec![cluster.start(open)];
    cluster.call_all(&trainer, register);
    trainer
}

#[test]
fn a_trainer_whose_run_was_superseded_is_told_once_rollouts_have_gone() {
    let mut cluster = Cluster::new();
    let first = starts_run(&mut cluster, "first");
    let twin = starts_run(&mut cluster, "twin");
    cluster.publish(&first, 1, 11);
    let second = starts_run(&mut cluster, "second");
    cluster.call_all(&first, |_| Call::Unpublish);
    // Until the second has published, the first is the one that rollouts follow.
    assert_eq!(cluster.publish(&first, 2, 22), [Ok(Answer::Published { version: version(0, 2) })]);
    assert_eq!(cluster.publish(&second, 1, 91), [Ok(Answer::Published { version: version(1, 1) })]);
    cluster.call_all(&first, |_| Call::Unpublish);
    for (trainer, name) in [(&first, "first"), (&twin, "twin")] {
        let detail = refused(&cluster.publish(trainer, 3, 33));
        for part in [name, "run 4294967296", "run 4294967297", "epoch=\"new\""] {
            assert!(detail.contains(part), "{part} in {detail}");
        }
    }
}

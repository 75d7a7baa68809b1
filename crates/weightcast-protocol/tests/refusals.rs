//! What was published is accepted or refused, and its publisher is told which.

use crate::cluster::{Cluster, publish, replicate, version};
use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::session::{Output, SessionState};
use weightcast_protocol::{CallError, Condition, Generation, Selector, ShardSums, Sum};

/// Shard 1 holds another copy of what both hold.
fn seals_with_other_copies(cluster: &mut Cluster, group: &[usize]) {
    for (shard, client) in group.iter().enumerate() {
        let client = &mut cluster.clients[*client];
        let generation = client.host.sealing.take().expect("it was published");
        let (one, other) = (Sum([5, 0]), Sum([6, 0]));
        let sums = match shard {
            0 => ShardSums { counted: one, held: one, expected: one + one },
            _ => ShardSums { counted: Sum::default(), held: other, expected: Sum::default() },
        };
        client.session.handle_sealed(cluster.now, generation, sums);
    }
    cluster.run();
}

fn mismatch(outcome: &Result<Answer, CallError>) -> bool {
    matches!(outcome, Err(CallError::ContentMismatch { replica, .. }) if replica == "trainer")
}

fn refused() -> (Cluster, Vec<usize>) {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    seals_with_other_copies(&mut cluster, &trainer);
    (cluster, trainer)
}

#[test]
fn a_copy_is_accepted_only_when_all_its_shards_have_sealed() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    cluster.finish_seals(&trainer[..1]);
    let verdict = |cluster: &Cluster, at: usize| cluster.clients[trainer[at]].session.verdict();
    assert_eq!((verdict(&cluster, 0), verdict(&cluster, 1)), (None, None), "shard 1 has not");
    cluster.finish_seals(&trainer);
    assert_eq!((verdict(&cluster, 0), verdict(&cluster, 1)), (Some(Ok(())), Some(Ok(()))));
}

#[test]
fn who_missed_the_verdict_is_told_again() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    cluster.finish_seals(&trainer[..1]);
    cluster.reachable = false;
    cluster.break_stream(trainer[0]);
    cluster.finish_seals(&trainer[1..]);
    assert_eq!(cluster.clients[trainer[0]].session.verdict(), None);
    cluster.reachable = true;
    cluster.advance(weightcast_protocol::Span::from_secs(1));
    assert_eq!(cluster.clients[trainer[0]].session.verdict(), Some(Ok(())));
}

#[test]
fn shards_that_hold_different_copies_are_told_with_whom_to_compare() {
    let (cluster, trainer) = refused();
    for client in &trainer {
        let client = &cluster.clients[*client];
        assert!(matches!(client.session.verdict(), Some(Err(CallError::ContentMismatch { .. }))));
        let witnesses = client.log.iter().find_map(|output| match output {
            Output::Refused { witnesses } => Some(witnesses.clone()),
            _ => None,
        });
        let witnesses = witnesses.expect("it is told");
        let shards = witnesses.copy.expect("it was whole").shards;
        assert_eq!(shards.len(), 2);
        assert!(shards.iter().all(|shard| shard.generation == Generation(1)));
        assert_eq!(witnesses.holder, None, "nobody has sealed it");
    }
}

#[test]
fn unpublish_says_that_it_was_refused_and_gives_it_up() {
    let (mut cluster, trainer) = refused();
    let outcomes = cluster.call_all(&trainer, |_| Call::Unpublish);
    assert!(outcomes.iter().all(mismatch), "{outcomes:?}");
    for client in &trainer {
        assert_eq!(cluster.clients[*client].session.state(), SessionState::Empty);
    }
    // Nobody had sealed that number: it can still be what it should have been.
    cluster.auto_seal = true;
    let outcomes = cluster.publish(&trainer, 1, 7);
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_eq!(cluster.clients[trainer[0]].session.verdict(), Some(Ok(())));
    let outcomes = cluster.call_all(&trainer, |_| Call::Unpublish);
    assert_eq!(outcomes, [Ok(Answer::Unpublished), Ok(Answer::Unpublished)]);
}

#[test]
fn an_unpublish_that_waits_for_the_digests_is_told_too() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    seals_with_other_copies(&mut cluster, &trainer);
    let outcomes: Vec<_> = trainer.iter().map(|c| cluster.outcome(*c).expect("it ended")).collect();
    assert!(outcomes.iter().all(mismatch), "{outcomes:?}");
    assert_eq!(cluster.clients[trainer[0]].session.version(), None);
}

#[test]
fn a_second_trainer_with_other_bytes_is_told_whose_are_good() {
    let mut cluster = Cluster::new();
    let first = cluster.trainer("first", 1);
    cluster.publish(&first, 1, 5);
    let second = cluster.trainer("trainer", 2);
    cluster.publish(&second, 1, 6);
    let log = &cluster.clients[second[1]].log;
    let holder = log.iter().find_map(|output| match output {
        Output::Refused { witnesses } => witnesses.holder.clone(),
        _ => None,
    });
    assert_eq!(holder.map(|holder| holder.replica), Some("first".to_owned()));
    let outcomes = cluster.call_all(&second, |_| Call::Unpublish);
    assert!(outcomes.iter().all(mismatch), "{outcomes:?}");
    let outcomes = cluster.call_all(&second, |_| publish(2));
    assert_eq!(outcomes[0], Ok(Answer::Published { version: version(0, 2) }), "another number");
}

#[test]
fn who_cannot_digest_what_it_published_leaves_and_says_why() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    let now = cluster.now;
    cluster.clients[trainer[0]].session.handle_seal_failed(now, Generation(1), "it panicked");
    cluster.run();
    let own = cluster.clients[trainer[0]].closed.clone().flatten();
    assert!(own.is_some_and(|error| error.to_string().contains("it panicked")));
    cluster.call(trainer[1], Call::Unpublish);
    let other = cluster.outcome(trainer[1]);
    assert!(matches!(other, Some(Err(CallError::GroupBroken { .. }))), "{other:?}");
}

/// The call fails for that reason, and `unpublish` says it once more.
fn all_are_told(cluster: &mut Cluster, trainer: &[usize]) {
    assert_eq!(cluster.ended(trainer[0]), 2, "the third call is under way");
    seals_with_other_copies(cluster, trainer);
    assert!(trainer.iter().all(|c| cluster.outcome(*c).as_ref().is_some_and(mismatch)));
    let outcomes = cluster.call_all(trainer, |_| Call::Unpublish);
    assert!(outcomes.iter().all(mismatch), "{outcomes:?}");
}

#[test]
fn who_waits_for_others_is_told() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    let until = Condition::Available(Selector::AtLeast(9));
    cluster.begin_all(&trainer, |_| Call::Wait { until });
    all_are_told(&mut cluster, &trainer);
}

#[test]
fn who_is_about_to_read_another_version_over_it_is_told() {
    let (mut cluster, trainer) = Cluster::unsealed(2, 5);
    cluster.auto_seal = true;
    let other = cluster.trainer("other", 1);
    cluster.publish(&other, 2, 6);
    cluster.auto_read = false;
    let reader = cluster.rollout("reader", 1);
    cluster.begin_all(&reader, |_| replicate(Selector::Exact(1)));
    let (selector, allow_rollback, staged) = (Selector::Latest, false, false);
    cluster.begin_all(&trainer, |_| Call::Update { selector, allow_rollback, staged });
    all_are_told(&mut cluster, &trainer);
}

//! Versions that a group has kept by name: A1 to A3 for whoever asks, not the trainer alone.

use crate::cluster::{Cluster, replicate, update, version};
use weightcast_protocol::limits::RETAINED;
use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::{CallError, Selector, Span};

fn retain(number: u64) -> Call {
    Call::Retain { selector: Selector::Exact(number) }
}

fn let_go(number: u64) -> Call {
    Call::LetGo { version: number }
}

fn retained(number: u64) -> Result<Answer, CallError> {
    Ok(Answer::Retained { version: version(0, number) })
}

/// A trainer that retains nothing and has published version 1, and a rollout of two shards without a copy.
fn published() -> (Cluster, Vec<usize>, Vec<usize>) {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    let evaluation = cluster.rollout("evaluation", 2);
    (cluster, trainer, evaluation)
}

/// The trainer goes on to another version.
fn goes_on(cluster: &mut Cluster, trainer: &[usize], number: u64) {
    assert!(cluster.unpublished(trainer));
    cluster.publish(trainer, number, number * 100);
}

#[test]
fn a_version_that_a_rollout_keeps_outlives_its_trainer_s_copy_until_the_rollout_lets_go() {
    let (mut cluster, trainer, evaluation) = published();
    let outcomes = cluster.call_all(&evaluation, |_| retain(1));
    assert_eq!(outcomes, [retained(1), retained(1)], "one answer for the group");
    for number in 2..5 {
        goes_on(&mut cluster, &trainer, number);
        assert_eq!(cluster.holders(1), ["trainer~offload-4294967296.1"], "beside {number}");
        assert_eq!(cluster.holders(number - 1).is_empty(), number > 2, "the others are not kept");
    }
    assert_eq!(cluster.call_all(&evaluation, |_| let_go(1))[1], Ok(Answer::LetGo));
    assert_eq!(cluster.holders(1), Vec::<String>::new());
    assert_eq!((cluster.offload_shards(), cluster.counters().retention_lost), (0, 0));
}

#[test]
fn the_newest_version_is_kept_by_the_number_that_it_has_now() {
    let (mut cluster, trainer, evaluation) = published();
    let latest = cluster.call_all(&evaluation, |_| Call::Retain { selector: Selector::Latest });
    assert_eq!(latest[0], retained(1));
    goes_on(&mut cluster, &trainer, 2);
    goes_on(&mut cluster, &trainer, 3);
    assert_eq!((cluster.holders(1).len(), cluster.holders(2).len()), (1, 0));
}

#[test]
fn a_copy_that_its_keeper_holds_is_offloaded_when_the_keeper_goes_on() {
    let (mut cluster, trainer, evaluation) = published();
    cluster.call_all(&evaluation, |_| replicate(Selector::Latest));
    cluster.call_all(&evaluation, |_| retain(1));
    goes_on(&mut cluster, &trainer, 2);
    assert_eq!(cluster.holders(1), ["evaluation"], "no copy is made while one counts");
    cluster.call_all(&evaluation, |_| update());
    assert_eq!(cluster.holders(1), ["evaluation~offload-4294967296.1"]);
    assert_eq!(cluster.content(&evaluation), 200);
}

#[test]
fn a_version_is_kept_as_long_as_one_of_its_keepers_wants_it() {
    for by_call in [true, false] {
        let (mut cluster, trainer, one) = published();
        let other = cluster.rollout("other", 1);
        cluster.call_all(&one, |_| retain(1));
        cluster.call_all(&other, |_| retain(1));
        goes_on(&mut cluster, &trainer, 2);
        let lets_go = |cluster: &mut Cluster, group: &[usize]| match by_call {
            true => drop(cluster.call_all(group, |_| let_go(1))),
            false => group.iter().for_each(|client| cluster.kill(*client)),
        };
        lets_go(&mut cluster, &one);
        cluster.advance(Span::from_secs(30));
        assert_eq!(cluster.holders(1).len(), 1, "by call: {by_call}");
        lets_go(&mut cluster, &other);
        cluster.advance(Span::from_secs(30));
        assert_eq!(cluster.holders(1).len(), 0, "by call: {by_call}");
    }
}

#[test]
fn what_is_not_there_is_waited_for_and_what_is_gone_is_not() {
    let (mut cluster, trainer, evaluation) = published();
    cluster.begin_all(&evaluation, |_| retain(2));
    assert_eq!(cluster.ended(evaluation[0]), 1, "the version is still to come");
    goes_on(&mut cluster, &trainer, 2);
    assert_eq!(cluster.outcome(evaluation[0]), Some(retained(2)));
    let gone = cluster.call_all(&evaluation, |_| retain(1)).remove(0);
    assert!(matches!(gone, Err(CallError::VersionUnavailable { .. })), "{gone:?}");
    assert_eq!(cluster.call_all(&evaluation, |_| let_go(7))[0], Ok(Answer::LetGo), "no error");
}

#[test]
fn nothing_is_kept_for_a_group_of_which_a_shard_does_not_come() {
    let (mut cluster, trainer, evaluation) = published();
    cluster.call_within(evaluation[0], retain(1), Span::from_secs(3));
    cluster.run();
    cluster.advance(Span::from_secs(4));
    assert!(matches!(cluster.outcome(evaluation[0]), Some(Err(CallError::Timeout { .. }))));
    goes_on(&mut cluster, &trainer, 2);
    assert_eq!(cluster.holders(1).len(), 0);
    // Nor is anything let go of.
    cluster.call_within(evaluation[1], retain(1), Span::from_secs(3));
    cluster.run();
    cluster.call_all(&evaluation, |_| retain(2));
    cluster.call_within(evaluation[0], let_go(2), Span::from_secs(3));
    cluster.run();
    cluster.advance(Span::from_secs(4));
    goes_on(&mut cluster, &trainer, 3);
    assert_eq!(cluster.holders(2).len(), 1);
}

#[test]
fn so_many_versions_are_kept_for_a_group_and_the_same_one_counts_once() {
    let (mut cluster, trainer) = Cluster::published(1, 100);
    let evaluation = cluster.rollout("evaluation", 1);
    for number in 1..=RETAINED as u64 {
        assert_eq!(cluster.call_all(&evaluation, |_| retain(number))[0], retained(number));
        goes_on(&mut cluster, &trainer, number + 1);
    }
    let more = RETAINED as u64 + 1;
    let refused = cluster.call_all(&evaluation, |_| retain(more)).remove(0);
    assert!(
        matches!(refused, Err(CallError::Limit { limit, got, .. }) if (limit, got) == (64, 65))
    );
    assert_eq!(cluster.call_all(&evaluation, |_| retain(7))[0], retained(7), "it is kept already");
    cluster.call_all(&evaluation, |_| let_go(1));
    assert_eq!(cluster.call_all(&evaluation, |_| retain(more))[0], retained(more));
}

#[test]
fn what_is_kept_comes_over_to_the_next_server_with_its_group() {
    let mut cluster = Cluster::with_servers(2);
    let trainer = cluster.trainer("trainer", 1);
    let evaluation = cluster.rollout("evaluation", 2);
    for number in [1, 2] {
        cluster.publish(&trainer, number, number * 100);
        cluster.call_all(&evaluation, |_| retain(number));
        assert!(cluster.unpublished(&trainer));
    }
    cluster.call_all(&evaluation, |_| let_go(2));
    cluster.publish(&trainer, 3, 300);
    cluster.crash(0);
    cluster.advance(Span::from_secs(30));
    // The second server knows only what its clients bring.
    let held = |cluster: &mut Cluster, number| {
        let versions = cluster.list(&evaluation).versions;
        versions
            .get(&version(0, number))
            .map(|holders| holders.first().cloned().unwrap_or_default())
    };
    let offload = Some("trainer~offload-4294967296.1".to_owned());
    assert_eq!(held(&mut cluster, 1), offload);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 4, 400);
    assert_eq!((held(&mut cluster, 1), held(&mut cluster, 3)), (offload, None));
    cluster.call_all(&evaluation, |_| let_go(1));
    assert_eq!(held(&mut cluster, 1), None);
}

//! `wait`: conditions looked at by the server, once for all shards of a group.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, Listing};
use weightcast_protocol::{CallError, Condition, Freshness, Oldest, Quorum, Selector, Span};

fn held(oldest: Oldest, by: Quorum) -> Condition {
    Condition::Held(Freshness { oldest, by })
}

/// All shards wait; none is answered yet.
fn begin(cluster: &mut Cluster, group: &[usize], until: Condition) {
    for client in group {
        cluster.call(*client, Call::Wait { until });
        assert!(waiting(cluster, *client), "{until}");
    }
}

/// It has no answer yet.
fn waiting(cluster: &mut Cluster, client: usize) -> bool {
    !matches!(cluster.outcome(client), Some(Ok(Answer::Listed(_))))
}

/// All shards were answered, with the same listing.
fn woken(cluster: &mut Cluster, group: &[usize]) -> Listing {
    let outcomes: Vec<_> = group.iter().map(|client| cluster.outcome(*client)).collect();
    assert!(outcomes.iter().all(|outcome| *outcome == outcomes[0]), "{outcomes:?}");
    let Some(Ok(Answer::Listed(listing))) = &outcomes[0] else { panic!("{outcomes:?}") };
    Listing::clone(listing)
}

#[test]
fn a_trainer_waits_for_the_last_laggard() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 2);
    let quick = cluster.rollout("quick", 2);
    let slow = cluster.rollout("slow", 2);
    cluster.publish(&trainer, 1, 11);
    begin(&mut cluster, &trainer, held(Oldest::Number(1), Quorum::All));
    cluster.call_all(&quick, |_| replicate(Selector::Latest));
    assert!(waiting(&mut cluster, trainer[0]));
    cluster.call_all(&slow, |_| replicate(Selector::Latest));
    let listing = woken(&mut cluster, &trainer);
    assert_eq!(listing.versions[&version(0, 1)].len(), 3);
}

#[test]
fn a_laggard_that_leaves_is_waited_for_no_longer() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let quick = cluster.rollout("quick", 1);
    let slow = cluster.rollout("slow", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&quick, |_| replicate(Selector::Latest));
    begin(&mut cluster, &trainer, held(Oldest::Behind(0), Quorum::All));
    cluster.call_all(&slow, |_| Call::Unregister);
    woken(&mut cluster, &trainer);
}

#[test]
fn some_are_enough_where_some_are_asked_for() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let quick = cluster.rollout("quick", 1);
    let _slow = cluster.rollout("slow", 1);
    cluster.publish(&trainer, 1, 11);
    begin(&mut cluster, &trainer, held(Oldest::Number(1), Quorum::AtLeast(1)));
    cluster.call_all(&quick, |_| replicate(Selector::Latest));
    woken(&mut cluster, &trainer);
}

#[test]
fn a_version_is_waited_for_and_the_first_shard_s_arrival_decides() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    let until = Condition::Available(Selector::AtLeast(1));
    cluster.call(rollout[0], Call::Wait { until });
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.call(rollout[1], Call::Wait { until });
    assert_eq!(woken(&mut cluster, &rollout).versions.len(), 1);
}

#[test]
fn what_can_not_come_is_not_waited_for() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    let until = Condition::Available(Selector::Exact(1));
    cluster.call(rollout[0], Call::Wait { until });
    let error = cluster.outcome(rollout[0]).unwrap().unwrap_err();
    assert!(matches!(error, CallError::VersionUnavailable { .. }), "{error}");
}

#[test]
fn who_waits_in_vain_learns_who_lags() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let _slow = cluster.rollout("slow", 1);
    cluster.publish(&trainer, 1, 11);
    let until = held(Oldest::Number(1), Quorum::All);
    cluster.call_within(trainer[0], Call::Wait { until }, Span::from_secs(2));
    cluster.advance(Span::from_secs(2));
    let error = cluster.outcome(trainer[0]).unwrap().unwrap_err().to_string();
    assert!(error.contains("slow holds nothing"), "{error}");
}

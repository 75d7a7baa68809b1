//! What survives, of several versions, shards and deadlines.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call};
use weightcast_protocol::{CallError, Span};

const SECOND: Span = Span::from_secs(1);

#[test]
fn the_last_losses_are_remembered_in_order_and_all_are_counted() {
    const SHOWN: u64 = 256;
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.auto_offload = false;
    for number in 1..=SHOWN + 2 {
        cluster.publish(&trainer, number, number);
        cluster.begin_all(&trainer, |_| Call::Unpublish);
        cluster.fail_offload(trainer[0]);
        assert!(cluster.gone(&trainer), "version {number}");
        let snapshot = cluster.server.snapshot(cluster.now);
        let losses: Vec<u64> = snapshot.losses.iter().map(|loss| loss.version.number).collect();
        let first = number.saturating_sub(SHOWN) + 1;
        assert_eq!(losses, (first..=number).collect::<Vec<_>>());
        assert_eq!(snapshot.counters.retention_lost, number);
    }
    let loss = cluster.server.snapshot(cluster.now).losses.pop().expect("there are some");
    assert_eq!((loss.model.as_str(), loss.replica.as_str()), ("policy", "trainer"));
    assert_eq!(loss.reason, "shard 0: out of memory");
}

/// The memory is given back when the first of their times has passed, offloaded or not.
#[test]
fn the_earliest_deadline_of_the_shards_ends_the_wait_for_an_offload() {
    for (first, second) in [(30, 2), (2, 30), (2, 2)] {
        let mut cluster = Cluster::new();
        let trainer = cluster.retaining("trainer", 2, 1);
        cluster.publish(&trainer, 1, 5);
        cluster.auto_offload = false;
        cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(first));
        cluster.call_within(trainer[1], Call::Unpublish, Span::from_secs(second));
        cluster.advance(Span(2 * SECOND.0 - 1));
        assert!(!cluster.gone(&trainer), "{first} and {second} s");
        assert_eq!(cluster.counters().retention_lost, 0);
        cluster.advance(Span(1));
        assert!(
            cluster.gone(&trainer),
            "{first} and {second} s: {:?}",
            cluster.outcome(trainer[0])
        );
        assert_eq!((cluster.counters().retention_lost, cluster.counters().timeouts), (1, 0));
        let losses = cluster.server.snapshot(cluster.now).losses;
        assert_eq!(losses[0].reason, "it was not offloaded in time");
    }
}

#[test]
fn an_offload_that_was_asked_for_is_not_wanted_when_the_copy_is_kept_after_all() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 2);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&rollout, |_| update());
    cluster.unpublish(&trainer);
    cluster.publish(&trainer, 2, 6);
    cluster.auto_offload = false;
    cluster.call_within(rollout[0], update(), SECOND);
    cluster.advance(Span::from_secs(2));
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Err(CallError::Timeout { .. }))), "{outcome:?}");
    let before = cluster.counters().refusals;
    cluster.finish_offloads(&rollout);
    let counters = cluster.counters();
    assert_eq!((counters.offloads, counters.refusals), (0, before + 1), "it is turned away");
    cluster.advance(Span::from_secs(120));
    assert_eq!(
        (cluster.holders(1), cluster.counters().retention_lost),
        (vec!["rollout".into()], 0)
    );
    // The next update asks again: that the first copy came too late is no reason to lose the version.
    cluster.begin_all(&rollout, |_| update());
    cluster.finish_offloads(&rollout);
    assert_eq!(cluster.outcome(rollout[0]).as_ref().map(committed), Some(Some(2)));
    assert_eq!((cluster.counters().offloads, cluster.counters().retention_lost), (1, 0));
}

/// Of so many versions as many of the newest as are wanted are kept: the others go as they are told.
#[test]
fn of_many_versions_as_many_are_kept_as_are_wanted_whoever_holds_them() {
    for wanted in 1..=3_u32 {
        let mut cluster = Cluster::new();
        let trainer = cluster.retaining("trainer", 1, wanted);
        let mut rollouts = Vec::new();
        for number in 1..=4 {
            cluster.publish(&trainer, number, number);
            let rollout = cluster.rollout(&format!("r{number}"), 1);
            cluster.call_all(&rollout, |_| update());
            rollouts.push(rollout);
            assert!(cluster.unpublished(&trainer), "the rollout has it");
        }
        cluster.auto_offload = false;
        for (number, rollout) in (1..).zip(&rollouts) {
            let kept = number + u64::from(wanted) > 4;
            assert_eq!(cluster.unpublished(rollout), !kept, "{number} of 4, {wanted} are wanted");
        }
        // Once the copies are made they go, and what was kept is still there.
        for rollout in &rollouts {
            cluster.finish_offloads(rollout);
            let outcome = cluster.outcome(rollout[0]);
            assert_eq!(outcome, Some(Ok(Answer::Unpublished)));
        }
        assert_eq!(cluster.counters().offloads, u64::from(wanted));
        assert_eq!(cluster.counters().retention_lost, 0);
        for number in 1..=4 {
            let kept = number + u64::from(wanted) > 4;
            assert_eq!(cluster.holders(number).len(), usize::from(kept));
        }
    }
}

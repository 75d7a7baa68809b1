//! What is counted is what happened: each event moves its own counters by one, and no others.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, ReadFailure, Role};
use weightcast_protocol::server::{Counters, ServerConfig};
use weightcast_protocol::{CallError, Selector, Span};

/// A trainer of two shards that has published, and a rollout of one. Reads end by hand.
fn two_and_one() -> (Cluster, Vec<usize>, Vec<usize>, Counters) {
    let mut cluster = Cluster::with(ServerConfig { fanout: 2, ..ServerConfig::default() });
    let (trainer, rollout) = (cluster.trainer("trainer", 2), cluster.rollout("rollout", 1));
    cluster.auto_read = false;
    cluster.publish(&trainer, 1, 11);
    let before = cluster.counters();
    (cluster, trainer, rollout, before)
}

fn fail(cluster: &mut Cluster, reader: usize) {
    let ReadOrder { seq, attempt, .. } =
        cluster.clients[reader].host.reading.take().expect("it reads");
    let failure = ReadFailure::Source { shard: 0, reason: "cut".into() };
    let now = cluster.now;
    cluster.clients[reader].session.handle_read(now, seq, attempt, Err(failure));
    cluster.run();
}

#[test]
fn a_publish_and_its_verdict_are_counted_once_for_all_shards() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    let [one, other] = ["one", "other"].map(|name| cluster.trainer(name, 2));
    let start = cluster.counters();
    assert_eq!(start, Counters { terms: 1, ..Counters::default() });
    cluster.publish(&one, 1, 11);
    cluster.publish(&other, 1, 12);
    assert_eq!(cluster.counters(), Counters { publishes: 2, ..start.clone() });
    cluster.finish_seals(&one);
    assert_eq!(cluster.counters(), Counters { publishes: 2, seals: 1, ..start.clone() });
    cluster.finish_seals(&other);
    assert_eq!(cluster.counters(), Counters { publishes: 2, seals: 1, fenced: 1, ..start });
}

#[test]
fn a_transfer_is_counted_by_its_assignments_and_its_commit() {
    let (mut cluster, trainer, rollout, before) = two_and_one();
    cluster.call(rollout[0], replicate(Selector::Latest));
    let assigned = Counters { assignments: before.assignments + 1, ..before };
    assert_eq!(cluster.counters(), assigned);
    fail(&mut cluster, rollout[0]);
    let again = Counters {
        assignments: assigned.assignments + 1,
        read_failures: 1,
        resumes: 1,
        ..assigned
    };
    assert_eq!(cluster.counters(), again);
    cluster.finish_reads(&rollout);
    let committed = Counters { commits: 1, ..again };
    assert_eq!(cluster.counters(), committed);
    // A call that has nothing to do is none of it.
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&trainer, |_| Call::List);
    assert_eq!(cluster.counters(), committed);
}

#[test]
fn several_sources_are_one_assignment() {
    let mut cluster = Cluster::with(ServerConfig { stripes: 4, ..ServerConfig::default() });
    let trainers = ["a", "b"].map(|name| cluster.trainer(name, 1));
    trainers.iter().for_each(|trainer| drop(cluster.publish(trainer, 1, 11)));
    let reader = cluster.rollout("reader", 1);
    let before = cluster.counters();
    cluster.call(reader[0], replicate(Selector::Latest));
    let after = Counters { assignments: 1, striped: 1, commits: 1, ..before };
    assert_eq!(cluster.counters(), after);
}

#[test]
fn a_call_that_ends_at_its_deadline_is_counted_once() {
    let (mut cluster, _, rollout, before) = two_and_one();
    cluster.call_within(rollout[0], replicate(Selector::Exact(9)), Span::from_secs(1));
    cluster.advance(Span::from_millis(999));
    assert_eq!(cluster.counters(), before);
    cluster.advance(Span::from_millis(1));
    assert_eq!(cluster.counters(), Counters { timeouts: 1, ..before });
}

#[test]
fn a_group_that_diverges_is_counted_once() {
    let (mut cluster, trainer, _, before) = two_and_one();
    cluster.call(trainer[0], Call::List);
    cluster.call(trainer[1], Call::Unpublish);
    assert!(matches!(cluster.outcome(trainer[0]), Some(Err(CallError::GroupDiverged { .. }))));
    assert_eq!(cluster.counters(), Counters { divergences: 1, ..before });
}

#[test]
fn each_session_that_is_refused_or_falls_silent_is_counted() {
    let (mut cluster, trainer, _, before) = two_and_one();
    cluster.start(open("trainer", 5, 2, Role::Trainer));
    let refused = Counters { refusals: before.refusals + 1, ..before };
    assert_eq!(cluster.counters(), refused);
    trainer.iter().for_each(|client| cluster.kill(*client));
    cluster.advance(Span::from_secs(7));
    assert_eq!(cluster.counters(), Counters { evictions: 2, ..refused });
}

#[test]
fn readers_that_are_cut_off_are_counted_each() {
    let (mut cluster, trainer, rollout, _) = two_and_one();
    let other = cluster.rollout("other", 1);
    for reader in [&rollout, &other] {
        cluster.call(reader[0], replicate(Selector::Latest));
    }
    let before = cluster.counters();
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.advance(Span::from_millis(9_999));
    assert_eq!(cluster.counters(), before);
    cluster.advance(Span::from_millis(1));
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.counters(), Counters { drains_cut: 2, ..before });
}

#[test]
fn words_against_a_source_are_counted_and_what_they_came_to() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let [bad, good] = ["bad", "good"].map(|name| cluster.trainer(name, 1));
    cluster.publish(&bad, 1, 11);
    cluster.publish(&good, 1, 11);
    cluster.clients[bad[0]].memory ^= 1 << 40;
    let readers = ["r", "s"].map(|name| cluster.rollout(name, 1));
    let mut expected = cluster.counters();
    // The first reads on from the other one, for which the second has to wait.
    for (reader, accused, assigned) in [(&readers[0], 1, 2), (&readers[1], 2, 1)] {
        cluster.call(reader[0], replicate(Selector::Latest));
        assert!(cluster.edges().iter().any(|(_, source)| source == "bad"));
        cluster.finish_reads(reader);
        expected.assignments += assigned;
        (expected.accusations, expected.digest_mismatches) = (accused, accused);
        let fenced = accused - 1;
        (expected.accused_fenced, expected.fenced) = (fenced, fenced);
        assert_eq!(cluster.counters(), expected);
    }
}

#[test]
fn a_transfer_that_loses_its_only_source_thrice_is_three_failures() {
    let (mut cluster, _, rollout, before) = two_and_one();
    cluster.call(rollout[0], replicate(Selector::Latest));
    for _ in 0..3 {
        fail(&mut cluster, rollout[0]);
    }
    assert!(matches!(cluster.outcome(rollout[0]), Some(Err(CallError::SourceLost { .. }))));
    let assignments = before.assignments + 3;
    let after = Counters { assignments, read_failures: 3, resumes: 2, ..before };
    assert_eq!(cluster.counters(), after);
}

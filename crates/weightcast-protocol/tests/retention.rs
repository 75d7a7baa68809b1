//! Retained versions survive their last copy: A1 to A4, F25 to F27.

use crate::cluster::{Cluster, DEADLINE, committed, open, register, replicate, update, version};
use weightcast_protocol::message::{Answer, Call, EpochPolicy, Open, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, Generation, Selector, Span};

const LATEST: Selector = Selector::Latest;

#[test]
fn the_last_copy_of_a_retained_version_is_offloaded_before_it_goes() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 2, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.auto_offload = false;
    assert!(!cluster.unpublished(&trainer), "it was not offloaded yet");
    assert_eq!(cluster.holders(1), Vec::<String>::new(), "nobody new reads from it");
    cluster.finish_offloads(&trainer[..1]);
    assert_ne!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)), "half of it");
    cluster.finish_offloads(&trainer);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    cluster.fill(&trainer, 7);
    assert_eq!(cluster.holders(1), ["trainer~offload-4294967296.1"]);
    // A1: a rollout that comes later still gets it.
    let rollout = cluster.rollout("rollout", 1);
    let outcome = cluster.call_all(&rollout, |_| replicate(LATEST)).remove(0);
    assert_eq!(committed(&outcome), Some(1));
    assert_eq!(cluster.content(&rollout), 100);
    // A3: somebody else holds it now, so it goes.
    assert_eq!(cluster.holders(1), ["rollout"]);
    assert_eq!(cluster.offload_shards(), 0);
    let counters = cluster.counters();
    assert_eq!((counters.offloads, counters.offloads_released, counters.retention_lost), (1, 1, 0));
}

#[test]
fn who_waits_for_the_last_copy_waits_while_it_is_offloaded() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.auto_offload = false;
    // The trainer has its reader; the others wait for a place.
    cluster.auto_read = false;
    let first = cluster.rollout("first", 1);
    let waiting = cluster.rollout("waiting", 1);
    cluster.begin_all(&first, |_| replicate(LATEST));
    cluster.begin_all(&waiting, |_| replicate(LATEST));
    assert!(!cluster.unpublished(&trainer), "it was not offloaded yet");
    // The reader goes, and with it the copy that it would have had.
    cluster.kill(first[0]);
    let late = cluster.rollout("late", 1);
    cluster.begin_all(&late, |_| replicate(Selector::Exact(1)));
    cluster.advance(Span::from_secs(7));
    // An offload is on its way, for who comes now as well: all that has ended is `register`.
    assert_eq!((cluster.ended(waiting[0]), cluster.ended(late[0])), (1, 1));
    cluster.auto_read = true;
    cluster.finish_offloads(&trainer);
    for rollout in [waiting, late] {
        assert_eq!(cluster.outcome(rollout[0]).as_ref().and_then(committed), Some(1));
        assert_eq!(cluster.content(&rollout), 100);
    }
}

#[test]
fn who_waits_for_an_offload_that_fails_is_told_so() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.auto_offload = false;
    assert!(!cluster.unpublished(&trainer));
    let late = cluster.rollout("late", 1);
    cluster.begin_all(&late, |_| replicate(Selector::Exact(1)));
    cluster.fail_offload(trainer[0]);
    let unavailable = CallError::VersionUnavailable {
        model: "policy".to_owned(),
        selector: Selector::Exact(1),
        latest: None,
    };
    assert_eq!(cluster.outcome(late[0]), Some(Err(unavailable)));
}

#[test]
fn an_offload_goes_when_its_version_is_not_retained_any_more() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    for number in 1..4 {
        cluster.publish(&trainer, number, number * 10);
        assert_eq!(cluster.offload_shards(), 0, "a newer version is there");
        assert!(cluster.unpublished(&trainer));
        assert_eq!(cluster.offload_shards(), 1, "at most one for each retained version");
        assert_eq!(cluster.holders(number).len(), 1);
    }
    assert_eq!(cluster.counters().offloads, 3);
}

#[test]
fn as_many_versions_are_kept_as_were_asked_for() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 2);
    for number in 1..6 {
        cluster.publish(&trainer, number, number * 10);
        assert!(cluster.unpublished(&trainer));
    }
    let kept = |number| cluster.holders(number).len();
    assert_eq!((kept(3), kept(4), kept(5)), (0, 1, 1));
    assert_eq!(cluster.offload_shards(), 2);
}

#[test]
fn nothing_is_offloaded_that_is_not_retained_or_held_by_others() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 0);
    cluster.publish(&trainer, 1, 1);
    assert!(cluster.unpublished(&trainer), "nothing is retained");
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 1);
    cluster.call_all(&rollout, |_| update());
    assert!(cluster.unpublished(&trainer), "the rollout has it");
    assert_eq!(cluster.counters().offloads, 0);
}

#[test]
fn a_copy_on_a_spot_instance_does_not_count() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 1);
    let mut spot = open("rollout", 0, 1, Role::Rollout);
    spot.location.spot = true;
    let rollout = [cluster.start(spot)];
    cluster.call_all(&rollout, register);
    cluster.call_all(&rollout, |_| update());
    assert!(cluster.unpublished(&trainer));
    assert_eq!(cluster.holders(1), ["rollout", "trainer~offload-4294967296.1"]);
    // F26: the last copy that counts dies, then the spot one: an error, no hang.
    let copy = cluster.clients.len() - 1;
    cluster.kill(copy);
    cluster.advance(Span::from_secs(10));
    assert_eq!(cluster.holders(1), ["rollout"]);
    cluster.kill(rollout[0]);
    cluster.advance(Span::from_secs(10));
    let late = cluster.rollout("late", 1);
    let outcome = cluster.call_all(&late, |_| replicate(Selector::Exact(1))).remove(0);
    assert!(matches!(outcome, Err(CallError::VersionUnavailable { .. })), "{outcome:?}");
}

#[test]
fn of_two_last_copies_that_go_at_once_one_is_offloaded() {
    let mut cluster = Cluster::new();
    let a = cluster.retaining("a", 2, 1);
    let b = cluster.retaining("b", 2, 1);
    cluster.publish(&a, 1, 5);
    cluster.publish(&b, 1, 5);
    // Both stop counting before either is through.
    for client in [a[0], b[0], a[1], b[1]] {
        cluster.call(client, Call::Unpublish);
    }
    for client in a.iter().chain(&b) {
        assert_eq!(cluster.outcome(*client), Some(Ok(Answer::Unpublished)));
    }
    assert_eq!((cluster.counters().offloads, cluster.offload_shards()), (1, 2));
}

#[test]
fn if_the_one_that_offloads_fails_the_other_does() {
    let mut cluster = Cluster::new();
    let a = cluster.retaining("a", 1, 1);
    let b = cluster.retaining("b", 1, 1);
    let slow = cluster.rollout("slow", 1);
    cluster.publish(&a, 1, 5);
    cluster.publish(&b, 1, 5);
    (cluster.auto_offload, cluster.auto_read) = (false, false);
    cluster.begin_all(&slow, |_| update());
    // `a` is read from, so it is still there when `b` fails.
    cluster.begin_all(&a, |_| Call::Unpublish);
    cluster.begin_all(&b, |_| Call::Unpublish);
    cluster.kill(slow[0]);
    let asked =
        |cluster: &Cluster, client: usize| cluster.clients[client].host.offloading.is_some();
    let (first, second) = (b[0], a[0]);
    assert!(asked(&cluster, first) && !asked(&cluster, second), "one at a time");
    cluster.fail_offload(first);
    cluster.advance(Span::from_secs(6));
    assert!(asked(&cluster, second), "its reader is gone, and it is the last one now");
    cluster.finish_offloads(&[second]);
    assert_eq!(cluster.outcome(a[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.outcome(b[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.counters().offloads, 1);
}

#[test]
fn out_of_memory_at_one_shard_is_recorded_and_holds_nobody_up() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 3, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.finish_offloads(&trainer[..2]);
    assert_eq!(cluster.offload_shards(), 2);
    cluster.fail_offload(trainer[2]);
    for client in &trainer {
        assert_eq!(cluster.outcome(*client), Some(Ok(Answer::Unpublished)), "G4: all alike");
    }
    assert_eq!(cluster.offload_shards(), 0, "what the others copied is freed");
    let losses = cluster.server.snapshot(cluster.now).losses;
    assert_eq!((losses.len(), losses[0].version), (1, version(0, 1)));
    assert_eq!(losses[0].reason, "shard 2: out of memory");
    assert_eq!(cluster.counters().retention_lost, 1);
    // The record outlives the model.
    for client in &trainer {
        cluster.clients[*client].session.close(cluster.now, Span(0));
    }
    cluster.run();
    let snapshot = cluster.server.snapshot(cluster.now);
    assert!(snapshot.models.is_empty());
    assert_eq!((&snapshot.losses, snapshot.losses[0].model.as_str()), (&losses, "policy"));
}

#[test]
fn an_older_copys_failure_says_nothing_of_the_one_that_is_made_now() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.auto_offload = false;
    assert!(!cluster.unpublished(&trainer));
    let (one, generation) = cluster.clients[trainer[0]].host.offloading.expect("asked for");
    // It was published before, and that copy has found no room only now.
    let older = Generation(generation.0 - 1);
    let (now, reason) = (cluster.now, "out of memory".to_owned());
    cluster.clients[trainer[0]].session.handle_offload_failed(now, one, older, reason);
    cluster.run();
    assert_eq!(cluster.counters().retention_lost, 0);
    cluster.finish_offloads(&trainer);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.holders(1).len(), 1);
    assert_eq!(cluster.counters().retention_lost, 0);
}

#[test]
fn copying_is_stopped_before_the_memory_changes_whatever_has_failed() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    cluster.auto_offload = false;
    assert!(!cluster.unpublished(&trainer));
    cluster.fail_offload(trainer[0]);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    let log = &cluster.clients[trainer[0]].log;
    let last = |wanted: fn(&Output) -> bool| log.iter().rposition(wanted);
    let stopped = last(|output| *output == Output::StopOffload);
    assert!(stopped.is_some() && stopped < last(|output| matches!(output, Output::Fence(_))));
    assert!(stopped < last(|output| matches!(output, Output::Done { .. })));
}

#[test]
fn an_offload_that_takes_too_long_is_given_up() {
    let config = ServerConfig { offload_deadline: Span::from_secs(3), ..ServerConfig::default() };
    let mut cluster = Cluster::with(config);
    let trainer = cluster.retaining("trainer", 2, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.advance(Span::from_millis(2_900));
    assert_ne!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    cluster.advance(Span::from_millis(200));
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.counters().retention_lost, 1);
    let log = &cluster.clients[trainer[0]].log;
    let at = |wanted: &dyn Fn(&Output) -> bool| log.iter().position(wanted).expect("output");
    let stopped = at(&|o| *o == Output::StopOffload);
    assert!(stopped < at(&|o| matches!(o, Output::Done { result: Ok(Answer::Unpublished), .. })));
}

#[test]
fn the_deadline_of_the_call_ends_it_as_well() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(1));
    cluster.advance(Span::from_secs(1));
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.counters().retention_lost, 1);
    assert_eq!(cluster.clients[trainer[0]].host.offloading, None, "its memory may change now");
}

#[test]
fn the_earliest_deadline_that_a_shard_gave_ends_it_for_all() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 2, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(30));
    cluster.call_within(trainer[1], Call::Unpublish, Span::from_secs(2));
    cluster.advance(Span::from_millis(1_999));
    assert!(!cluster.gone(&trainer));
    cluster.advance(Span::from_millis(1));
    assert!(cluster.gone(&trainer));
    assert_eq!((cluster.counters().retention_lost, cluster.counters().timeouts), (1, 0));
}

#[test]
fn another_copy_that_comes_meanwhile_is_as_good() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 2, 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 5);
    (cluster.auto_offload, cluster.auto_read) = (false, false);
    cluster.begin_all(&rollout, |_| update());
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.finish_offloads(&trainer[..1]);
    cluster.finish_reads(&rollout);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.clients[trainer[1]].host.offloading, None, "stopped");
    assert_eq!(cluster.offload_shards(), 0, "half an offload replica is freed");
    assert_eq!(cluster.counters().retention_lost, 0);
}

#[test]
fn an_update_offloads_the_old_version_first() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 2);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&rollout, |_| update());
    cluster.unpublish(&trainer);
    cluster.publish(&trainer, 2, 6);
    cluster.auto_offload = false;
    cluster.begin_all(&rollout, |_| update());
    assert_eq!(cluster.ended(rollout[0]), 2, "it holds the last copy of version 1");
    cluster.finish_offloads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).expect("ended")), Some(2));
    assert_eq!(cluster.holders(1), ["rollout~offload-4294967296.1"]);
}

#[test]
fn an_update_that_runs_out_of_time_keeps_its_copy() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 2);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&rollout, |_| update());
    cluster.unpublish(&trainer);
    cluster.publish(&trainer, 2, 6);
    cluster.auto_offload = false;
    cluster.call_within(rollout[0], update(), Span::from_secs(1));
    cluster.advance(Span::from_secs(2));
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Err(CallError::Timeout { .. }))), "{outcome:?}");
    assert_eq!(cluster.holders(1), ["rollout"]);
    // What it copied comes to nothing.
    cluster.finish_offloads(&rollout);
    assert_eq!((cluster.offload_shards(), cluster.counters().retention_lost), (0, 0));
}

/// The copy was made in time, but a reader kept the call until it ran out of it: so the group keeps what it
/// holds, and the copy goes. The next call needs another one.
#[test]
fn a_copy_that_was_let_go_of_can_be_asked_for_again() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 2);
    let [rollout, reader] = ["rollout", "reader"].map(|name| cluster.rollout(name, 1));
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&rollout, |_| update());
    cluster.unpublish(&trainer);
    cluster.auto_read = false;
    cluster.begin_all(&reader, |_| replicate(LATEST));
    cluster.publish(&trainer, 2, 6);
    cluster.call_within(rollout[0], update(), Span::from_millis(500));
    assert_eq!(cluster.counters().offloads, 1, "it was copied");
    cluster.advance(Span::from_secs(1));
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Err(CallError::Timeout { .. }))), "{outcome:?}");
    assert_eq!((cluster.holders(1), cluster.offload_shards()), (vec!["rollout".to_owned()], 0));
    cluster.kill(reader[0]);
    cluster.advance(DEADLINE);
    cluster.auto_read = true;
    let outcome = cluster.call_all(&rollout, |_| update()).remove(0);
    assert_eq!(committed(&outcome), Some(2));
    assert_eq!(cluster.holders(1), ["rollout~offload-4294967296.1"]);
    assert_eq!((cluster.counters().offloads, cluster.counters().retention_lost), (2, 0));
}

#[test]
fn a_close_waits_for_the_offload_too() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 2, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    for client in &trainer {
        cluster.clients[*client].session.close(cluster.now, DEADLINE);
    }
    cluster.run();
    assert_eq!(cluster.clients[trainer[0]].closed, None);
    cluster.finish_offloads(&trainer);
    assert_eq!(cluster.clients[trainer[0]].closed, Some(None));
    assert_eq!(cluster.holders(1), ["trainer~offload-4294967296.1"]);
    // The name is free, and the version that is published again joins; the offload goes.
    let again = cluster.retaining("trainer", 2, 1);
    cluster.publish(&again, 1, 5);
    assert_eq!(cluster.holders(1), ["trainer"]);
}

#[test]
fn a_broken_stream_loses_no_request() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.break_stream(trainer[0]);
    cluster.advance(Span::from_secs(1));
    let asked = cluster.clients[trainer[0]].log.iter();
    assert_eq!(asked.filter(|o| matches!(o, Output::Offload { .. })).count(), 1, "copied once");
    cluster.finish_offloads(&trainer);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    // The offload replica's shard is cut off when it is released.
    let copy = cluster.clients.len() - 1;
    cluster.reachable = false;
    cluster.break_stream(copy);
    cluster.publish(&trainer, 2, 6);
    assert_eq!(cluster.offload_shards(), 1, "it has not heard of it");
    cluster.reachable = true;
    cluster.advance(Span::from_secs(2));
    assert_eq!(cluster.offload_shards(), 0);
}

#[test]
fn other_bytes_than_the_versions_are_no_offload() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.fill(&trainer, 6); // the contract broken: what is copied is not what was published
    assert!(cluster.unpublished(&trainer));
    assert_eq!(cluster.counters().retention_lost, 1);
    assert_eq!((cluster.holders(1).len(), cluster.offload_shards()), (0, 0));
}

#[test]
fn nobody_offloads_uninvited() {
    let mut cluster = Cluster::new();
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 5);
    for (replica, number) in
        [("trainer~offload-4294967296.1", 1), ("trainer", 1), ("x~offload-4294967296.9", 9)]
    {
        let role = Role::Offload(version(0, number));
        let stranger = cluster.start(open(replica, 0, 1, role));
        let error = cluster.clients[stranger].closed.clone().flatten();
        assert!(matches!(error, Some(CallError::Misuse { .. })), "{replica}: {error:?}");
    }
    let named = cluster.start(open("trainer~offload-4294967296.1", 0, 1, Role::Trainer));
    assert!(cluster.clients[named].closed.is_some(), "the name is not for users");
}

#[test]
fn a_new_run_has_its_own_retention() {
    let mut cluster = Cluster::new();
    let shard =
        |retain| Open { retain, epoch: EpochPolicy::New, ..open("trainer", 0, 1, Role::Trainer) };
    let trainer = [cluster.start(shard(3))];
    cluster.call_all(&trainer, register);
    cluster.publish(&trainer, 1, 5);
    cluster.unpublish(&trainer);
    cluster.clients[trainer[0]].session.close(cluster.now, DEADLINE);
    cluster.run();
    assert_eq!(cluster.offload_shards(), 1, "it outlives its owner");
    let next = [cluster.start(shard(1))];
    assert_eq!(cluster.server.snapshot(cluster.now).models["policy"].retain, 1);
    cluster.call_all(&next, register);
    cluster.publish(&next, 1, 6);
    assert_eq!(cluster.offload_shards(), 0, "the newest one is there");
}

#[test]
fn a_close_gives_an_offload_the_time_that_its_caller_gave() {
    let drain_deadline = Span::from_secs(1);
    let mut cluster = Cluster::with(ServerConfig { drain_deadline, ..ServerConfig::default() });
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_offload = false;
    cluster.clients[trainer[0]].session.close(cluster.now, Span::from_secs(20));
    cluster.run();
    cluster.advance(Span::from_secs(3));
    assert_eq!(cluster.clients[trainer[0]].closed, None, "readers are gone, the copy is not made");
    cluster.finish_offloads(&trainer);
    assert_eq!(cluster.clients[trainer[0]].closed, Some(None));
    assert_eq!(cluster.holders(1), ["trainer~offload-4294967296.1"]);
    assert_eq!(cluster.counters().retention_lost, 0);
}

//! Publish, replicate, update: the good path, fan-out, sources lost and content refused.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::server::{ReplicaState, ServerConfig};
use weightcast_protocol::session::{Output, SessionState};
use weightcast_protocol::{CallError, Generation, Selector, Span};

fn unchanged(outcome: &Outcome) -> bool {
    matches!(outcome, Ok(Answer::Unchanged { .. }))
}

#[test]
fn a_version_reaches_a_group_of_another_size() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 3);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 0xfeed);
    let outcomes = cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    assert!(outcomes.iter().all(|outcome| committed(outcome) == Some(1)), "{outcomes:?}");
    assert_eq!(cluster.content(&rollout), 0xfeed);
    let holders = &cluster.list(&rollout).versions[&version(0, 1)];
    assert_eq!(holders.iter().collect::<Vec<_>>(), ["rollout", "trainer"]);
    assert_eq!(cluster.clients[rollout[0]].session.version(), Some(version(0, 1)));
}

#[test]
fn replicate_waits_for_the_version_and_a_rollout_serves_the_next() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let first = cluster.rollout("first", 1);
    let second = cluster.rollout("second", 1);
    cluster.call(first[0], replicate(Selector::Exact(4)));
    assert_eq!(cluster.ended(first[0]), 1);
    cluster.publish(&trainer, 4, 44);
    assert_eq!(committed(&cluster.outcome(first[0]).unwrap()), Some(4));
    cluster.call_all(&trainer, |_| Call::Unpublish);
    let outcomes = cluster.call_all(&second, |_| replicate(Selector::Exact(4)));
    assert!(matches!(&outcomes[0], Ok(Answer::Committed { source, .. }) if source == "first"));
    assert_eq!(cluster.content(&second), 44);
}

#[test]
fn publish_is_visible_only_when_all_shards_have_called() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 2);
    let reader = cluster.rollout("reader", 1);
    cluster.call(trainer[0], publish(1));
    assert_eq!(cluster.ended(trainer[0]), 1);
    assert!(cluster.list(&reader).versions.is_empty());
    cluster.call(trainer[1], publish(1));
    assert_eq!(cluster.list(&reader).versions.len(), 1);
    // And gone for all as soon as one begins to unpublish.
    cluster.call(trainer[1], Call::Unpublish);
    assert!(cluster.list(&reader).versions.is_empty());
    assert_eq!(cluster.ended(trainer[1]), 2);
    cluster.call(trainer[0], Call::Unpublish);
    assert_eq!(cluster.outcome(trainer[1]), Some(Ok(Answer::Unpublished)));
}

#[test]
fn memory_is_exposed_before_a_publish_is_sent_and_fenced_before_unpublish_returns() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    let log = &cluster.clients[trainer[0]].log;
    let at = |wanted: &dyn Fn(&Output) -> bool| log.iter().position(wanted).expect("logged");
    let exposed = at(&|o| *o == Output::Expose(Generation(1)));
    let called = at(&|o| format!("{o:?}").contains("Publish"));
    let sealed = at(&|o| *o == Output::Seal(Generation(1)));
    let fenced = at(&|o| *o == Output::Fence(Generation(1)));
    let done = at(&|o| matches!(o, Output::Done { result: Ok(Answer::Unpublished), .. }));
    assert!(exposed < called && called < sealed && sealed < fenced && fenced < done);
    assert_eq!(cluster.clients[trainer[0]].session.generation(), Generation(2));
}

#[test]
fn publishing_what_is_published_changes_nothing() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 5);
    let revision = cluster.list(&trainer).revision;
    let again = cluster.publish(&trainer, 1, 5);
    assert!(again.iter().all(|o| matches!(o, Ok(Answer::Published { .. }))));
    assert_eq!(cluster.list(&trainer).revision, revision);
    assert!(cluster.clients[trainer[0]].host.exposed.is_some());
    let other = cluster.call_all(&trainer, |_| publish(2));
    assert!(other.iter().all(|o| matches!(o, Err(CallError::Misuse { .. }))), "{other:?}");
    assert!(cluster.clients[trainer[0]].host.exposed.is_some());
}

#[test]
fn update_goes_over_to_newer_versions_only() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let other = cluster.trainer("other", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.publish(&other, 2, 22);
    let outcomes = cluster.call_all(&rollout, |_| update());
    assert!(outcomes.iter().all(|o| committed(o) == Some(2)));
    assert!(cluster.call_all(&rollout, |_| update()).iter().all(unchanged));
    let back = |allow_rollback| Call::Update {
        selector: Selector::Exact(1),
        allow_rollback,
        staged: false,
    };
    assert!(cluster.call_all(&rollout, |_| back(false)).iter().all(unchanged));
    let outcomes = cluster.call_all(&rollout, |_| back(true));
    assert!(outcomes.iter().all(|o| committed(o) == Some(1)));
    assert_eq!(cluster.content(&rollout), 11);
}

#[test]
fn update_keeps_the_old_copy_until_a_source_is_free_and_its_own_readers_are_done() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let (a, b, c) = (cluster.rollout("a", 1), cluster.rollout("b", 1), cluster.rollout("c", 1));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&a, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    cluster.call(b[0], update()); // reads 1 from a
    cluster.fill(&trainer, 22);
    cluster.call_all(&trainer, |_| publish(2));
    cluster.call(c[0], update()); // takes the only place at the trainer
    cluster.call(a[0], update()); // has to wait for it
    assert_eq!(cluster.state("a"), ReplicaState::Sealed);
    cluster.finish_reads(&c);
    assert_eq!(cluster.state("a"), ReplicaState::Draining);
    assert!(cluster.clients[a[0]].host.exposed.is_some());
    cluster.finish_reads(&b);
    assert_eq!(cluster.state("a"), ReplicaState::Reading);
    assert_eq!(cluster.content(&b), 11);
    cluster.finish_reads(&a);
    assert_eq!(cluster.content(&a), 22);
}

#[test]
fn one_source_serves_one_reader_at_a_time_first_come_first_served() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let readers: Vec<_> = ["d", "c", "b", "a"].map(|name| cluster.rollout(name, 1)).into();
    cluster.publish(&trainer, 1, 11);
    for reader in &readers {
        cluster.call(reader[0], replicate(Selector::Latest));
    }
    let edge = |reader: &str, source: &str| (reader.to_owned(), source.to_owned());
    assert_eq!(cluster.edges(), [edge("d", "trainer")]);
    cluster.finish_reads(&readers[0]);
    // Two places now: the one that waited longest gets the first by name.
    assert_eq!(cluster.edges(), [edge("c", "d"), edge("b", "trainer")]);
    cluster.finish_reads(&readers[1]);
    assert_eq!(cluster.edges(), [edge("b", "trainer"), edge("a", "c")]);
    cluster.finish_reads(&readers[2]);
    cluster.finish_reads(&readers[3]);
    assert!(readers.iter().all(|reader| cluster.content(reader) == 11));
}

#[test]
fn the_same_datacentre_comes_first_then_the_same_host() {
    let mut cluster = Cluster::with(ServerConfig { fanout: 8, ..Default::default() });
    let place = |cluster: &mut Cluster, name: &str, datacentre: &str, host: &str| {
        let mut open = open(name, 0, 1, Role::Trainer);
        open.location.datacentre = datacentre.into();
        open.location.host = host.into();
        let client = cluster.start(open);
        cluster.call_all(&[client], register);
        client
    };
    for (name, datacentre, host) in [("a", "us", "h1"), ("b", "eu", "h2"), ("c", "eu", "h3")] {
        let client = place(&mut cluster, name, datacentre, host);
        cluster.publish(&[client], 1, 11);
    }
    for (name, host, source) in [("x", "h3", "c"), ("y", "h9", "b")] {
        let client = place(&mut cluster, name, "eu", host);
        let outcomes = cluster.call_all(&[client], |_| replicate(Selector::Latest));
        let from =
            |o: &Outcome| matches!(o, Ok(Answer::Committed { source: s, .. }) if s == source);
        assert!(from(&outcomes[0]), "{outcomes:?}");
    }
}

#[test]
fn a_reader_waits_for_a_copy_that_is_being_made_when_its_publisher_leaves() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let (a, b) = (cluster.rollout("a", 1), cluster.rollout("b", 1));
    cluster.publish(&trainer, 1, 11);
    cluster.call(a[0], replicate(Selector::Latest));
    cluster.call(b[0], replicate(Selector::Latest));
    cluster.call(trainer[0], Call::Unpublish);
    assert_eq!(cluster.state("trainer"), ReplicaState::Draining);
    cluster.finish_reads(&a);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    cluster.finish_reads(&b);
    assert_eq!(cluster.content(&b), 11);
}

#[test]
fn a_version_that_is_gone_is_an_error_at_once() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 3, 11);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    for selector in [Selector::Exact(3), Selector::Exact(2)] {
        let outcomes = cluster.call_all(&rollout, |_| replicate(selector));
        assert!(matches!(outcomes[0], Err(CallError::VersionUnavailable { .. })), "{outcomes:?}");
    }
    cluster.publish(&trainer, 4, 44);
    let outcomes = cluster.call_all(&rollout, |_| replicate(Selector::LatestMinus(1)));
    assert!(matches!(outcomes[0], Err(CallError::VersionUnavailable { .. })));
    let describe = Call::Describe { selector: Selector::Exact(4) };
    let outcomes = cluster.call_all(&rollout, |_| describe.clone());
    assert!(matches!(&outcomes[0], Ok(Answer::Described { layouts, .. }) if layouts.len() == 1));
}

#[test]
fn nobody_commits_before_the_seal() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[0], update());
    assert_eq!(cluster.ended(rollout[0]), 1);
    assert_eq!(cluster.clients[rollout[0]].session.state(), SessionState::Reading);
    cluster.finish_seal(trainer[0]);
    cluster.run();
    assert_eq!(cluster.ended(rollout[0]), 1);
    cluster.finish_seals(&trainer);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
}

#[test]
fn unpublish_waits_for_the_seal() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call(trainer[0], Call::Unpublish);
    assert_eq!(cluster.ended(trainer[0]), 2);
    cluster.finish_seals(&trainer);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
}

#[test]
fn a_copy_with_other_content_is_fenced_and_its_readers_are_moved() {
    let mut cluster = Cluster::new();
    cluster.auto_seal = false;
    cluster.auto_read = false;
    let good = cluster.trainer("good", 1);
    let bad = cluster.trainer("bad", 2);
    let reader = cluster.rollout("reader", 1);
    cluster.publish(&bad, 1, 66);
    cluster.call(reader[0], update()); // from bad
    cluster.publish(&good, 1, 11);
    cluster.finish_seals(&good);
    cluster.finish_seals(&bad);
    assert_eq!(cluster.state("bad"), ReplicaState::Fenced);
    assert!(bad.iter().all(|client| cluster.clients[*client].host.exposed.is_none()));
    cluster.finish_reads(&reader);
    assert_eq!(cluster.content(&reader), 11);
    let outcomes = cluster.call_all(&bad, |_| Call::List);
    assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::ContentMismatch { .. }))));
    // It is given up, and said once more.
    let outcomes = cluster.call_all(&bad, |_| Call::Unpublish);
    assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::ContentMismatch { .. }))));
    assert!(cluster.call_all(&bad, |_| Call::List).iter().all(|o| o.is_ok()));
}

#[test]
fn another_catalog_for_a_known_version_is_refused_at_once() {
    let mut cluster = Cluster::new();
    let (a, b) = (cluster.trainer("a", 1), cluster.trainer("b", 2));
    cluster.publish(&a, 1, 11);
    let catalog = weightcast_protocol::ContentDigest([9; 16]);
    let call = |_| Call::Publish { version: 1, catalog, generation: Generation(0) };
    let outcomes = cluster.call_all(&b, call);
    assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::ContentMismatch { .. }))));
    assert!(b.iter().all(|client| cluster.clients[*client].host.exposed.is_none()));
    let differing = |shard: u32| match shard {
        0 => publish(2),
        _ => Call::Publish { version: 2, catalog, generation: Generation(0) },
    };
    let outcomes = cluster.call_all(&b, |_| publish(1));
    assert!(outcomes.iter().all(|o| matches!(o, Ok(Answer::Published { .. }))));
    cluster.call_all(&b, |_| Call::Unpublish);
    cluster.begin_all(&b, differing);
    for client in b {
        assert!(matches!(cluster.outcome(client), Some(Err(CallError::LayoutMismatch { .. }))));
    }
}

#[test]
fn corrupt_bytes_are_not_accepted_and_another_source_is_tried() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("a", 1);
    let mirror = cluster.trainer("b", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.publish(&mirror, 1, 11);
    cluster.clients[trainer[0]].memory ^= 1 << 40; // changed while published
    let outcomes = cluster.call_all(&rollout, |_| update());
    assert!(matches!(&outcomes[0], Ok(Answer::Committed { source, .. }) if source == "b"));
    cluster.call_all(&mirror, |_| Call::Unpublish);
    cluster.call_all(&rollout, |_| Call::Unpublish);
    let outcomes = cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    assert!(outcomes.iter().all(|o| matches!(o, Err(CallError::DigestMismatch { .. }))));
    assert_eq!(cluster.clients[rollout[0]].session.state(), SessionState::Empty);
    assert_eq!(cluster.list(&rollout).versions[&version(0, 1)].len(), 1); // nobody was evicted
}

#[test]
fn the_only_source_is_tried_three_times_and_then_lost() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.clients[trainer[0]].host.exposed = None;
    let outcomes = cluster.call_all(&rollout, |_| update());
    for outcome in outcomes {
        let Err(CallError::SourceLost { source_replica, .. }) = outcome else { panic!() };
        assert_eq!(source_replica, "trainer");
    }
    let reads = |o: &&Output| matches!(o, Output::Read { .. });
    assert_eq!(cluster.clients[rollout[0]].log.iter().filter(reads).count(), 3);
}

#[test]
fn a_drain_that_takes_too_long_is_cut_and_the_reader_is_moved() {
    let mut cluster =
        Cluster::with(ServerConfig { drain_deadline: Span::from_secs(2), ..Default::default() });
    cluster.auto_read = false;
    let (a, b) = (cluster.trainer("a", 1), cluster.trainer("b", 1));
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&a, 1, 11);
    cluster.publish(&b, 1, 11);
    cluster.call(rollout[0], update());
    cluster.call(a[0], Call::Unpublish);
    cluster.advance(Span::from_millis(1_900));
    assert_eq!(cluster.ended(a[0]), 2);
    cluster.advance(Span::from_millis(200));
    assert_eq!(cluster.outcome(a[0]), Some(Ok(Answer::Unpublished)));
    cluster.fill(&a, 99);
    cluster.finish_reads(&rollout);
    assert_eq!(cluster.content(&rollout), 11);
    assert!(
        matches!(cluster.outcome(rollout[0]), Some(Ok(Answer::Committed { source, .. })) if source == "b")
    );
}

#[test]
fn an_epoch_makes_a_restarted_run_newer() {
    let mut cluster = Cluster::new();
    let old = cluster.trainer("old", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&old, 9, 99);
    cluster.call_all(&rollout, |_| update());
    let mut open = open("new", 0, 1, Role::Trainer);
    open.epoch = weightcast_protocol::message::EpochPolicy::New;
    let new = cluster.start(open);
    cluster.call_all(&[new], register);
    cluster.publish(&[new], 3, 33);
    let outcomes = cluster.call_all(&rollout, |_| update());
    assert_eq!(committed(&outcomes[0]), Some(3));
    assert_eq!(cluster.clients[rollout[0]].session.version(), Some(version(1, 3)));
    let outcomes = cluster.publish(&[new], 3, 33);
    assert!(outcomes[0].is_ok());
}

#[test]
fn a_rollout_publishes_only_what_a_trainer_has() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    let outcomes = cluster.publish(&rollout, 5, 55);
    assert!(matches!(outcomes[0], Err(CallError::Misuse { .. })));
    let outcomes = cluster.publish(&rollout, 1, 11);
    assert!(matches!(outcomes[0], Ok(Answer::Published { .. })), "{outcomes:?}");
    assert_eq!(cluster.state("rollout"), ReplicaState::Sealed);
}

#[test]
fn a_layout_that_does_not_fit_is_an_error_for_all_shards() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    let client = &mut cluster.clients[rollout[1]];
    let ReadOrder { seq, attempt, .. } = client.host.reading.take().unwrap();
    let detail = "w[0..2] is missing".to_owned();
    let failure = weightcast_protocol::message::ReadFailure::Layout { detail };
    client.session.handle_read(cluster.now, seq, attempt, Err(failure));
    cluster.run();
    for client in rollout {
        assert!(matches!(cluster.outcome(client), Some(Err(CallError::LayoutMismatch { .. }))));
    }
    assert!(cluster.edges().is_empty());
}

#[test]
fn calls_out_of_order_say_what_to_do() {
    let mut cluster = Cluster::new();
    let client = cluster.start(open("trainer", 0, 1, Role::Trainer));
    let misuse = |cluster: &mut Cluster, call: Call, words: &str| {
        let outcome = cluster.call_all(&[client], |_| call.clone()).pop().unwrap();
        let Err(CallError::Misuse { detail }) = outcome else { panic!("{outcome:?}") };
        assert!(detail.contains(words), "{detail}");
    };
    misuse(&mut cluster, publish(1), "register");
    misuse(&mut cluster, update(), "register");
    misuse(&mut cluster, Call::Unregister, "registered");
    misuse(&mut cluster, Call::Unpublish, "publish");
    cluster.call_all(&[client], register);
    misuse(&mut cluster, register(0), "unregister");
    cluster.publish(&[client], 1, 1);
    misuse(&mut cluster, Call::Unregister, "unpublish");
    misuse(&mut cluster, replicate(Selector::Latest), "update or unpublish");
    cluster.call_all(&[client], |_| Call::Unpublish);
    assert_eq!(cluster.call_all(&[client], |_| Call::Unregister), [Ok(Answer::Unregistered)]);
}

#[test]
fn a_burst_of_rollouts_is_served_by_a_growing_number_of_sources() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollouts: Vec<_> = (0..31).map(|n| cluster.rollout(&format!("r{n:02}"), 1)).collect();
    cluster.publish(&trainer, 1, 11);
    rollouts.iter().for_each(|rollout| cluster.begin_all(rollout, |_| update()));
    // Every round, whoever holds the version serves one more: 1, 2, 4, 8, 16.
    for round in 0..5 {
        assert_eq!(cluster.edges().len(), 1 << round);
        let everyone: Vec<usize> = rollouts.concat();
        for client in everyone {
            cluster.finish_read(client);
        }
        cluster.run();
    }
    assert!(rollouts.iter().all(|rollout| cluster.content(rollout) == 11));
}

/// One source, one reader at a time, and no relays: the others wait in line.
#[test]
fn who_runs_out_of_time_keeps_the_place_in_the_line() {
    let mut cluster = Cluster::with(ServerConfig { depth_limit: 1, ..ServerConfig::default() });
    let trainer = cluster.trainer("trainer", 1);
    let [first, second, third] = ["a", "b", "c"].map(|name| cluster.rollout(name, 1)[0]);
    cluster.auto_read = false;
    cluster.publish(&trainer, 1, 7);
    for reader in [first, second] {
        cluster.call_within(reader, replicate(Selector::Latest), Span::from_secs(3));
    }
    cluster.call_within(third, replicate(Selector::Latest), Span::from_secs(60));
    assert_eq!(cluster.edges(), [("a".to_owned(), "trainer".to_owned())]);
    cluster.advance(Span::from_secs(4));
    for timed_out in [first, second] {
        assert!(matches!(cluster.outcome(timed_out), Some(Err(CallError::Timeout { .. }))));
    }
    assert_eq!(cluster.edges(), [("c".to_owned(), "trainer".to_owned())]);
    // Both come again, the later one first, and another that is new.
    let fourth = cluster.rollout("d", 1)[0];
    for reader in [fourth, second, first] {
        cluster.call_within(reader, replicate(Selector::Latest), Span::from_secs(60));
    }
    cluster.finish_reads(&[third]);
    // There are two sources now, and the new one is the one that waits.
    let readers: Vec<String> = cluster.edges().into_iter().map(|(reader, _)| reader).collect();
    assert_eq!(readers, ["a", "b"]);
    for reader in [first, second, fourth] {
        cluster.finish_reads(&[reader]);
        assert_eq!(committed(&cluster.outcome(reader).expect("ended")), Some(1));
    }
}

#[test]
fn an_update_of_a_group_that_holds_nothing_waits_for_a_version() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    for staged in [false, true] {
        let rollout = cluster.rollout(&format!("rollout-{staged}"), 2);
        let selector = Selector::AtLeast(if staged { 2 } else { 1 });
        let update = Call::Update { selector, allow_rollback: false, staged };
        cluster.begin_all(&rollout, |_| update.clone());
        assert!(rollout.iter().all(|client| cluster.ended(*client) == 1), "it waits");
        cluster.publish(&trainer, if staged { 2 } else { 1 }, 11);
        for client in &rollout {
            let outcome = cluster.outcome(*client).expect("it came");
            assert_eq!(committed(&outcome), Some(if staged { 2 } else { 1 }), "{outcome:?}");
        }
        // With something to go on with, it does not wait.
        for outcome in cluster.call_all(&rollout, |_| update.clone()) {
            assert!(matches!(outcome, Ok(Answer::Unchanged { held: Some(_) })), "{outcome:?}");
        }
        cluster.call_all(&trainer, |_| Call::Unpublish);
        cluster.call_all(&rollout, |_| Call::Unpublish);
    }
}

#[test]
fn an_update_of_a_group_that_holds_nothing_fails_if_nothing_comes() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.call(rollout[0], update());
    cluster.advance(DEADLINE);
    let Some(Err(CallError::VersionUnavailable { latest: None, .. })) = cluster.outcome(rollout[0])
    else {
        panic!("{:?}", cluster.outcome(rollout[0]))
    };
    // One that is gone for good is not waited for.
    cluster.publish(&trainer, 2, 22);
    let gone = Call::Update { selector: Selector::Exact(1), allow_rollback: false, staged: false };
    cluster.call(rollout[0], gone);
    let outcome = cluster.outcome(rollout[0]);
    assert!(matches!(outcome, Some(Err(CallError::VersionUnavailable { .. }))), "{outcome:?}");
}

#[test]
fn a_version_that_goes_before_its_turn_is_made_up_for_by_the_next() {
    for call in [update(), replicate(Selector::Latest)] {
        let mut cluster = Cluster::new();
        let trainer = cluster.trainer("trainer", 1);
        let rollout = cluster.rollout("rollout", 2);
        cluster.publish(&trainer, 1, 11);
        cluster.call(rollout[0], call.clone());
        cluster.call_all(&trainer, |_| Call::Unpublish);
        cluster.call(rollout[1], call.clone());
        assert!(rollout.iter().all(|client| cluster.ended(*client) == 1), "{call:?}");
        cluster.publish(&trainer, 2, 22);
        for client in &rollout {
            let outcome = cluster.outcome(*client).expect("the next came");
            assert_eq!(committed(&outcome), Some(2), "{call:?}: {outcome:?}");
        }
    }
}

#[test]
fn who_closes_while_readers_finish_gives_them_no_longer() {
    let drain_deadline = Span::from_secs(10);
    let mut cluster = Cluster::with(ServerConfig { drain_deadline, ..ServerConfig::default() });
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let rollout = cluster.rollout("rollout", 1);
    cluster.begin_all(&rollout, |_| update());
    cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(60));
    cluster.advance(Span::from_secs(6));
    cluster.clients[trainer[0]].session.close(cluster.now, Span::from_secs(60));
    cluster.run();
    assert_eq!(cluster.clients[trainer[0]].closed, None);
    cluster.advance(Span::from_secs(5));
    assert_eq!(cluster.clients[trainer[0]].closed, Some(None), "ten seconds have passed");
}

#[test]
fn what_is_out_of_sight_is_not_answered_as_published() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    // One shard calls in time, and takes the copy out of sight; the other comes too late.
    cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(1));
    cluster.advance(Span::from_secs(2));
    cluster.call(trainer[1], Call::Unpublish);
    for client in &trainer {
        assert!(matches!(cluster.outcome(*client), Some(Err(CallError::Timeout { .. }))));
    }
    assert!(cluster.list(&trainer).versions.is_empty());
    let again = cluster.publish(&trainer, 1, 11).remove(0);
    assert!(matches!(again, Err(CallError::Misuse { .. })), "{again:?}");
}

//! Opening, leases, broken streams and every way out.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, Role};
use weightcast_protocol::server::{ReplicaState, ServerConfig};
use weightcast_protocol::session::{Output, SessionState};
use weightcast_protocol::{CallError, ContentDigest, Revision, Selector, Span, Term};

#[test]
fn shards_that_do_not_fit_are_refused_with_both_names() {
    let mut cluster = Cluster::new();
    cluster.trainer("group", 2);
    for (open, words) in [
        (open("group", 1, 3, Role::Trainer), "3 shards"),
        (open("group", 2, 2, Role::Trainer), "does not exist"),
        (open("group", 1, 2, Role::Rollout), "as Rollout"),
        (open("../x", 0, 1, Role::Rollout), ".."),
    ] {
        let client = cluster.start(open);
        let Some(Some(CallError::Misuse { detail })) = &cluster.clients[client].closed else {
            panic!("{:?}", cluster.clients[client].closed)
        };
        assert!(detail.contains(words), "{detail}");
    }
    assert_eq!(cluster.state("group"), ReplicaState::Empty);
}

#[test]
fn another_protocol_is_refused() {
    let mut cluster = Cluster::new();
    let mut open = open("group", 0, 1, Role::Trainer);
    open.protocol += 1;
    let client = cluster.start(open);
    assert!(matches!(cluster.clients[client].closed, Some(Some(CallError::Misuse { .. }))));
}

#[test]
fn limits_hold_at_the_limit() {
    let mut config = ServerConfig::default();
    config.limits.sessions = 2;
    config.limits.shards_per_group = 4;
    config.limits.models = 1;
    let mut cluster = Cluster::with(config);
    cluster.start(open("a", 0, 4, Role::Trainer));
    let too_many_shards = cluster.start(open("b", 0, 5, Role::Trainer));
    let mut other_model = open("b", 0, 1, Role::Trainer);
    other_model.model = "other".into();
    let too_many_models = cluster.start(other_model);
    cluster.start(open("b", 0, 1, Role::Trainer));
    let too_many_sessions = cluster.start(open("c", 0, 1, Role::Trainer));
    for client in [too_many_shards, too_many_models, too_many_sessions] {
        assert!(matches!(cluster.clients[client].closed, Some(Some(CallError::Limit { .. }))));
    }
}

#[test]
fn a_taken_place_is_waited_for_until_the_old_process_is_evicted() {
    let mut cluster = Cluster::new();
    let old = cluster.trainer("group", 1);
    cluster.kill(old[0]);
    let new = cluster.start(open("group", 0, 1, Role::Trainer));
    cluster.call(new, register(0));
    cluster.advance(Span::from_secs(5));
    assert_eq!(cluster.clients[new].session.state(), SessionState::Opening);
    cluster.advance(Span::from_secs(2));
    assert!(matches!(cluster.outcome(new), Some(Ok(Answer::Registered { .. }))));
}

#[test]
fn a_lost_shard_breaks_its_group_and_moves_its_readers() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let (a, b) = (cluster.trainer("a", 2), cluster.trainer("b", 1));
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&a, 1, 11);
    cluster.publish(&b, 1, 11);
    cluster.call(rollout[0], update()); // from a
    cluster.kill(a[1]);
    cluster.advance(Span::from_millis(5_400));
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "a".to_owned())]);
    cluster.advance(Span::from_millis(200));
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "b".to_owned())]);
    cluster.finish_reads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
    let Some(Some(CallError::GroupBroken { reason, .. })) = &cluster.clients[a[0]].closed else {
        panic!("{:?}", cluster.clients[a[0]].closed)
    };
    assert!(reason.contains("shard 1"), "{reason}");
    assert!(cluster.clients[a[0]].host.exposed.is_none());
    // And the rest of it goes when its lease has run out too.
    cluster.advance(Span::from_secs(6));
    assert_eq!(cluster.server.snapshot(cluster.now).sessions, 2);
}

#[test]
fn a_lost_reader_lets_its_source_go_long_before_its_lease_ends() {
    for draining in [true, false] {
        let mut cluster = Cluster::new();
        cluster.auto_read = false;
        let trainer = cluster.trainer("trainer", 1);
        let rollout = cluster.rollout("rollout", 2);
        cluster.publish(&trainer, 1, 11);
        cluster.begin_all(&rollout, |_| update());
        cluster.kill(rollout[0]);
        if draining {
            cluster.call(trainer[0], Call::Unpublish);
            cluster.advance(Span::from_millis(400));
            assert_eq!(cluster.ended(trainer[0]), 2, "it may open a stream again");
            cluster.advance(Span::from_millis(200));
        } else {
            cluster.advance(Span::from_millis(600));
            assert_eq!(cluster.edges().len(), 1, "nobody wants the source");
            cluster.call(trainer[0], Call::Unpublish);
        }
        assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
        assert_eq!(cluster.ended(rollout[1]), 1, "the lease decides about the reader");
        cluster.advance(Span::from_secs(6));
        assert!(matches!(cluster.outcome(rollout[1]), Some(Err(CallError::GroupBroken { .. }))));
        // F3: the reader that was left had stopped before.
        assert!(cluster.clients[rollout[1]].log.contains(&Output::StopRead));
    }
}

#[test]
fn a_reader_that_opens_a_stream_in_time_is_waited_for() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    cluster.call(trainer[0], Call::Unpublish);
    cluster.break_stream(rollout[0]);
    cluster.advance(Span::from_secs(3));
    assert_eq!(cluster.ended(trainer[0]), 2);
    cluster.finish_reads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
}

#[test]
fn who_was_left_behind_gets_another_source_once_all_its_shards_are_back() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let (a, b) = (cluster.trainer("a", 1), cluster.trainer("b", 1));
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&a, 1, 11);
    cluster.publish(&b, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    cluster.reachable = false;
    rollout.iter().for_each(|client| cluster.break_stream(*client));
    cluster.advance(Span::from_millis(600));
    cluster.call(a[0], Call::Unpublish);
    assert_eq!(cluster.outcome(a[0]), Some(Ok(Answer::Unpublished)));
    assert_eq!(cluster.edges(), [], "it could not hear of b");
    let waits = cluster.server.why(cluster.now, None, "rollout").unwrap().sentence;
    assert!(waits.contains("replica rollout to open its streams again"), "{waits}");
    cluster.reachable = true;
    cluster.advance(Span::from_secs(1));
    assert_eq!(cluster.edges(), [("rollout".to_owned(), "b".to_owned())]);
    cluster.finish_reads(&rollout);
    for client in rollout {
        assert_eq!(committed(&cluster.outcome(client).unwrap()), Some(1));
    }
}

#[test]
fn who_was_left_behind_gets_no_source_while_one_of_its_shards_is_away() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let (a, b) = (cluster.trainer("a", 1), cluster.trainer("b", 1));
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&a, 1, 11);
    cluster.publish(&b, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    cluster.reachable = false;
    cluster.break_stream(rollout[0]);
    cluster.kill(rollout[1]);
    cluster.advance(Span::from_millis(600));
    cluster.call(a[0], Call::Unpublish);
    cluster.reachable = true;
    cluster.advance(Span::from_secs(1));
    assert!(cluster.clients[rollout[0]].host.stream.is_some());
    assert_eq!(cluster.edges(), [], "the other shard could not hear of b");
}

#[test]
fn a_session_acts_less_long_than_the_server_waits() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.reachable = false;
    cluster.break_stream(trainer[0]);
    cluster.advance(Span::from_millis(4_600));
    assert!(cluster.clients[trainer[0]].host.exposed.is_none());
    assert!(matches!(
        cluster.clients[trainer[0]].closed,
        Some(Some(CallError::ServerUnreachable { .. }))
    ));
    let late = cluster.clients[trainer[0]].session.call(cluster.now, Call::List, DEADLINE);
    assert!(matches!(late, Err(CallError::ServerUnreachable { .. })));
    assert_eq!(cluster.list(&rollout).versions.len(), 1);
    cluster.advance(Span::from_secs(1));
    assert!(cluster.list(&rollout).versions.is_empty());
}

#[test]
fn a_suspended_process_notices_before_it_does_anything() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let now = cluster.now + Span::from_secs(60);
    let client = &mut cluster.clients[trainer[0]];
    let late = client.session.call(now, Call::List, DEADLINE);
    assert!(matches!(late, Err(CallError::ServerUnreachable { .. })));
    assert!(matches!(client.session.poll_output(), Some(Output::Fence(_))));
}

#[test]
fn a_broken_stream_costs_nothing_within_the_lease() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    cluster.auto_seal = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    cluster.reachable = false;
    cluster.break_stream(trainer[0]);
    cluster.break_stream(rollout[0]);
    // The seal and the reports are lost with the stream, and said again.
    cluster.finish_seals(&trainer);
    cluster.finish_reads(&rollout);
    cluster.advance(Span::from_secs(2));
    cluster.reachable = true;
    cluster.advance(Span::from_secs(1));
    for client in rollout {
        assert_eq!(committed(&cluster.outcome(client).unwrap()), Some(1));
    }
}

#[test]
fn an_answer_lost_with_the_stream_is_given_again() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[0], update());
    cluster.auto_read = false;
    cluster.call(rollout[1], update());
    cluster.reachable = false;
    cluster.finish_reads(&rollout[..1]);
    cluster.break_stream(rollout[0]);
    cluster.finish_reads(&rollout[1..]);
    assert_eq!(committed(&cluster.outcome(rollout[1]).unwrap()), Some(1));
    assert_eq!(cluster.ended(rollout[0]), 1);
    cluster.reachable = true;
    cluster.advance(Span::from_secs(1));
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
}

#[test]
fn an_update_that_failed_out_of_sight_still_says_that_the_copy_is_gone() {
    let mut cluster = Cluster::new();
    let a = cluster.trainer("a", 1);
    let b = cluster.trainer("b", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&a, 1, 11);
    cluster.call_all(&rollout, |_| update());
    cluster.publish(&b, 2, 22);
    cluster.clients[b[0]].host.exposed = None; // every read from it fails
    cluster.auto_read = false;
    cluster.call(rollout[0], update());
    cluster.reachable = false;
    cluster.break_stream(rollout[0]);
    cluster.call(rollout[1], update());
    for _ in 0..3 {
        cluster.finish_reads(&rollout[1..]);
    }
    assert!(matches!(cluster.outcome(rollout[1]), Some(Err(CallError::SourceLost { .. }))));
    cluster.reachable = true;
    cluster.advance(Span::from_secs(1));
    assert_eq!(cluster.outcome(rollout[0]), cluster.outcome(rollout[1]));
    assert_eq!(cluster.clients[rollout[0]].session.state(), SessionState::Empty);
    assert!(cluster.clients[rollout[0]].host.exposed.is_none());
}

#[test]
fn a_prepared_shard_that_hears_nothing_is_in_doubt() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.begin_all(&rollout, |_| update());
    cluster.finish_reads(&rollout[..1]);
    cluster.reachable = false;
    cluster.break_stream(rollout[0]);
    cluster.finish_reads(&rollout[1..]); // commits
    cluster.advance(Span::from_secs(5));
    let doubt = CallError::InDoubt { version: version(0, 1) };
    assert_eq!(cluster.outcome(rollout[0]), Some(Err(doubt)));
    assert!(cluster.clients[rollout[0]].host.exposed.is_none());
    cluster.advance(Span::from_secs(2));
    let Some(Some(CallError::GroupBroken { .. })) = cluster.clients[rollout[1]].closed else {
        panic!("{:?}", cluster.clients[rollout[1]].closed)
    };
}

#[test]
fn a_server_that_is_not_there_is_reported_at_the_deadline() {
    let mut cluster = Cluster::new();
    cluster.reachable = false;
    let client = cluster.start(open("group", 0, 1, Role::Trainer));
    cluster.call_within(client, register(0), Span::from_secs(3));
    cluster.advance(Span::from_millis(2_900));
    assert_eq!(cluster.ended(client), 0);
    cluster.advance(Span::from_millis(200));
    assert!(matches!(cluster.outcome(client), Some(Err(CallError::ServerUnreachable { .. }))));
}

#[test]
fn close_waits_for_readers_and_leaves_nothing() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[0], update());
    cluster.call(trainer[1], wait(Revision { term: Term(u64::MAX), number: 0 }));
    cluster.clients[trainer[0]].session.close(cluster.now, DEADLINE);
    cluster.run();
    assert_eq!(cluster.clients[trainer[0]].closed, None);
    assert!(cluster.clients[trainer[0]].host.exposed.is_some());
    assert!(matches!(cluster.outcome(trainer[1]), Some(Err(CallError::GroupBroken { .. }))));
    assert!(cluster.clients[trainer[1]].host.exposed.is_none());
    assert_eq!(cluster.server.snapshot(cluster.now).models["policy"].versions.len(), 0);
    // Shard 1 has fenced: what is read now fails, and nobody else has the version.
    cluster.finish_reads(&rollout);
    assert!(matches!(cluster.outcome(rollout[0]), Some(Err(CallError::SourceLost { .. }))));
    assert_eq!(cluster.clients[trainer[0]].closed, Some(None));
    cluster.clients[rollout[0]].session.close(cluster.now, DEADLINE);
    cluster.run();
    cluster.advance(Span::from_secs(12));
    let snapshot = cluster.server.snapshot(cluster.now);
    assert_eq!(snapshot.sessions, 0);
    assert!(snapshot.models.is_empty(), "its name is free as well");
}

#[test]
fn a_group_that_closes_together_lets_its_reader_finish() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[0], update());
    for client in &trainer {
        cluster.clients[*client].session.close(cluster.now, DEADLINE);
        cluster.run();
    }
    // Its name is free at once for the next life.
    let next = cluster.trainer("trainer", 2);
    cluster.finish_reads(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
    for client in &trainer {
        assert_eq!(cluster.clients[*client].closed, Some(None));
        assert!(cluster.clients[*client].host.exposed.is_none());
    }
    assert_eq!(cluster.publish(&next, 2, 22).len(), 2);
}

#[test]
fn close_during_a_read_stops_it_first() {
    let mut cluster = Cluster::new();
    cluster.auto_read = false;
    let trainer = cluster.trainer("trainer", 1);
    let rollout = cluster.rollout("rollout", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.call(rollout[0], replicate(Selector::Latest));
    cluster.clients[rollout[0]].session.close(cluster.now, DEADLINE);
    cluster.run();
    let log = &cluster.clients[rollout[0]].log;
    let at = |wanted: fn(&Output) -> bool| log.iter().position(wanted).expect("logged");
    let stopped = at(|output| *output == Output::StopRead);
    let done = at(|output| matches!(output, Output::Done { result: Err(_), .. }));
    assert!(stopped < done && done < at(|output| matches!(output, Output::Closed { error: None })));
    assert!(cluster.edges().is_empty());
}

#[test]
fn manifests_are_kept_while_somebody_refers_to_them() {
    let mut cluster = Cluster::new();
    let layout = weightcast_protocol::ContentDigest([0; 16]);
    let content = vec![1, 2, 3];
    cluster.server.put_manifest(cluster.now, layout, content.clone()).unwrap();
    let trainer = cluster.trainer("trainer", 1);
    cluster.advance(Span::from_secs(4_000));
    assert_eq!(cluster.server.manifest(&layout).as_deref(), Some(&content[..]));
    cluster.call_all(&trainer, |_| Call::Unregister);
    cluster.advance(Span::from_secs(599));
    assert!(cluster.server.manifest(&layout).is_some());
    cluster.advance(Span::from_secs(2));
    assert!(cluster.server.manifest(&layout).is_none());
}

#[test]
fn manifests_are_bounded() {
    let mut config = ServerConfig::default();
    config.limits.manifest_bytes = 4;
    config.limits.manifests = 2;
    let mut cluster = Cluster::with(config);
    let now = cluster.now;
    let mut put = |name: u8, bytes: usize| {
        let digest = weightcast_protocol::ContentDigest([name; 16]);
        cluster.server.put_manifest(now, digest, vec![0; bytes])
    };
    assert_eq!(put(1, 4), Ok(()));
    assert!(matches!(put(2, 5), Err(CallError::Limit { limit: 4, got: 5, .. })));
    assert_eq!(put(2, 4), Ok(()));
    assert_eq!(put(2, 4), Ok(()));
    assert_eq!(put(3, 4), Ok(()), "what nobody refers to gives way");
}

fn name(number: u8) -> ContentDigest {
    ContentDigest([number; 16])
}

fn with_room_for(manifests: usize) -> Cluster {
    let mut config = ServerConfig { paranoid: true, ..ServerConfig::default() };
    config.limits.manifests = manifests;
    config.limits.manifests_bytes = 10 * manifests;
    Cluster::with(config)
}

/// Of the first twenty strangers' manifests.
fn kept(cluster: &Cluster) -> Vec<u8> {
    (1..=20).filter(|stranger| cluster.server.manifest(&name(*stranger)).is_some()).collect()
}

#[test]
fn manifests_that_nobody_refers_to_keep_no_layout_out() {
    let mut cluster = with_room_for(3);
    let now = cluster.now;
    let trainer = cluster.trainer("trainer", 1); // registers the layout of this name
    cluster.server.put_manifest(now, name(0), vec![0; 10]).unwrap();
    for stranger in 1..=20 {
        cluster.server.put_manifest(now, name(stranger), vec![0; 10]).unwrap();
    }
    assert!(cluster.server.manifest(&name(0)).is_some(), "a shard is registered with it");
    assert_eq!(kept(&cluster), [19, 20], "the newest of the others");
    // One that is stored already is as good as new.
    assert!(cluster.server.has_manifest(now, name(19)));
    cluster.server.put_manifest(now, name(21), vec![0; 10]).unwrap();
    assert_eq!(kept(&cluster), [19]);
    cluster.call_all(&trainer, |_| Call::Unregister);
    for stranger in 1..=3 {
        cluster.server.put_manifest(now, name(stranger), vec![0; 10]).unwrap();
    }
    assert!(cluster.server.manifest(&name(0)).is_none());
    cluster.server.validate().unwrap();
}

#[test]
fn manifests_that_are_referred_to_stay_at_the_limit() {
    let mut cluster = with_room_for(1);
    let now = cluster.now;
    cluster.trainer("trainer", 1);
    cluster.server.put_manifest(now, name(0), vec![0; 10]).unwrap();
    let refused = cluster.server.put_manifest(now, name(1), vec![0; 10]);
    assert!(matches!(refused, Err(CallError::Limit { limit: 1, got: 2, .. })), "{refused:?}");
    assert!(cluster.server.manifest(&name(0)).is_some());
}

#[test]
fn a_layout_stays_while_its_registration_waits_for_the_other_shards() {
    let mut cluster = with_room_for(2);
    let shards = [0, 1].map(|shard| cluster.start(open("trainer", shard, 2, Role::Trainer)));
    cluster.server.put_manifest(cluster.now, name(0), vec![0; 10]).unwrap();
    cluster.call(shards[0], register(0));
    cluster.advance(Span::from_secs(1));
    for stranger in 1..=9 {
        cluster.server.put_manifest(cluster.now, name(stranger), vec![0; 10]).unwrap();
    }
    assert!(cluster.server.manifest(&name(0)).is_some());
    // The call ends without the other shard: the layout is nobody's.
    cluster.advance(DEADLINE);
    for stranger in 1..=9 {
        cluster.server.put_manifest(cluster.now, name(stranger), vec![0; 10]).unwrap();
    }
    assert!(cluster.server.manifest(&name(0)).is_none());
    cluster.server.validate().unwrap();
}

#[test]
fn what_clients_repeat_leaves_nothing_to_wait_for() {
    let mut cluster = with_room_for(3);
    let trainer = cluster.trainer("trainer", 1);
    // Stored again and again, and pushed out by others.
    for round in 0..40 {
        cluster.now = cluster.now + Span::from_millis(10);
        let now = cluster.now;
        assert!(round == 0 || cluster.server.has_manifest(now, name(50)));
        cluster.server.put_manifest(now, name(50), vec![0; 10]).unwrap();
        cluster.server.put_manifest(now, name(round), vec![0; 10]).unwrap();
    }
    cluster.server.validate().unwrap();
    // Sessions that come and go.
    for _ in 0..20 {
        let rollout = cluster.rollout("rollout", 1);
        cluster.clients[rollout[0]].session.close(cluster.now, DEADLINE);
        cluster.run();
    }
    cluster.server.validate().unwrap();
    cluster.publish(&trainer, 1, 1);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.server.validate().unwrap();
}

#[test]
fn a_server_that_was_late_itself_ends_no_lease_for_it() {
    let evictions = |cluster: &mut Cluster| cluster.server.snapshot(cluster.now).counters.evictions;
    let mut cluster = Cluster::new();
    cluster.trainer("trainer", 1);
    // It stands still for many leases; what was sent to it meanwhile is still to be heard.
    let awake = cluster.now + Span::from_secs(60);
    cluster.server.excuse_delay(awake);
    cluster.server.handle_timeout(awake);
    assert_eq!(evictions(&mut cluster), 0);
    // Who is not heard after that either is gone.
    let lease = cluster.server.next_timeout().expect("a lease");
    cluster.server.excuse_delay(lease);
    cluster.server.handle_timeout(lease);
    assert_eq!(evictions(&mut cluster), 1);
}

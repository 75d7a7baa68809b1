//! Servers that are lost, and what their clients bring to the next one.

use crate::cluster::*;
use weightcast_protocol::message::{
    Answer, Call, ClientMessage, EpochPolicy, Open, Role, ServerMessage,
};
use weightcast_protocol::server::{ReplicaState, Server, ServerConfig, ServerOutput};
use weightcast_protocol::session::{Output, Session, SessionConfig, SessionState};
use weightcast_protocol::{
    CallError, Condition, ConnectionId, Freshness, Oldest, Quorum, Selector, SessionId, Span, Term,
    Time, Version,
};

const FAILOVER: Span = Span::from_secs(7);

/// A trainer of two shards that has published version 1, and a rollout of two that has it.
fn working(servers: u32) -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::with_servers(servers);
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 2);
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    (cluster, trainer, rollout)
}

fn term(cluster: &Cluster, client: usize) -> Term {
    cluster.clients[client].session.lease().expect("open").term
}

fn broken(cluster: &Cluster, client: usize) -> bool {
    matches!(cluster.clients[client].closed, Some(Some(CallError::GroupBroken { .. })))
}

/// Somebody whom the first server has let in once, and who goes elsewhere.
fn known_stranger(cluster: &mut Cluster) -> Open {
    let mut stranger = open("stranger", 0, 1, Role::Rollout);
    stranger.session = SessionId(1 << 100);
    let stream = ConnectionId(u64::MAX);
    cluster.server.handle(cluster.now, stream, ClientMessage::Open(stranger.clone()));
    match cluster.server.poll_output() {
        Some(ServerOutput::Send { message: ServerMessage::Opened { ticket, .. }, .. }) => {
            Open { ticket: Some(ticket), ..stranger }
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn the_first_server_of_the_list_acts_and_the_others_do_not() {
    let (mut cluster, trainer, rollout) = working(3);
    assert_eq!(cluster.server.term(), term(&cluster, trainer[0]));
    assert_eq!(cluster.server.term(), term(&cluster, rollout[1]));
    assert_eq!(cluster.machine(1).term(), Term(0));
    assert_eq!(cluster.machine(2).term(), Term(0));
}

#[test]
fn a_backup_learns_all_from_the_clients_and_sources_survive() {
    let (mut cluster, trainer, rollout) = working(2);
    let before = term(&cluster, trainer[0]);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    for client in trainer.iter().chain(&rollout) {
        assert!(term(&cluster, *client) > before);
        assert_eq!(cluster.clients[*client].session.state(), SessionState::Holding);
        assert!(cluster.clients[*client].host.exposed.is_some());
    }
    assert_eq!(cluster.list(&rollout).versions[&version(0, 1)].len(), 2);
    // A new replica reads what was published at the first server; nobody publishes again.
    let other = cluster.rollout("other", 3);
    let read = cluster.call_all(&other, |_| replicate(Selector::Exact(1)));
    assert!(read.iter().all(|outcome| committed(outcome) == Some(1)), "{read:?}");
    assert_eq!(cluster.content(&other), 11);
    // And what follows is newer than all.
    cluster.advance(Span::from_secs(10));
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    assert_eq!(committed(&cluster.call_all(&rollout, |_| update())[0]), Some(2));
}

#[test]
fn a_restarted_server_takes_a_later_term_and_learns_all_again() {
    let (mut cluster, trainer, rollout) = working(1);
    let before = cluster.server.term();
    cluster.server = Server::new(ServerConfig { paranoid: true, ..ServerConfig::default() });
    for client in trainer.iter().chain(&rollout) {
        cluster.break_stream(*client);
    }
    cluster.advance(Span::from_secs(1));
    assert!(cluster.server.term() > before);
    assert_eq!(cluster.list(&trainer).versions[&version(0, 1)].len(), 2);
}

#[test]
fn a_suspended_shard_serves_nothing_and_keeps_its_content() {
    let (mut cluster, trainer, _) = working(2);
    let before = cluster.clients[trainer[0]].session.generation();
    cluster.down.insert(1);
    cluster.crash(0);
    cluster.advance(Span::from_millis(4_600));
    let client = &cluster.clients[trainer[0]];
    assert_eq!(client.session.state(), SessionState::Suspended);
    assert!(client.host.exposed.is_none());
    assert!(client.session.generation() > before);
    assert_eq!(client.session.version(), Some(version(0, 1)));
    // A call waits for a server, and unpublish does not let the memory be changed before one says so.
    cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(20));
    cluster.call_within(trainer[1], Call::Unpublish, Span::from_secs(20));
    assert_eq!(cluster.clients[trainer[0]].session.version(), Some(version(0, 1)));
    cluster.down.remove(&1);
    cluster.advance(FAILOVER);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
}

#[test]
fn a_shard_that_slept_through_its_lease_tells_the_server_that_it_left() {
    let (mut cluster, trainer, _) = working(2);
    // Two things are known on waking: the lease is over, and the stream is.
    cluster.now = cluster.now + Span::from_secs(5);
    let before = cluster.clients[trainer[0]].log.len();
    cluster.break_stream(trainer[0]);
    let later = term(&cluster, trainer[0]);
    assert_eq!(cluster.machine(1).term(), later, "the next of the list");
    assert_eq!(cluster.server.term(), Term(0), "told by the one shard that knows");
    let since = &cluster.clients[trainer[0]].log[before..];
    let asked: Vec<_> = since.iter().filter(|o| matches!(o, Output::Connect { .. })).collect();
    assert_eq!(asked, [&Output::Connect { server: 1 }], "it was not the new stream that broke");
}

#[test]
fn a_stream_that_is_there_when_its_server_has_been_given_up_is_not_used() {
    let now = Time(1_000_000);
    let config = SessionConfig::new(open("r", 0, 1, Role::Rollout), "a:1,b:1");
    let mut session = Session::new(config, now);
    assert_eq!(session.poll_output(), Some(Output::Connect { server: 0 }));
    session.handle_disconnected(now);
    session.handle_connected(now);
    assert_eq!(session.poll_output(), None, "it is between two tries");
    session.handle_timeout(now + Span::from_secs(1));
    assert_eq!(session.poll_output(), Some(Output::Connect { server: 1 }));
    session.handle_connected(now + Span::from_secs(1));
    assert!(matches!(session.poll_output(), Some(Output::Send(ClientMessage::Open(_)))));
}

#[test]
fn a_session_leaves_a_server_that_it_cannot_come_to() {
    let now = Time(1_000_000);
    let config = SessionConfig::new(open("r", 0, 1, Role::Rollout), "a:1,b:1");
    let patience = config.connect_patience;
    let mut session = Session::new(config, now);
    assert_eq!(session.poll_output(), Some(Output::Connect { server: 0 }));
    // Nothing ever comes of it.
    assert_eq!(session.next_timeout(), Some(now + patience));
    session.handle_timeout(now + patience);
    let next = session.next_timeout().expect("it tries again");
    session.handle_connected(next); // too late: it was given up
    assert_eq!(session.poll_output(), Some(Output::Connect { server: 1 }));
    assert_eq!(session.poll_output(), None, "nothing is sent to the one that was given up");
    session.handle_connected(next);
    assert!(matches!(session.poll_output(), Some(Output::Send(ClientMessage::Open(_)))));
}

#[test]
fn a_session_that_finds_no_server_gives_up() {
    let (mut cluster, trainer, _) = working(2);
    cluster.down.insert(1);
    cluster.crash(0);
    cluster.advance(Span::from_secs(64));
    assert_eq!(cluster.clients[trainer[0]].closed, None);
    cluster.advance(Span::from_secs(1));
    let closed = &cluster.clients[trainer[0]].closed;
    assert!(matches!(closed, Some(Some(CallError::ServerUnreachable { .. }))), "{closed:?}");
}

#[test]
fn a_call_that_no_shard_or_some_shards_made_is_made_again() {
    for shards in 0..2 {
        let (mut cluster, trainer, rollout) = working(2);
        for client in &rollout[..shards] {
            cluster.call(*client, Call::List);
        }
        cluster.crash(0);
        cluster.advance(FAILOVER);
        for client in &rollout[shards..] {
            cluster.call(*client, Call::List);
        }
        let ends: Vec<_> = rollout.iter().map(|client| cluster.outcome(*client)).collect();
        assert!(matches!(ends[0], Some(Ok(Answer::Listed(_)))), "{ends:?}");
        assert_eq!(ends[0], ends[1]);
        assert!(cluster.clients[trainer[0]].host.exposed.is_some());
    }
}

#[test]
fn an_answer_that_only_some_shards_have_breaks_the_group() {
    let (mut cluster, trainer, rollout) = working(2);
    cluster.call(rollout[0], Call::List);
    // Shard 1's answer is lost with its stream.
    cluster.reachable = false;
    cluster.break_stream(rollout[0]);
    cluster.call(rollout[1], Call::List);
    cluster.reachable = true;
    cluster.crash(0);
    cluster.advance(FAILOVER);
    assert!(broken(&cluster, rollout[0]) && broken(&cluster, rollout[1]));
    assert!(matches!(cluster.outcome(rollout[0]), Some(Err(CallError::GroupBroken { .. }))));
    assert!(matches!(cluster.outcome(rollout[1]), Some(Ok(Answer::Listed(_)))));
    assert!(!broken(&cluster, trainer[0]));
}

#[test]
fn a_read_under_way_starts_anew_under_its_number() {
    let (mut cluster, trainer, rollout) = working(2);
    cluster.auto_read = false;
    let late = cluster.rollout("late", 2);
    cluster.begin_all(&late, |_| update());
    cluster.finish_reads(&late[..1]); // one is prepared, the other still reads
    cluster.crash(0);
    cluster.advance(FAILOVER);
    assert!(cluster.clients[late[0]].host.exposed.is_none());
    assert!(cluster.clients[late[1]].log.contains(&Output::StopRead));
    cluster.finish_reads(&late);
    for client in &late {
        assert_eq!(committed(&cluster.outcome(*client).unwrap()), Some(1));
    }
    assert_eq!(cluster.content(&late), 11);
    assert!(!broken(&cluster, trainer[0]) && !broken(&cluster, rollout[0]));
}

#[test]
fn a_commit_that_one_shard_knows_of_leaves_the_other_in_doubt() {
    let (mut cluster, _, _) = working(2);
    cluster.auto_read = false;
    let late = cluster.rollout("late", 2);
    cluster.begin_all(&late, |_| update());
    cluster.reachable = false;
    cluster.finish_reads(&late[..1]);
    cluster.break_stream(late[0]);
    cluster.finish_reads(&late[1..]); // commits; only shard 1 learns it
    assert_eq!(committed(&cluster.outcome(late[1]).unwrap()), Some(1));
    cluster.reachable = true;
    cluster.crash(0);
    cluster.advance(FAILOVER);
    let doubt = CallError::InDoubt { version: version(0, 1) };
    assert_eq!(cluster.outcome(late[0]), Some(Err(doubt)));
    assert!(broken(&cluster, late[1]));
    assert!(cluster.clients[late[1]].host.exposed.is_none());
}

#[test]
fn a_shard_that_comes_back_to_a_group_that_is_closing_is_told() {
    let (mut cluster, trainer, _) = working(1);
    cluster.reachable = false;
    cluster.break_stream(trainer[1]);
    let now = cluster.now;
    cluster.clients[trainer[0]].session.close(now, Span::from_secs(1));
    cluster.run();
    // Its lease is over for itself, and not yet for the server.
    cluster.advance(Span::from_millis(4_600));
    assert_eq!(cluster.clients[trainer[1]].session.state(), SessionState::Suspended);
    cluster.reachable = true;
    cluster.advance(Span::from_millis(500));
    assert!(broken(&cluster, trainer[1]), "{:?}", cluster.clients[trainer[1]].closed);
}

#[test]
fn a_group_that_is_not_whole_in_time_is_broken() {
    let (mut cluster, trainer, rollout) = working(2);
    cluster.kill(trainer[1]);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    assert_eq!(cluster.clients[trainer[0]].session.state(), SessionState::Suspended);
    let snapshot = cluster.backups[0].snapshot(cluster.now);
    let replica = snapshot.models["policy"].replicas.iter().find(|r| r.name == "trainer");
    assert_eq!(replica.unwrap().state, ReplicaState::Recovering);
    assert_eq!(cluster.list(&rollout).versions[&version(0, 1)].len(), 1);
    cluster.advance(Span::from_secs(10));
    assert!(broken(&cluster, trainer[0]));
}

#[test]
fn a_server_that_was_late_itself_gives_everybody_the_time_to_come_over_anew() {
    let (mut cluster, trainer, _) = working(2);
    cluster.kill(trainer[1]);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    let waits = |server: &Server, now: Time| {
        let snapshot = server.snapshot(now);
        let replicas = snapshot.models.values().flat_map(|model| &model.replicas);
        let mut trainer = replicas.filter(|replica| replica.name == "trainer");
        (snapshot.recovers, trainer.any(|trainer| trainer.state == ReplicaState::Recovering))
    };
    let (server, mut now) = (&mut cluster.backups[0], cluster.now);
    assert_eq!(waits(server, now), (true, true));
    // It stands still until long after all of that would be over.
    now = now + Span::from_secs(60);
    server.excuse_delay(now);
    server.handle_timeout(now);
    assert_eq!(waits(server, now), (true, true));
    // It is over in the end, for one that is in time.
    for _ in 0..100 {
        now = server.next_timeout().expect("it waits").max(now);
        server.excuse_delay(now);
        server.handle_timeout(now);
        if !waits(server, now).0 {
            return assert_eq!(waits(server, now), (false, false));
        }
    }
    panic!("it waits for ever");
}

#[test]
fn the_old_server_learns_of_the_later_term_and_gives_up() {
    let (mut cluster, trainer, rollout) = working(2);
    cluster.down.insert(0); // it hears nothing for a while, and keeps its books
    cluster.advance(FAILOVER);
    let later = cluster.machine(1).term();
    assert!(later > cluster.server.term() && cluster.server.term() > Term(0));
    cluster.down.remove(&0);
    cluster.advance(Span::from_secs(6));
    assert_eq!(cluster.server.term(), Term(0));
    for client in trainer.iter().chain(&rollout) {
        assert_eq!(term(&cluster, *client), later);
    }
    // A new client tries the first server first, and ends at the one that acts.
    let new = cluster.rollout("new", 1);
    assert_eq!(term(&cluster, new[0]), later);
}

#[test]
fn a_new_run_waits_until_the_old_one_is_known() {
    let mut cluster = Cluster::with_servers(2);
    let mut first = open("trainer", 0, 1, Role::Trainer);
    first.epoch = EpochPolicy::New;
    let trainer = vec![cluster.start(first.clone())];
    cluster.call_all(&trainer, register);
    cluster.publish(&trainer, 7, 11);
    let epoch = cluster.clients[trainer[0]].session.lease().unwrap().epoch;
    let rollout = cluster.rollout("rollout", 1);
    cluster.call_all(&rollout, |_| update());
    cluster.kill(trainer[0]);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    let again = cluster.start(first);
    cluster.advance(Span::from_secs(2));
    assert_eq!(cluster.clients[again].session.state(), SessionState::Opening);
    cluster.advance(Span::from_secs(10));
    assert!(cluster.clients[again].session.lease().unwrap().epoch > epoch);
}

#[test]
fn what_is_not_known_yet_is_not_gone() {
    let (mut cluster, trainer, rollout) = working(2);
    cluster.kill(rollout[0]);
    cluster.crash(0);
    // Only the trainer comes over at first; it must not give up what may be the last copy.
    cluster.advance(Span::from_secs(5));
    cluster.begin_all(&trainer, |_| Call::Unpublish);
    cluster.advance(Span::from_secs(2));
    assert!(!matches!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished))));
    cluster.advance(Span::from_secs(12));
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
}

#[test]
fn a_server_that_nobody_else_tells_of_a_later_term_learns_it_from_its_own_sessions() {
    let (mut cluster, trainer, _) = working(2);
    // The second server has left the first its lease since it was told of it; then it acts in a later
    // term, for a client that is never heard of again.
    cluster.advance(Span::from_secs(6));
    let stranger = known_stranger(&mut cluster);
    let now = cluster.now;
    cluster.machine(1).handle(now, ConnectionId(u64::MAX), ClientMessage::Open(stranger));
    let later = cluster.machine(1).term();
    assert!(later > cluster.server.term());
    // A new session finds out, and so do all.
    let new = cluster.rollout("new", 1);
    cluster.advance(Span::from_secs(2));
    assert_eq!(cluster.server.term(), Term(0));
    assert_eq!(term(&cluster, new[0]), later);
    assert_eq!(term(&cluster, trainer[0]), later);
}

#[test]
fn a_run_that_began_before_the_old_one_was_known_begins_again() {
    let mut cluster = Cluster::with_servers(1);
    let mut first = open("trainer", 0, 1, Role::Trainer);
    first.epoch = EpochPolicy::New;
    let trainer = vec![cluster.start(first.clone())];
    cluster.call_all(&trainer, register);
    cluster.publish(&trainer, 7, 11);
    let epoch = cluster.clients[trainer[0]].session.lease().unwrap().epoch;
    // It is restarted, and the first to find it is a trainer that starts a run.
    cluster.break_stream(trainer[0]);
    let config = ServerConfig { life: 1, paranoid: true, ..ServerConfig::default() };
    cluster.server = Server::new(config);
    let young = open("young", 0, 1, Role::Trainer);
    let young = cluster.start(Open { epoch: EpochPolicy::New, ..young });
    cluster.advance(Span::from_secs(1));
    // It has done nothing yet, and waits: its versions would have had the names of others.
    assert_eq!(cluster.clients[young].session.state(), SessionState::Opening);
    assert_eq!(cluster.list(&trainer).versions[&Version { epoch, number: 7 }].len(), 1);
    cluster.advance(Span::from_secs(12));
    assert!(cluster.clients[young].session.lease().unwrap().epoch > epoch);
}

#[test]
fn whom_no_server_would_take_in_makes_none_act() {
    let mut server = Server::new(ServerConfig::default());
    let asks = Open { activate: true, ..open("r", 0, 1, Role::Rollout) };
    let refused = [
        Open { shard: 9, ..asks.clone() },
        Open { replica: "a/../b".to_owned(), ..asks.clone() },
        Open { model: String::new(), ..asks.clone() },
    ];
    for (stream, open) in (1..).zip(refused) {
        server.handle(Time(0), ConnectionId(stream), ClientMessage::Open(open));
        assert_eq!(server.term(), Term(0));
        let said = server.poll_output();
        let retry = match said {
            Some(ServerOutput::Send { message: ServerMessage::Refused { retry, .. }, .. }) => retry,
            other => panic!("{other:?}"),
        };
        assert!(!retry, "no server would take it in later either");
    }
    server.handle(Time(0), ConnectionId(9), ClientMessage::Open(asks));
    assert!(server.term() > Term(0));
}

#[test]
fn a_new_offload_makes_no_server_act() {
    let mut server = Server::new(ServerConfig::default());
    let version = version(0, 1);
    let mut tell = |stream, role| {
        let open = Open { activate: true, ..open("trainer", 0, 1, role) };
        server.handle(Time(0), ConnectionId(stream), ClientMessage::Open(open));
        server.term()
    };
    assert_eq!(tell(1, Role::Offload(version)), Term(0));
    assert!(tell(2, Role::Rollout) > Term(0));
}

#[test]
fn who_waits_for_all_waits_for_those_who_may_still_come_over() {
    for comes in [true, false] {
        let mut cluster = Cluster::with_servers(2);
        let trainer = cluster.trainer("trainer", 1);
        let [quick, slow] = ["quick", "slow"].map(|name| cluster.rollout(name, 1));
        cluster.publish(&trainer, 1, 11);
        for rollout in [&quick, &slow] {
            cluster.call_all(rollout, |_| update());
        }
        cluster.call_all(&trainer, |_| Call::Unpublish);
        cluster.publish(&trainer, 2, 22);
        cluster.call_all(&quick, |_| update());
        cluster.stand_still(slow[0]);
        cluster.crash(0);
        cluster.advance(FAILOVER);
        let until = Condition::Held(Freshness { oldest: Oldest::Behind(0), by: Quorum::All });
        cluster.begin_all(&trainer, |_| Call::Wait { until });
        let answered =
            |cluster: &Cluster| matches!(cluster.outcome(trainer[0]), Some(Ok(Answer::Listed(_))));
        assert!(!answered(&cluster), "the laggard is unknown here");
        if comes {
            cluster.go_on(slow[0]);
        }
        cluster.advance(Span::from_secs(12));
        // Whoever has not come in time is no rollout any more.
        assert_eq!(answered(&cluster), !comes);
    }
}

#[test]
fn an_offload_that_comes_over_first_is_kept_for_those_who_may_want_it() {
    let mut cluster = Cluster::with_servers(2);
    let trainer = cluster.retaining("trainer", 1, 1);
    cluster.publish(&trainer, 1, 100);
    assert!(cluster.unpublished(&trainer));
    assert_eq!(cluster.offload_shards(), 1);
    cluster.stand_still(trainer[0]);
    cluster.crash(0);
    cluster.advance(FAILOVER);
    assert_eq!(cluster.offload_shards(), 1, "how much is retained is not known here yet");
    cluster.go_on(trainer[0]);
    cluster.advance(Span::from_secs(20));
    assert_eq!(cluster.offload_shards(), 1);
    let rollout = cluster.rollout("rollout", 1);
    let read = cluster.call_all(&rollout, |_| update());
    assert_eq!((committed(&read[0]), cluster.content(&rollout)), (Some(1), 100));
}

#[test]
fn what_a_rollout_came_over_with_it_may_publish_again() {
    let (mut cluster, _, rollout) = working(2);
    cluster.crash(0);
    cluster.advance(Span::from_secs(22));
    let given_up = cluster.call_all(&rollout, |_| Call::Unpublish);
    assert_eq!(given_up, [Ok(Answer::Unpublished), Ok(Answer::Unpublished)]);
    let again = cluster.publish(&rollout, 1, 11).remove(0);
    assert!(matches!(again, Ok(Answer::Published { .. })), "{again:?}");
    assert_eq!(cluster.list(&rollout).versions[&version(0, 1)].len(), 2);
}

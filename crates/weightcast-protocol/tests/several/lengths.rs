//! What is given a time has exactly that, counted from when it is given: a moment before its end nothing
//! has happened.

use std::collections::{BTreeMap, BTreeSet};

use crate::cluster::*;
use weightcast_protocol::message::{
    Announcement, Answer, Call, ClientMessage, Open, Role, ServerMessage,
};
use weightcast_protocol::server::{ReplicaState, Server, ServerConfig, ServerOutput};
use weightcast_protocol::{
    CallError, ConnectionId, Generation, OpSeq, Selector, SessionId, Span, Ticket, Time,
};

const START: Time = Time(1_000_000);
const LEASE: Span = Span::from_secs(5);
const SECOND: Span = Span::from_secs(1);
const LONG: Span = Span::from_secs(600);

fn seconds(seconds: u64) -> Span {
    Span::from_secs(seconds)
}

/// The client's call ends after this time from now, and not a moment before.
fn ends_in(cluster: &mut Cluster, client: usize, span: Span) -> Outcome {
    let ended = cluster.ended(client);
    cluster.advance(Span(span.0 - 1));
    assert_eq!(cluster.ended(client), ended, "{span:?}: {:?}", cluster.outcome(client));
    cluster.advance(Span(1));
    assert_eq!(cluster.ended(client), ended + 1, "it has not ended after {span:?}");
    cluster.outcome(client).expect("just counted")
}

/// A trainer with version 2, and a rollout of two shards that holds version 1 and has begun to read
/// version 2 beside it, with so much time for the call. Reads and installs end by hand.
fn staging(config: ServerConfig, deadline: Span) -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::with(config);
    let (trainer, rollout) = (cluster.trainer("trainer", 1), cluster.rollout("rollout", 2));
    cluster.publish(&trainer, 1, 11);
    cluster.call_all(&rollout, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 22);
    (cluster.auto_read, cluster.auto_install) = (false, false);
    for client in &rollout {
        cluster.call_within(*client, staged_update(), deadline);
    }
    (cluster, trainer, rollout)
}

#[test]
fn what_is_put_in_place_has_the_longer_of_its_own_time_and_the_rest_of_the_calls() {
    for (call, read_after, install) in
        [(30, 0, 60), (120, 0, 60), (120, 59, 60), (120, 60, 60), (120, 61, 60), (30, 29, 1)]
    {
        let config = ServerConfig { install_deadline: seconds(install), ..Default::default() };
        let (mut cluster, _, rollout) = staging(config, seconds(call));
        cluster.advance(seconds(read_after));
        cluster.finish_reads(&rollout);
        assert_eq!(cluster.state("rollout"), ReplicaState::Installing);
        let left = seconds((call - read_after).max(install));
        let outcome = ends_in(&mut cluster, rollout[0], left);
        assert!(matches!(outcome, Err(CallError::Timeout { .. })), "{call}, {read_after}");
        assert_eq!(cluster.outcome(rollout[1]), Some(outcome));
    }
}

/// All that have found the version on its way, and wait for it, look again.
#[test]
fn who_waits_for_what_never_lands_waits_no_longer() {
    let (mut cluster, trainer, rollout) = staging(ServerConfig::default(), DEADLINE);
    let exactly = || replicate(Selector::Exact(2));
    let waiting = ["r", "s"].map(|name| cluster.rollout(name, 2));
    for group in &waiting {
        cluster.call_within(group[0], exactly(), LONG);
    }
    cluster.finish_reads(&rollout);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    for group in &waiting {
        cluster.call_within(group[1], exactly(), LONG);
    }
    assert_eq!(cluster.state("rollout"), ReplicaState::Installing);
    let ended: Vec<usize> = waiting.iter().flatten().map(|c| cluster.ended(*c)).collect();
    let outcome = ends_in(&mut cluster, rollout[0], seconds(60));
    assert!(matches!(outcome, Err(CallError::Timeout { .. })), "{outcome:?}");
    for (client, ended) in waiting.iter().flatten().zip(ended) {
        assert_eq!(cluster.ended(*client), ended + 1);
        let outcome = cluster.outcome(*client);
        assert!(matches!(outcome, Some(Err(CallError::VersionUnavailable { .. }))), "{outcome:?}");
    }
}

/// A trainer of one shard whose copy of version 1 is being read, and who reads it.
fn read(drain_deadline: Span) -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::with(ServerConfig { drain_deadline, ..Default::default() });
    let (trainer, reader) = (cluster.trainer("trainer", 1), cluster.rollout("reader", 1));
    cluster.publish(&trainer, 1, 11);
    cluster.auto_read = false;
    cluster.call_within(reader[0], replicate(Selector::Latest), LONG);
    assert_eq!(cluster.edges().len(), 1);
    (cluster, trainer, reader)
}

#[test]
fn readers_have_the_shorter_of_the_drains_time_and_that_of_the_unpublish() {
    for (drain, call, expected) in [(10, 30, 10), (30, 10, 10), (10, 10, 10), (1, 2, 1), (2, 1, 1)]
    {
        let (mut cluster, trainer, reader) = read(seconds(drain));
        cluster.call_within(trainer[0], Call::Unpublish, seconds(call));
        let outcome = ends_in(&mut cluster, trainer[0], seconds(expected));
        assert_eq!(outcome, Ok(Answer::Unpublished), "{drain} and {call} s");
        assert!(matches!(cluster.outcome(reader[0]), Some(Err(CallError::SourceLost { .. }))));
        assert_eq!((cluster.counters().drains_cut, cluster.counters().timeouts), (1, 0));
    }
}

/// Each drain has its own time, whatever is left of one before it.
#[test]
fn the_next_drain_has_all_of_its_time_again() {
    let (mut cluster, trainer, reader) = read(seconds(10));
    cluster.call_within(trainer[0], Call::Unpublish, LONG);
    cluster.advance(seconds(9));
    cluster.finish_reads(&reader);
    assert_eq!(cluster.outcome(trainer[0]), Some(Ok(Answer::Unpublished)));
    cluster.publish(&trainer, 2, 22);
    cluster.call_within(reader[0], Call::Unpublish, LONG);
    cluster.call_within(reader[0], replicate(Selector::Latest), LONG);
    assert_eq!(cluster.edges().len(), 1);
    cluster.advance(seconds(5));
    cluster.call_within(trainer[0], Call::Unpublish, LONG);
    assert_eq!(ends_in(&mut cluster, trainer[0], seconds(10)), Ok(Answer::Unpublished));
}

#[test]
fn readers_of_an_old_copy_have_the_drains_time_from_when_its_successor_is_granted() {
    for drain in [1, 10, 40] {
        let (mut cluster, trainer, reader) = read(seconds(drain));
        cluster.finish_reads(&reader);
        cluster.call_all(&trainer, |_| Call::Unpublish);
        let slow = cluster.rollout("slow", 1);
        cluster.call_within(slow[0], replicate(Selector::Latest), LONG);
        // It waits for its source first, which does not count.
        cluster.publish(&trainer, 2, 22);
        let other = cluster.rollout("other", 1);
        cluster.call_within(other[0], replicate(Selector::Latest), LONG);
        cluster.call_within(reader[0], update(), LONG);
        cluster.advance(seconds(7));
        assert_eq!(cluster.state("reader"), ReplicaState::Sealed);
        cluster.finish_reads(&other);
        cluster.advance(Span(seconds(drain).0 - 1));
        assert_eq!(cluster.state("reader"), ReplicaState::Draining, "{drain} s");
        assert_eq!(cluster.counters().drains_cut, 0);
        cluster.advance(Span(1));
        assert_eq!(cluster.state("reader"), ReplicaState::Reading, "{drain} s");
        assert_eq!(cluster.counters().drains_cut, 1);
    }
}

fn server(index: u32) -> Server {
    let config = ServerConfig { lease: LEASE, index, paranoid: true, ..ServerConfig::default() };
    Server::new(config)
}

fn taken(server: &mut Server) -> Vec<(u64, ServerMessage)> {
    let said = std::iter::from_fn(|| server.poll_output()).filter_map(|output| match output {
        ServerOutput::Send { to, message } => Some((to.0, message)),
        ServerOutput::Disconnect { .. } => None,
    });
    said.collect()
}

/// Shard `stream % 10` of two of the group `stream / 10` opens on this stream.
fn opens(server: &mut Server, now: Time, stream: u64, shown: Option<Ticket>) -> Ticket {
    let (name, shard) = (format!("r-{}", stream / 10), (stream % 10) as u32);
    let session = SessionId(stream.into());
    let rejoins = shown.is_some();
    let open = Open { session, ticket: shown, rejoins, ..open(&name, shard, 2, Role::Rollout) };
    server.handle(now, ConnectionId(stream), ClientMessage::Open(open));
    let opened = taken(server).into_iter().find_map(|(to, message)| match message {
        ServerMessage::Opened { ticket, .. } if to == stream => Some(ticket),
        _ => None,
    });
    opened.expect("it is taken in")
}

fn announces(server: &mut Server, now: Time, stream: u64) {
    let (answered, generation) = (OpSeq(1), Generation(1));
    let retains = BTreeSet::new();
    let announcement =
        Announcement { answered, generation, registration: None, held: None, retains };
    server.handle(now, ConnectionId(stream), ClientMessage::Announce(announcement));
}

/// From one moment to another, both after the start: when each of these streams is told that its group is
/// broken. All are heard of twice a second.
fn broken(server: &mut Server, from: Span, to: Span, streams: &[u64]) -> BTreeMap<u64, Span> {
    let (mut now, end, mut beat) = (START + from, START + to, START + from);
    let mut broken = BTreeMap::new();
    while now < end {
        now = server.next_timeout().unwrap_or(beat).min(beat).max(now).min(end);
        server.handle_timeout(now);
        for (stream, message) in taken(server) {
            if matches!(message, ServerMessage::Broken { .. }) {
                broken.insert(stream, now - START);
            }
        }
        if now >= beat {
            let message = ClientMessage::Heartbeat { sent_at: now.0 };
            let say = |stream: &u64| server.handle(now, ConnectionId(*stream), message.clone());
            streams.iter().for_each(say);
            beat = now + SECOND.scaled(1, 2);
        }
    }
    broken
}

#[test]
fn a_group_has_two_leases_to_come_over_from_when_its_first_shard_has() {
    let mut first = server(0);
    let streams = [10, 11, 20, 21, 30, 31];
    let tickets = streams.map(|stream| (stream, opens(&mut first, START, stream, None)));
    let tickets: BTreeMap<u64, Ticket> = tickets.into();
    let (two, end) = (LEASE.scaled(2, 1), seconds(30));
    for later in [Span(1), SECOND, Span(LEASE.0 + 1)] {
        let mut next = server(1);
        let comes = |next: &mut Server, stream: u64, after: Span| {
            opens(next, START + after, stream, Some(tickets[&stream]));
            announces(next, START + after, stream);
        };
        // One that is whole has no time to keep, and one that comes later has its own.
        for stream in [10, 30, 31] {
            comes(&mut next, stream, Span(0));
        }
        let mut heard = vec![10, 30, 31];
        assert_eq!(broken(&mut next, Span(0), later, &heard), [].into());
        comes(&mut next, 20, later);
        heard.push(20);
        let mut late = next.clone();
        let expected = [(10, two), (20, Span(two.0 + later.0))];
        assert_eq!(broken(&mut late, later, end, &heard), expected.into(), "{later:?}");
        // The last moment is not too late.
        let last = Span(two.0 + later.0 - 1);
        assert_eq!(broken(&mut next, later, last, &heard), expected[..1].iter().copied().collect());
        comes(&mut next, 21, last);
        heard.push(21);
        assert_eq!(broken(&mut next, last, end, &heard), [].into(), "{later:?}");
    }
}

/// A session that is not heard of is evicted a lease and its margin after it was heard of last.
#[test]
fn a_session_has_its_lease_and_the_margin_from_when_it_was_heard_of_last() {
    let evicted = |server: &Server, now| server.snapshot(now).counters.evictions;
    for margin_percent in [0, 10, 100] {
        for (heard, by_stream) in [(0, false), (1, false), (4_999, false), (4_999, true)] {
            let lease = LEASE;
            let mut server =
                Server::new(ServerConfig { lease, margin_percent, ..Default::default() });
            opens(&mut server, START, 10, None);
            let heard = START + Span::from_millis(heard);
            server.handle_timeout(heard);
            if by_stream {
                server.handle_disconnect(heard, ConnectionId(10));
                let session = SessionId(10);
                let open = Open { session, ..open("r-1", 0, 2, Role::Rollout) };
                server.handle(heard, ConnectionId(77), ClientMessage::Open(open));
            } else if heard > START {
                let message = ClientMessage::Heartbeat { sent_at: heard.0 };
                server.handle(heard, ConnectionId(10), message);
            }
            let end = heard + lease.scaled(100 + u64::from(margin_percent), 100);
            let mut now = heard;
            while let Some(next) = server.next_timeout() {
                assert_eq!(evicted(&server, now), 0);
                now = next;
                server.handle_timeout(now);
                if now < end {
                    assert_eq!(evicted(&server, now), 0, "{margin_percent} % {now:?}");
                }
            }
            assert_eq!((evicted(&server, now), now), (1, end), "{margin_percent} %");
        }
    }
}

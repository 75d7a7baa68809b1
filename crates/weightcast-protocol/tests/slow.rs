//! A source that gives far less than another one could is left (L2), without a word against it (T4).

use std::collections::BTreeSet;

use crate::cluster::*;
use weightcast_protocol::limits::MOVES;
use weightcast_protocol::message::{Call, ClientMessage};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::session::Output;
use weightcast_protocol::{Selector, Span};

const GIB: u64 = 1 << 30;

/// A window, in which a read that is measured moves.
const WINDOW: Span = Span::from_secs(2);

/// Replicas `a` (a trainer), `b` and so on hold version 1; nobody reads.
fn holders(config: ServerConfig, count: usize) -> (Cluster, Vec<Vec<usize>>) {
    let mut cluster = Cluster::with(config);
    cluster.relays = true;
    let mut holders = vec![cluster.trainer("a", 1)];
    cluster.publish(&holders[0], 1, 11);
    for name in ('b'..).take(count - 1) {
        let holder = cluster.rollout(&name.to_string(), 1);
        cluster.call_all(&holder, |_| replicate(Selector::Latest));
        holders.push(holder);
    }
    cluster.auto_read = false;
    (cluster, holders)
}

fn plain() -> ServerConfig {
    ServerConfig { stripes: 1, ..ServerConfig::default() }
}

/// A reader of one shard that has been given a source.
fn reader(cluster: &mut Cluster, name: &str) -> Vec<usize> {
    let reader = cluster.rollout(name, 1);
    cluster.begin_all(&reader, |_| replicate(Selector::Latest));
    reader
}

fn source(cluster: &Cluster, reader: &[usize]) -> String {
    let ReadOrder { assignment, .. } =
        cluster.clients[reader[0]].host.reading.as_ref().expect("it reads");
    assignment.sources().join("+")
}

/// Two windows pass, in each of which so many bytes arrive; nearly all is left.
fn crawl(cluster: &mut Cluster, reader: &[usize], bytes: u64, shard: u32) {
    for _ in 0..2 {
        let (had, _, _) = cluster.clients[reader[0]].progress.unwrap_or((0, 0, 0));
        cluster.clients[reader[0]].progress = Some((had + bytes, GIB, shard));
        cluster.advance(WINDOW);
    }
}

#[test]
fn a_slow_source_is_left_for_one_that_is_free_with_what_has_come() {
    let (mut cluster, holders) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    let slow = source(&cluster, &reader);
    crawl(&mut cluster, &reader, 1_200, 0);
    let other = if slow == "a" { "b" } else { "a" };
    assert_eq!(source(&cluster, &reader), other);
    assert!(cluster.clients[reader[0]].keep);
    let counters = cluster.counters();
    assert_eq!((counters.moved_on, counters.accusations, counters.evictions), (1, 0, 0));
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
    // It is a source as good as any for others.
    assert_eq!(cluster.list(&holders[0]).versions[&version(0, 1)].len(), 3);
}

#[test]
fn who_has_nowhere_to_go_stays() {
    let (mut cluster, _) = holders(plain(), 1);
    let first = reader(&mut cluster, "reader");
    crawl(&mut cluster, &first, 1_200, 0);
    assert_eq!((source(&cluster, &first), cluster.counters().moved_on), ("a".into(), 0));
    // One that is being filled by the reader itself is no way out.
    reader(&mut cluster, "behind");
    crawl(&mut cluster, &first, 1_200, 0);
    assert_eq!(cluster.counters().moved_on, 0);
}

#[test]
fn a_read_that_is_fast_or_nearly_over_goes_on() {
    let (mut cluster, _) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    crawl(&mut cluster, &reader, 200 << 20, 0);
    for more in [0, 1_000] {
        cluster.clients[reader[0]].progress = Some((GIB + more, 1_000, 0));
        cluster.advance(WINDOW);
    }
    assert_eq!(cluster.counters().moved_on, 0);
}

#[test]
fn what_it_has_had_before_says_what_is_slow() {
    let (mut cluster, _) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    crawl(&mut cluster, &reader, 2 * GIB, 0);
    assert_eq!(cluster.counters().moved_on, 0);
    crawl(&mut cluster, &reader, GIB / 3, 0);
    assert_eq!(cluster.counters().moved_on, 0, "a sixth of that will do");
    crawl(&mut cluster, &reader, GIB / 8, 0);
    assert_eq!(cluster.counters().moved_on, 1);
}

#[test]
fn sources_that_are_as_slow_are_tried_once_each() {
    let (mut cluster, _) = holders(plain(), 4);
    let reader = reader(&mut cluster, "reader");
    let mut seen = vec![source(&cluster, &reader)];
    for _ in 0..6 {
        crawl(&mut cluster, &reader, 1_200, 0);
        seen.push(source(&cluster, &reader));
    }
    seen.dedup();
    assert_eq!((seen.len(), cluster.counters().moved_on), (4, 3), "{seen:?}");
}

#[test]
fn a_transfer_moves_a_few_times_and_not_once_more() {
    let moves = MOVES as usize;
    let (mut cluster, _) = holders(plain(), moves + 3);
    let reader = cluster.rollout("reader", 1);
    cluster.call_within(reader[0], replicate(Selector::Latest), Span::from_secs(600));
    let mut seen = BTreeSet::from([source(&cluster, &reader)]);
    for _ in 0..moves + 2 {
        crawl(&mut cluster, &reader, 1_200, 0);
        seen.insert(source(&cluster, &reader));
    }
    // Two were never tried, and stay free.
    assert_eq!((seen.len(), cluster.counters().moved_on), (moves + 1, moves as u64), "{seen:?}");
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
}

#[test]
fn it_goes_back_to_one_that_was_much_faster() {
    let (mut cluster, _) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    let first = source(&cluster, &reader);
    crawl(&mut cluster, &reader, 1 << 20, 0);
    assert_ne!(source(&cluster, &reader), first);
    crawl(&mut cluster, &reader, 1_200, 0);
    assert_eq!(source(&cluster, &reader), first);
    crawl(&mut cluster, &reader, 1 << 20, 0);
    assert_eq!((source(&cluster, &reader), cluster.counters().moved_on), (first, 2));
}

#[test]
fn two_do_not_take_one_place() {
    let (mut cluster, _) = holders(plain(), 3);
    let readers = [reader(&mut cluster, "r1"), reader(&mut cluster, "r2")];
    for reader in &readers {
        crawl(&mut cluster, reader, 1_200, 0);
    }
    let sources: Vec<String> = readers.iter().map(|reader| source(&cluster, reader)).collect();
    assert_ne!(sources[0], sources[1]);
    assert_eq!(cluster.edges().len(), 2);
}

#[test]
fn of_several_sources_the_slow_one_is_left() {
    let config = ServerConfig { stripes: 3, ..ServerConfig::default() };
    let (mut cluster, _) = holders(config, 4);
    let reader = reader(&mut cluster, "reader");
    assert_eq!(source(&cluster, &reader), "b+c+d", "without the trainer");
    crawl(&mut cluster, &reader, 1_200, 1);
    assert_eq!(source(&cluster, &reader), "b+d");
    assert!(cluster.clients[reader[0]].keep);
    crawl(&mut cluster, &reader, 1_200, 0);
    assert_eq!(source(&cluster, &reader), "d");
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
}

#[test]
fn the_next_update_begins_elsewhere() {
    let (mut cluster, holders) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    let slow = source(&cluster, &reader);
    crawl(&mut cluster, &reader, 1_200, 0);
    cluster.finish_reads(&reader);
    cluster.auto_read = true;
    cluster.call_all(&holders[0], |_| Call::Unpublish);
    cluster.publish(&holders[0], 2, 22);
    cluster.call_all(&holders[1], |_| update());
    cluster.auto_read = false;
    cluster.begin_all(&reader, |_| update());
    assert_ne!(source(&cluster, &reader), slow);
}

#[test]
fn a_word_of_an_earlier_assignment_or_of_nobody_is_void() {
    let (mut cluster, _) = holders(plain(), 3);
    let reader = reader(&mut cluster, "reader");
    let said = |cluster: &Cluster| {
        let log = &cluster.clients[reader[0]].log;
        log.iter().rev().find_map(|output| match output {
            Output::Send(message @ ClientMessage::Slow { .. }) => Some(message.clone()),
            _ => None,
        })
    };
    crawl(&mut cluster, &reader, 1_200, 0);
    let stale = said(&cluster).expect("it said so");
    let before = source(&cluster, &reader);
    cluster.tell(reader[0], stale.clone());
    let ClientMessage::Slow { seq, attempt, .. } = stale else { unreachable!() };
    let attempt = attempt.next().next();
    let wild = ClientMessage::Slow { seq, attempt, shard: u32::MAX, bytes_per_s: u64::MAX };
    cluster.tell(reader[0], wild);
    assert_eq!((source(&cluster, &reader), cluster.counters().moved_on), (before, 1));
}

#[test]
fn what_a_source_gave_last_is_what_counts() {
    const FIRST: u64 = 16 << 20;
    let (mut cluster, _) = holders(plain(), 2);
    let reader = reader(&mut cluster, "reader");
    let first = source(&cluster, &reader);
    // Each time it is far slower than the other one was.
    for (turn, bytes) in [FIRST, FIRST / 4, FIRST / 16].into_iter().enumerate() {
        crawl(&mut cluster, &reader, bytes, 0);
        assert_eq!(cluster.counters().moved_on, turn as u64 + 1);
    }
    // That was faster at first than this is, and slower in the end.
    let second = source(&cluster, &reader);
    assert_ne!(second, first);
    crawl(&mut cluster, &reader, FIRST / 4, 0);
    assert_eq!((source(&cluster, &reader), cluster.counters().moved_on), (second, 3));
}

#[test]
fn who_was_through_reads_on_with_the_others_at_the_next_source() {
    let (mut cluster, _) = holders(plain(), 2);
    let reader = cluster.rollout("reader", 2);
    cluster.begin_all(&reader, |_| replicate(Selector::Latest));
    cluster.finish_reads(&reader[..1]);
    crawl(&mut cluster, &reader[1..], 1_200, 0);
    assert_eq!(cluster.counters().moved_on, 1);
    cluster.finish_reads(&reader[1..]);
    assert_eq!(cluster.ended(reader[0]), 1, "its first shard was assigned another source");
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&reader), 11);
}

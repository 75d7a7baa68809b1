//! What is counted is counted once, and nothing else is.

use crate::cluster::*;
use weightcast_protocol::message::{Call, Open, Role};
use weightcast_protocol::server::Counters;
use weightcast_protocol::{Selector, Span};

#[test]
fn a_publish_a_read_and_a_staged_update_are_each_counted_once() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 3);
    let mut expected = Counters { terms: 1, ..Counters::default() };
    assert_eq!(cluster.counters(), expected);
    cluster.publish(&trainer, 1, 5);
    (expected.publishes, expected.seals) = (1, 1);
    assert_eq!(cluster.counters(), expected);
    cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    (expected.assignments, expected.commits) = (1, 1);
    assert_eq!(cluster.counters(), expected);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.publish(&trainer, 2, 6);
    (expected.publishes, expected.seals) = (2, 2);
    assert_eq!(cluster.counters(), expected);
    cluster.call_all(&rollout, |_| staged_update());
    (expected.assignments, expected.commits, expected.staged) = (2, 2, 1);
    assert_eq!(cluster.counters(), expected);
}

#[test]
fn a_crossing_and_a_relay_behind_it_are_each_counted_once() {
    let mut cluster = Cluster::new();
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 5);
    cluster.auto_read = false;
    let mut readers = Vec::new();
    for name in ["first", "second"] {
        let mut open = Open { ..open(name, 0, 1, Role::Rollout) };
        open.location.datacentre = "far".into();
        let reader = vec![cluster.start(open)];
        cluster.call_all(&reader, register);
        cluster.begin_all(&reader, |_| replicate(Selector::Latest));
        readers.push(reader);
    }
    let mut expected = Counters { terms: 1, publishes: 1, seals: 1, ..Counters::default() };
    (expected.assignments, expected.crossings, expected.relays) = (2, 1, 1);
    assert_eq!(cluster.counters(), expected);
    readers.iter().for_each(|reader| cluster.finish_reads(reader));
    expected.commits = 2;
    assert_eq!(cluster.counters(), expected);
}

#[test]
fn who_comes_over_is_counted_once_a_group() {
    let mut cluster = Cluster::with_servers(2);
    let trainer = cluster.trainer("trainer", 2);
    let rollout = cluster.rollout("rollout", 3);
    cluster.publish(&trainer, 1, 5);
    cluster.call_all(&rollout, |_| replicate(Selector::Latest));
    cluster.advance(Span::from_secs(1));
    cluster.crash(0);
    cluster.advance(Span::from_secs(20));
    let expected = Counters { terms: 1, recoveries: 2, seals: 2, ..Counters::default() };
    assert_eq!(cluster.backups[0].snapshot(cluster.now).counters, expected);
}

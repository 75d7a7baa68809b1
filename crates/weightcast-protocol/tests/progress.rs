//! How far readers are, as the server shows it: by what their shards tell in place of heartbeats.

use crate::cluster::*;
use weightcast_protocol::server::{ReadingSnapshot, ReplicaSnapshot, ReplicaState, Staleness};
use weightcast_protocol::{Selector, Span};

const SECOND: Span = Span::from_secs(1);

/// A trainer has published version 1; a rollout of two shards reads it, and its first shard has begun.
fn reading() -> (Cluster, Vec<usize>, Vec<usize>) {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    (cluster.auto_read, cluster.progress_every) = (false, Some(SECOND));
    let reader = cluster.rollout("reader", 2);
    cluster.begin_all(&reader, |_| replicate(Selector::Latest));
    cluster.clients[reader[0]].progress = Some((100, 900, 0));
    (cluster, trainer, reader)
}

fn shown(cluster: &Cluster, name: &str) -> ReplicaSnapshot {
    let snapshot = cluster.server.snapshot(cluster.now);
    let replicas = &snapshot.models["policy"].replicas;
    replicas.iter().find(|replica| replica.name == name).expect("it is open").clone()
}

fn read(cluster: &Cluster) -> Option<ReadingSnapshot> {
    shown(cluster, "reader").reading
}

#[test]
fn a_reader_is_shown_with_what_its_shards_tell() {
    let (mut cluster, _, reader) = reading();
    let registered: u64 = {
        let shards = shown(&cluster, "reader").shards;
        shards.iter().filter_map(|shard| shard.bytes).sum()
    };
    let untold = read(&cluster).expect("it reads");
    assert_eq!((untold.arrived, untold.total, untold.bytes_per_s), (0, registered, None));
    for (second, bytes) in [(1, 100), (2, 300), (3, 500)] {
        for client in &reader {
            cluster.clients[*client].progress = Some((bytes, 1_000 - bytes, 0));
        }
        cluster.advance(SECOND);
        let told = read(&cluster).expect("it reads");
        assert_eq!((told.arrived, told.total), (2 * bytes, 2_000), "{second}");
        assert_eq!(told.age, Some(Span::from_secs(second - 1)));
        let rate = (second > 1).then_some(400);
        assert_eq!(told.bytes_per_s, rate, "{second}");
        let left = (second > 1).then(|| SECOND.scaled(1_000 - bytes, 200));
        assert_eq!(told.remaining, left, "{second}");
    }
    cluster.finish_reads(&reader);
    let after = shown(&cluster, "reader");
    assert_eq!((after.reading, after.state), (None, ReplicaState::Sealed));
}

#[test]
fn a_reader_that_loses_its_source_is_shown_with_what_it_keeps() {
    let (mut cluster, trainer, _) = reading();
    cluster.advance(SECOND);
    assert_eq!(read(&cluster).map(|reading| reading.arrived), Some(100));
    cluster.kill(trainer[0]);
    cluster.advance(Span::from_secs(20));
    // No other source: the call ends, and so does the read.
    assert_eq!(read(&cluster), None);
}

#[test]
fn a_copy_is_stale_from_when_a_newer_version_is_listed() {
    let (mut cluster, trainer, reader) = reading();
    cluster.finish_reads(&reader);
    let staleness = |cluster: &Cluster| shown(cluster, "reader").staleness;
    assert_eq!(staleness(&cluster), Some(Staleness::default()));
    let mut since = Span(0);
    for (versions_behind, number) in [(1, 2), (2, 5), (3, 6)] {
        cluster.call_all(&trainer, |_| weightcast_protocol::message::Call::Unpublish);
        assert_eq!(shown(&cluster, "trainer").staleness, None, "it holds nothing");
        cluster.publish(&trainer, number, number);
        assert_eq!(staleness(&cluster), Some(Staleness { versions_behind, stale: since }));
        cluster.advance(SECOND);
        since = Span(since.0 + SECOND.0);
        assert_eq!(staleness(&cluster), Some(Staleness { versions_behind, stale: since }));
    }
}

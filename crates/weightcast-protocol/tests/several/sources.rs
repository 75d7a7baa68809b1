//! Who reads from whom, where several could.

use std::collections::BTreeSet;

use crate::cluster::*;
use weightcast_protocol::message::Call;
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{Selector, Span};

/// A window, in which a read that is measured moves.
const WINDOW: Span = Span::from_secs(2);

/// Replicas of this many shards hold version 1, and nobody else does. Reads end by hand.
fn holders(config: ServerConfig, names: &[&str], shards: u32) -> Cluster {
    let mut cluster = Cluster::with(config);
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", shards);
    cluster.publish(&trainer, 1, 11);
    for name in names {
        let holder = cluster.rollout(name, shards);
        cluster.call_all(&holder, |_| replicate(Selector::Latest));
    }
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    cluster
}

fn reader(cluster: &mut Cluster, name: &str, shards: u32) -> Vec<usize> {
    let reader = cluster.rollout(name, shards);
    cluster.begin_all(&reader, |_| replicate(Selector::Latest));
    reader
}

fn sources(cluster: &Cluster, reader: &str) -> BTreeSet<String> {
    cluster.edges().into_iter().filter(|(r, _)| r == reader).map(|(_, source)| source).collect()
}

fn one(name: &str) -> BTreeSet<String> {
    BTreeSet::from([name.to_owned()])
}

fn crawl(cluster: &mut Cluster, reader: usize) {
    for _ in 0..2 {
        let (had, _, _) = cluster.clients[reader].progress.unwrap_or((0, 0, 0));
        cluster.clients[reader].progress = Some((had + 1_000, 1 << 30, 0));
        cluster.advance(WINDOW);
    }
}

#[test]
fn nobody_leaves_a_slow_source_for_one_that_somebody_accuses() {
    for accused in [false, true] {
        let mut cluster = holders(ServerConfig::default(), &["a", "b"], 1);
        let slow = reader(&mut cluster, "slow", 1);
        assert_eq!(sources(&cluster, "slow"), one("a"));
        // Of another layout: it reads from holders only.
        let other = reader(&mut cluster, "other", 2);
        assert_eq!(sources(&cluster, "other"), one("b"));
        if accused {
            let b = cluster.clients.iter().position(|client| client.replica == "b").unwrap();
            cluster.clients[b].memory ^= 1;
            cluster.finish_reads(&other);
            cluster.clients[b].memory ^= 1;
            assert_eq!(cluster.counters().accusations, 1);
        } else {
            cluster.clients[other[0]].session.close(cluster.now, DEADLINE);
            cluster.run();
        }
        assert_eq!(sources(&cluster, "other"), BTreeSet::new());
        crawl(&mut cluster, slow[0]);
        let (source, moved) = if accused { ("a", 0) } else { ("b", 1) };
        assert_eq!((sources(&cluster, "slow"), cluster.counters().moved_on), (one(source), moved));
    }
}

#[test]
fn nobody_takes_several_sources_while_another_waits_for_one() {
    let config = ServerConfig { stripes: 4, ..ServerConfig::default() };
    let mut cluster = holders(config, &["a", "b"], 1);
    let counted = |cluster: &Cluster| (cluster.counters().striped, cluster.counters().unstriped);
    let (before, _) = counted(&cluster);
    // None of these can read from another.
    let first = reader(&mut cluster, "r1", 1);
    assert_eq!(sources(&cluster, "r1").len(), 2, "nobody else wants them");
    reader(&mut cluster, "r2", 2);
    assert_eq!((sources(&cluster, "r1").len(), sources(&cluster, "r2").len()), (1, 1));
    for (name, shards) in [("r3", 3), ("r4", 4)] {
        reader(&mut cluster, name, shards);
        assert_eq!(sources(&cluster, name).len(), 0, "it waits");
    }
    assert_eq!(counted(&cluster), (before + 1, 1));
    // Now there are two for two.
    cluster.finish_reads(&first);
    assert_eq!((sources(&cluster, "r3").len(), sources(&cluster, "r4").len()), (1, 1));
    assert_eq!(counted(&cluster), (before + 1, 1));
}

/// Where there may be one stripe only, a full house is waited for as it is.
#[test]
fn who_draws_from_one_source_has_it_taken_from_it_by_nobody() {
    let config = ServerConfig { stripes: 1, ..ServerConfig::default() };
    let mut cluster = holders(config, &["a"], 1);
    let first = reader(&mut cluster, "r1", 1);
    reader(&mut cluster, "r2", 2);
    assert_eq!((sources(&cluster, "r1"), sources(&cluster, "r2").len()), (one("a"), 0));
    assert_eq!((cluster.counters().assignments, cluster.counters().unstriped), (2, 0));
    cluster.finish_reads(&first);
    assert_eq!(sources(&cluster, "r2").len(), 1);
}

/// What is read beside the memory was wrong: those who read the old copy are none of that.
#[test]
fn who_reads_the_old_copy_goes_on_when_what_is_read_beside_it_is_wrong() {
    let mut cluster = Cluster::new();
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let holder = cluster.rollout("holder", 1);
    cluster.call_all(&holder, |_| update());
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    let late = reader(&mut cluster, "late", 1);
    assert_eq!(sources(&cluster, "late"), one("holder"));
    cluster.publish(&trainer, 2, 22);
    cluster.begin_all(&holder, |_| staged_update());
    assert_eq!(sources(&cluster, "holder"), one("trainer"));
    let before =
        cluster.clients[late[0]].host.reading.as_ref().map(|read| (read.seq, read.attempt));
    cluster.clients[trainer[0]].memory ^= 1;
    cluster.finish_reads(&holder);
    assert_eq!(cluster.counters().digest_mismatches, 1);
    let after = cluster.clients[late[0]].host.reading.as_ref().map(|read| (read.seq, read.attempt));
    assert_eq!(after, before, "it reads what it read");
    cluster.finish_reads(&late);
    assert_eq!(committed(&cluster.outcome(late[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&late), 11);
}

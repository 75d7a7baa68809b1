//! Several replicas that have nothing else to do are one reader's sources at once.

use std::collections::BTreeSet;

use crate::cluster::*;
use weightcast_protocol::message::{Call, ClientMessage, Location, Open, ReadFailure, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{CallError, Selector, Span};

fn several() -> ServerConfig {
    ServerConfig { stripes: 4, ..ServerConfig::default() }
}

/// Replicas `a`, `b`, `c` of two shards hold version 1, nobody else does. Reads end by hand.
fn idle(config: ServerConfig) -> (Cluster, Vec<Vec<usize>>) {
    let mut cluster = Cluster::with(config);
    cluster.relays = true;
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    let replicas: Vec<_> = ["a", "b", "c"].map(|name| cluster.rollout(name, 2)).into();
    for replica in &replicas {
        cluster.call_all(replica, |_| replicate(Selector::Latest));
    }
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    (cluster, replicas)
}

fn sources(cluster: &Cluster, reader: &str) -> BTreeSet<String> {
    cluster.edges().into_iter().filter(|(r, _)| r == reader).map(|(_, source)| source).collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// The reader's shards report that the shard at this place of the assignment failed.
fn fail(cluster: &mut Cluster, reader: usize, shard: u32) {
    let ReadOrder { seq, attempt, .. } =
        cluster.clients[reader].host.reading.take().expect("reads");
    let failure = ReadFailure::Source { shard, reason: "cut".into() };
    let now = cluster.now;
    cluster.clients[reader].session.handle_read(now, seq, attempt, Err(failure));
    cluster.run();
}

#[test]
fn idle_replicas_of_one_layout_are_sources_together() {
    let (mut cluster, _) = idle(several());
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    assert_eq!(sources(&cluster, "reader"), set(&["a", "b", "c"]));
    let ReadOrder { assignment, .. } =
        cluster.clients[reader[0]].host.reading.clone().expect("reads");
    assert_eq!((assignment.stripes(), assignment.shards.len()), (3, 6));
    assert!(!assignment.in_flight);
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&reader), 11);
    assert!(cluster.edges().is_empty());
}

/// As the ranks of DDP are.
#[test]
fn trainers_of_which_each_holds_all_are_sources_together() {
    let mut cluster = Cluster::with(several());
    cluster.relays = true;
    let trainers = ["t0", "t1", "t2"].map(|name| cluster.trainer(name, 2));
    for trainer in &trainers {
        cluster.publish(trainer, 1, 11);
    }
    cluster.auto_read = false;
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    assert_eq!(sources(&cluster, "reader"), set(&["t0", "t1", "t2"]));
    cluster.finish_reads(&reader);
    assert_eq!(cluster.content(&reader), 11);
}

/// The first of four trainers holds version 1, and a reader of so many shards draws from it.
fn reading(
    config: ServerConfig,
    shards: u32,
    relays: bool,
) -> (Cluster, Vec<Vec<usize>>, Vec<usize>) {
    let mut cluster = Cluster::with(config);
    cluster.relays = relays;
    let trainers = ["t0", "t1", "t2", "t3"].map(|name| cluster.trainer(name, 2));
    cluster.publish(&trainers[0], 1, 11);
    cluster.auto_read = false;
    let reader = cluster.rollout("reader", shards);
    cluster.begin_all(&reader, |_| replicate(Selector::Latest));
    assert_eq!(sources(&cluster, "reader"), set(&["t0"]));
    (cluster, trainers.into(), reader)
}

#[test]
fn who_publishes_a_moment_later_joins_a_read_that_runs() {
    let (mut cluster, trainers, reader) = reading(several(), 2, true);
    for (more, trainer) in trainers.iter().enumerate().skip(1) {
        cluster.publish(trainer, 1, 11);
        assert_eq!(sources(&cluster, "reader"), set(&["t0", "t1", "t2", "t3"][..=more]));
        assert!(reader.iter().all(|shard| cluster.clients[*shard].keep), "it goes on where it is");
    }
    assert_eq!((cluster.counters().joined, cluster.counters().read_failures), (3, 0));
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&reader), 11);
    assert!(cluster.edges().is_empty());
}

/// What is on its way, and lost, would be much of it.
#[test]
fn a_small_read_is_not_joined() {
    for (joins_from, joined) in [(8, 1), (9, 0)] {
        let config = ServerConfig { joins_from, ..several() };
        let (mut cluster, trainers, _) = reading(config, 2, true);
        cluster.publish(&trainers[1], 1, 11);
        assert_eq!(cluster.counters().joined, joined, "shards of 8 bytes, {joins_from}");
    }
}

#[test]
fn a_staged_read_is_joined_too() {
    let mut cluster = Cluster::with(several());
    cluster.relays = true;
    let trainers = ["t0", "t1"].map(|name| cluster.trainer(name, 2));
    cluster.publish(&trainers[0], 1, 11);
    let reader = cluster.rollout("reader", 1);
    cluster.call_all(&reader, |_| replicate(Selector::Latest));
    cluster.call_all(&trainers[0], |_| Call::Unpublish);
    cluster.publish(&trainers[0], 2, 22);
    cluster.auto_read = false;
    cluster.call(reader[0], staged_update());
    cluster.publish(&trainers[1], 2, 22);
    assert_eq!(sources(&cluster, "reader"), set(&["t0", "t1"]));
    cluster.finish_reads(&reader);
    cluster.finish_installs(&reader);
    assert_eq!((cluster.content(&reader), cluster.counters().joined), (22, 1));
}

/// The read ends sooner as it is.
#[test]
fn a_read_that_would_lose_by_it_is_not_joined() {
    let told = |cluster: &mut Cluster, reader: &[usize], arrived| {
        let ReadOrder { seq, attempt, .. } =
            cluster.clients[reader[0]].host.reading.clone().expect("reads");
        cluster.tell(
            reader[0],
            ClientMessage::Progress { sent_at: 0, seq, attempt, arrived, total: 100 },
        );
    };
    type Happens<'a> = &'a dyn Fn(&mut Cluster, &[usize]);
    let cases: [(&str, bool, Happens<'_>); 6] = [
        ("nothing has happened", true, &|_, _| {}),
        ("it has just begun", true, &|cluster, reader| told(cluster, reader, 49)),
        ("half of it is there", false, &|cluster, reader| told(cluster, reader, 50)),
        ("a shard has read everything", false, &|cluster, reader| {
            cluster.finish_read(reader[1]);
            cluster.run();
        }),
        ("a source has failed", false, &|cluster, reader| fail(cluster, reader[0], 0)),
        ("another is behind", false, &|cluster, _| {
            cluster.rollout("behind", 3);
        }),
    ];
    for (what, joined, happens) in cases {
        let (mut cluster, trainers, reader) = reading(several(), 2, true);
        happens(&mut cluster, &reader);
        cluster.publish(&trainers[1], 1, 11);
        assert_eq!(cluster.counters().joined, u64::from(joined), "{what}");
        assert_eq!(sources(&cluster, "reader").len(), 1 + usize::from(joined), "{what}");
    }
    // Without relays a read begins anew.
    let (mut cluster, trainers, _) = reading(several(), 2, false);
    cluster.publish(&trainers[1], 1, 11);
    assert_eq!(cluster.counters().joined, 0);
}

#[test]
fn the_reader_with_the_fewest_sources_is_joined() {
    let (mut cluster, trainers, _) = reading(ServerConfig { fanout: 1, ..several() }, 1, true);
    cluster.publish(&trainers[1], 1, 11);
    // It finds both trainers busy, so one is taken back.
    begin(&mut cluster, &[("other", 3)]);
    cluster.publish(&trainers[2], 1, 11);
    let each = |cluster: &Cluster| ["reader", "other"].map(|name| sources(cluster, name).len());
    assert_eq!(each(&cluster).iter().sum::<usize>(), 3);
    cluster.publish(&trainers[3], 1, 11);
    assert_eq!(each(&cluster), [2, 2]);
}

#[test]
fn a_trainers_link_is_spared_where_a_rollout_has_the_version() {
    for rollouts in 0..3 {
        let mut cluster = Cluster::with(several());
        cluster.relays = true;
        let trainers = ["a0", "a1"].map(|name| cluster.trainer(name, 2));
        for trainer in &trainers {
            cluster.publish(trainer, 1, 11);
        }
        let names = &["b", "c"][..rollouts];
        for name in names {
            let rollout = cluster.rollout(name, 2);
            cluster.call_all(&rollout, |_| replicate(Selector::Latest));
        }
        cluster.auto_read = false;
        let reader = cluster.rollout("reader", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        let expected = if rollouts == 0 { set(&["a0", "a1"]) } else { set(names) };
        assert_eq!(sources(&cluster, "reader"), expected, "{rollouts} rollouts");
    }
}

#[test]
fn readers_that_are_behind_share_the_replicas() {
    // By how many other rollouts are behind, of which none can read from the reader.
    for (behind, share) in [(0, 3), (1, 1), (2, 1)] {
        let (mut cluster, _) = idle(several());
        for shards in 0..behind {
            cluster.rollout(&format!("behind{shards}"), 3 + shards);
        }
        let reader = cluster.rollout("reader", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        assert_eq!(sources(&cluster, "reader").len(), share, "{behind} behind");
    }
    let (mut cluster, _) = idle(several());
    cluster.auto_read = true;
    let fourth = cluster.rollout("d", 2);
    cluster.call_all(&fourth, |_| replicate(Selector::Latest));
    cluster.auto_read = false;
    let [first, second] = [("first", 1), ("second", 3)].map(|(name, n)| cluster.rollout(name, n));
    cluster.begin_all(&first, |_| replicate(Selector::Latest));
    // Who reads is not behind any more, and takes none of the others' share.
    cluster.begin_all(&second, |_| replicate(Selector::Latest));
    let each = ["first", "second"].map(|name| sources(&cluster, name));
    assert!(each.iter().all(|sources| sources.len() == 2), "{each:?}");
    let all: BTreeSet<_> = each.into_iter().flatten().collect();
    assert_eq!(all, set(&["a", "b", "c", "d"]));
}

#[test]
fn no_more_than_configured() {
    for (stripes, count) in [(0, 1), (1, 1), (2, 2), (64, 3)] {
        let (mut cluster, _) = idle(ServerConfig { stripes, ..ServerConfig::default() });
        let reader = cluster.rollout("reader", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        assert_eq!(sources(&cluster, "reader").len(), count);
    }
}

#[test]
fn no_more_than_one_assignment_has_room_for() {
    for (source_shards, sources_most, count) in
        [(1, 64, 1), (3, 64, 1), (4, 64, 2), (5, 64, 2), (6, 64, 3), (64, 2, 2), (64, 1, 1)]
    {
        let mut config = several();
        config.limits.source_shards = source_shards;
        config.limits.sources = sources_most;
        let (mut cluster, _) = idle(config);
        let reader = cluster.rollout("reader", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        let found = sources(&cluster, "reader").len();
        assert_eq!(found, count, "{source_shards} shards, {sources_most} sources");
    }
}

#[test]
fn other_layouts_and_far_replicas_are_left_out() {
    let (mut cluster, _) = idle(several());
    cluster.auto_read = true;
    let wide = cluster.rollout("wide", 4);
    cluster.call_all(&wide, |_| replicate(Selector::Latest));
    let far = Location { datacentre: "far".into(), ..Location::default() };
    let far = vec![cluster.start(Open { location: far, ..open("far", 0, 1, Role::Rollout) })];
    cluster.call_all(&far, register);
    cluster.call_all(&far, |_| replicate(Selector::Latest));
    cluster.auto_read = false;
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    assert_eq!(sources(&cluster, "reader"), set(&["a", "b", "c"]));
}

/// Begins to read in replicas that can't read from each other: their layouts differ.
fn begin(cluster: &mut Cluster, readers: &[(&str, u32)]) -> Vec<Vec<usize>> {
    let groups = readers.iter().map(|(name, shards)| {
        let group = cluster.rollout(name, *shards);
        cluster.begin_all(&group, |_| replicate(Selector::Latest));
        group
    });
    groups.collect()
}

#[test]
fn nobody_keeps_what_another_waits_for() {
    let (mut cluster, _) = idle(several());
    let names = ["r1", "r3", "r4"];
    let readers = begin(&mut cluster, &[("r1", 1), ("r3", 3), ("r4", 4)]);
    // The first one had all three, the second then two of them, and gave one up for the third.
    let each = names.map(|name| sources(&cluster, name));
    assert!(each.iter().all(|sources| sources.len() == 1), "{each:?}");
    assert_eq!(each.into_iter().flatten().collect::<BTreeSet<_>>(), set(&["a", "b", "c"]));
    assert!(cluster.clients[readers[0][0]].keep, "it goes on where it was");
    assert_eq!(cluster.counters().unstriped, 2);
    for (reader, name) in readers.iter().zip(names) {
        cluster.finish_reads(reader);
        assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1), "{name}");
    }
}

#[test]
fn who_can_read_from_the_reader_itself_leaves_it_its_sources() {
    let (mut cluster, _) = idle(several());
    begin(&mut cluster, &[("r1", 1), ("r2", 1)]);
    assert_eq!(sources(&cluster, "r1"), set(&["a", "b", "c"]));
    assert_eq!(sources(&cluster, "r2"), set(&["r1"]));
}

#[test]
fn one_that_fails_is_left_and_what_was_read_is_kept() {
    let (mut cluster, _) = idle(several());
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    // The fourth shard of the assignment is the second of `b`.
    fail(&mut cluster, reader[0], 3);
    let left = sources(&cluster, "reader");
    assert!(left.len() == 1 && !left.contains("b"), "{left:?}");
    assert!(cluster.clients[reader[0]].keep);
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
}

#[test]
fn a_shard_that_names_none_of_them_is_heard_too() {
    let (mut cluster, _) = idle(several());
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    fail(&mut cluster, reader[0], u32::MAX);
    assert_eq!(sources(&cluster, "reader").len(), 1);
}

#[test]
fn each_of_them_has_to_stand_at_the_commit() {
    for dead in 0..3 {
        let (mut cluster, replicas) = idle(several());
        let reader = cluster.rollout("reader", 2);
        cluster.begin_all(&reader, |_| replicate(Selector::Latest));
        cluster.finish_read(reader[0]);
        cluster.run();
        cluster.kill(replicas[dead][1]);
        cluster.advance(Span::from_secs(10));
        // What both had read is void as a report, and is made again of the others.
        assert_eq!(sources(&cluster, "reader").len(), 1);
        assert!(reader.iter().all(|client| cluster.clients[*client].keep));
        cluster.finish_reads(&reader);
        for client in &reader {
            assert_eq!(committed(&cluster.outcome(*client).unwrap()), Some(1), "{dead}");
        }
    }
}

#[test]
fn each_of_them_is_drained() {
    for (at, name) in ["a", "b", "c"].into_iter().enumerate() {
        let (mut cluster, replicas) = idle(several());
        let reader = cluster.rollout("reader", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        let ended = cluster.ended(replicas[at][0]);
        cluster.begin_all(&replicas[at], |_| Call::Unpublish);
        assert_eq!(cluster.ended(replicas[at][0]), ended, "{name} is being read");
        cluster.finish_reads(&reader);
        assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
        assert_eq!(cluster.ended(replicas[at][0]), ended + 1);
    }
}

#[test]
fn wrong_bytes_of_several_accuse_none_and_are_read_again_from_one() {
    let (mut cluster, replicas) = idle(several());
    cluster.fill(&replicas[1], 12);
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    // The test's reader takes the first of them.
    cluster.fill(&replicas[0], 12);
    cluster.finish_reads(&reader);
    assert_eq!(cluster.counters().accusations, 0);
    assert_eq!(sources(&cluster, "reader").len(), 1);
    assert!(!cluster.clients[reader[0]].keep, "what was read is void");
    // The one that is right is found in the end.
    for _ in 0..10 {
        cluster.finish_reads(&reader);
    }
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(1));
    assert_eq!(cluster.content(&reader), 11);
}

#[test]
fn an_error_about_several_names_them_all() {
    let (mut cluster, replicas) = idle(several());
    cluster.fill(&replicas[0], 12);
    let reader = cluster.rollout("reader", 1);
    cluster.call(reader[0], replicate(Selector::Latest));
    // They are left while they are read: nobody is there to try next.
    for replica in &replicas {
        cluster.begin_all(replica, |_| Call::Unpublish);
    }
    cluster.finish_reads(&reader);
    let Some(Err(CallError::DigestMismatch { source_replica, .. })) = cluster.outcome(reader[0])
    else {
        panic!("{:?}", cluster.outcome(reader[0]))
    };
    assert_eq!(source_replica, "a, b, c");
}

#[test]
fn a_staged_update_draws_from_several_too() {
    let (mut cluster, replicas) = idle(several());
    let trainer = cluster.trainer("other", 2);
    let reader = cluster.rollout("reader", 1);
    cluster.auto_read = true;
    cluster.call_all(&reader, |_| replicate(Selector::Latest));
    cluster.publish(&trainer, 2, 22);
    for replica in &replicas {
        cluster.call_all(replica, |_| update());
    }
    cluster.auto_read = false;
    cluster.call(reader[0], staged_update());
    assert_eq!(sources(&cluster, "reader").len(), 3);
    cluster.finish_reads(&reader);
    assert_eq!(committed(&cluster.outcome(reader[0]).unwrap()), Some(2));
    assert!(!matches!(cluster.outcome(reader[0]), Some(Err(CallError::SourceLost { .. }))));
}

#[test]
fn a_copy_that_is_shown_again_and_given_up_at_once_keeps_its_offload() {
    let mut cluster = Cluster::with(ServerConfig {
        fanout: 1,
        stripes: 2,
        drain_deadline: Span::from_secs(60),
        offload_deadline: Span::from_secs(60),
        ..ServerConfig::default()
    });
    let trainer = cluster.retaining("trainer", 1, 2);
    cluster.publish(&trainer, 1, 5);
    let [owner, other] = ["owner", "other"].map(|name| cluster.rollout(name, 1));
    cluster.call_all(&owner, |_| update());
    cluster.unpublish(&trainer);
    cluster.publish(&trainer, 2, 6);
    // The owner's copy of version 1 is the last one. It is made aside, and still being read.
    cluster.auto_read = false;
    cluster.begin_all(&other, |_| replicate(Selector::Exact(1)));
    cluster.begin_all(&owner, |_| update());
    assert_eq!(sources(&cluster, "owner"), set(&["trainer"]));
    assert_eq!(cluster.holders(1), ["owner~offload-4294967296.1"]);
    // Two more sources of version 2, of which one reader draws.
    for name in ["a", "b"] {
        let group = cluster.trainer(name, 1);
        cluster.publish(&group, 2, 6);
    }
    let reader = cluster.rollout("reader", 1);
    cluster.begin_all(&reader, |_| replicate(Selector::Exact(2)));
    assert_eq!(sources(&cluster, "reader"), set(&["a", "b"]));
    // The owner loses its source, so it keeps its copy; it is given one of those two, and does not.
    cluster.kill(trainer[0]);
    cluster.advance(Span::from_secs(20));
    assert_eq!(sources(&cluster, "owner"), set(&["b"]));
    assert_eq!(cluster.counters().offloads_released, 0);
    assert_eq!(cluster.holders(1), ["owner~offload-4294967296.1"]);
    cluster.finish_reads(&other);
    cluster.finish_reads(&owner);
    assert_eq!(committed(&cluster.outcome(owner[0]).expect("ended")), Some(2));
    assert_eq!(cluster.counters().offloads, 1);
}

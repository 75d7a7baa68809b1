//! Replicas that are read while they are being filled, datacentres, and what readers may say.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, ClientMessage, Role};
use weightcast_protocol::server::{ReplicaState, ServerConfig};
use weightcast_protocol::{CallError, ContentDigest, Generation, Selector, Span};

/// Reads end by hand, and sessions serve what they are being filled with.
fn relays(config: ServerConfig) -> Cluster {
    let mut cluster = Cluster::with(config);
    (cluster.relays, cluster.auto_read) = (true, false);
    cluster
}

fn edge(reader: &str, source: &str) -> (String, String) {
    (reader.to_owned(), source.to_owned())
}

/// A trainer with version 1 and, hanging on it, a chain of so many rollouts that read it.
fn chain(cluster: &mut Cluster, names: &[&str]) -> (Vec<usize>, Vec<Vec<usize>>) {
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    let rollouts: Vec<_> = names.iter().map(|name| cluster.rollout(name, 1)).collect();
    for rollout in &rollouts {
        cluster.call(rollout[0], replicate(Selector::Latest));
    }
    (trainer, rollouts)
}

fn all_committed(cluster: &Cluster, groups: &[Vec<usize>]) -> bool {
    let committed = |client: &usize| cluster.outcome(*client).as_ref().and_then(committed);
    groups.concat().iter().all(|client| committed(client) == Some(1))
}

fn place(cluster: &mut Cluster, name: &str, shards: u32, role: Role, at: &str) -> Vec<usize> {
    let start = |cluster: &mut Cluster, shard| {
        let mut open = open(name, shard, shards, role);
        open.location.datacentre = at.into();
        cluster.start(open)
    };
    let group: Vec<usize> = (0..shards).map(|shard| start(cluster, shard)).collect();
    cluster.call_all(&group, register);
    group
}

/// The place of a reader that died is free as soon as its stream has broken; its lease may run for long.
#[test]
fn the_place_of_a_reader_that_died_is_free_at_once() {
    let config = ServerConfig { lease: Span::from_secs(3600), ..Default::default() };
    let mut cluster = relays(config.clone());
    let (_, rollouts) = chain(&mut cluster, &["a", "b"]);
    cluster.kill(rollouts[0][0]);
    cluster.fail_read(rollouts[1][0]);
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "trainer")]);
    // The same for one that waits.
    let mut cluster = relays(config);
    cluster.relays = false;
    let (_, rollouts) = chain(&mut cluster, &["a", "b"]);
    assert_eq!(cluster.edges(), [edge("a", "trainer")]);
    cluster.kill(rollouts[0][0]);
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "trainer")]);
}

/// A reader whose stream broke and came back reads on, and whoever has its place does too.
#[test]
fn a_reader_that_comes_back_keeps_its_source() {
    let mut cluster = relays(ServerConfig::default());
    cluster.relays = false;
    let (_, rollouts) = chain(&mut cluster, &["a", "b", "c"]);
    cluster.break_stream(rollouts[0][0]);
    cluster.advance(Span::from_secs(1));
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "trainer")], "and no third");
    for rollout in &rollouts {
        cluster.finish_reads(rollout);
    }
    assert!(all_committed(&cluster, &rollouts));
}

#[test]
fn a_chain_of_four_commits_from_its_source_down() {
    let mut cluster = relays(ServerConfig::default());
    let (_, chain) = chain(&mut cluster, &["a", "b", "c", "d"]);
    let edges = [edge("a", "trainer"), edge("b", "a"), edge("c", "b"), edge("d", "c")];
    assert_eq!(cluster.edges(), edges);
    for group in chain.iter().rev() {
        assert!(chain.iter().all(|other| cluster.ended(other[0]) == 1));
        // What it reads is there, although its source has not been told so.
        chain.iter().for_each(|other| cluster.fill(other, 11));
        cluster.finish_reads(group);
    }
    assert!(all_committed(&cluster, &chain));
    assert_eq!(cluster.edges(), []);
    assert_eq!(cluster.counters().relays, 3);
}

#[test]
fn who_loses_a_source_goes_on_at_another_with_what_it_has() {
    let mut cluster = relays(ServerConfig::default());
    let (_, chain) = chain(&mut cluster, &["a", "b", "c", "d"]);
    let c = chain[2][0];
    let generation = cluster.clients[c].session.generation();
    cluster.kill(chain[1][0]);
    cluster.advance(Span::from_secs(6));
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("c", "a"), edge("d", "c")]);
    assert!(cluster.clients[c].keep);
    assert_eq!(cluster.clients[c].session.generation(), generation);
    assert_eq!(cluster.clients[c].host.serves(), Some(generation));
    // Who reads from it notices nothing.
    let reads = |o: &&weightcast_protocol::session::Output| format!("{o:?}").starts_with("Read ");
    assert_eq!(cluster.clients[chain[3][0]].log.iter().filter(reads).count(), 1);
    for group in [0, 2, 3] {
        cluster.finish_reads(&chain[group]);
    }
    assert!(all_committed(&cluster, &[chain[0].clone(), chain[2].clone(), chain[3].clone()]));
    assert_eq!(cluster.counters().resumes, 1);
}

#[test]
fn a_source_proved_bad_takes_all_below_it_along() {
    let mut cluster = relays(ServerConfig::default());
    let (trainer, chain) = chain(&mut cluster, &["a", "b", "c"]);
    let mirror = cluster.trainer("mirror", 1);
    cluster.publish(&mirror, 1, 11);
    let generations = |cluster: &Cluster| -> Vec<u64> {
        chain.iter().map(|group| cluster.clients[group[0]].session.generation().0).collect()
    };
    let before = generations(&cluster);
    cluster.clients[trainer[0]].memory ^= 1 << 40;
    cluster.finish_reads(&chain[0]);
    cluster.clients[trainer[0]].memory ^= 1 << 40;
    // Each has fenced what it had, and reads all of it again, from whom it may be.
    let after = generations(&cluster);
    assert!(before.iter().zip(&after).all(|(before, after)| before < after), "{after:?}");
    assert!(chain.iter().all(|group| !cluster.clients[group[0]].keep));
    for _ in 0..3 {
        chain.iter().for_each(|group| cluster.finish_reads(group));
    }
    assert!(all_committed(&cluster, &chain));
    assert!(chain.iter().all(|group| cluster.content(group) == 11));
}

#[test]
fn a_publisher_whose_seal_is_refused_spoils_its_chain() {
    let mut cluster = relays(ServerConfig::default());
    cluster.auto_seal = false;
    let (trainer, chain) = chain(&mut cluster, &["a", "b"]);
    let other = cluster.trainer("other", 1);
    cluster.publish(&other, 1, 22);
    cluster.finish_seals(&other);
    let before = cluster.clients[chain[1][0]].session.generation();
    cluster.finish_seals(&trainer);
    assert_eq!(cluster.state("trainer"), ReplicaState::Fenced);
    assert!(cluster.clients[chain[1][0]].session.generation() > before);
    chain.iter().for_each(|group| cluster.finish_reads(group));
    assert!(chain.iter().all(|group| cluster.content(group) == 22));
}

#[test]
fn a_call_that_ends_without_its_version_lets_its_readers_go_on() {
    let mut cluster = relays(ServerConfig::default());
    let (_, mut chain) = chain(&mut cluster, &["a"]);
    let b = cluster.rollout("b", 1);
    cluster.call(b[0], replicate(Selector::Latest));
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "a")]);
    let a = chain.remove(0)[0];
    cluster.clients[a].session.close(cluster.now, Span::from_secs(1));
    cluster.run();
    assert_eq!(cluster.edges(), [edge("b", "trainer")]);
    assert!(cluster.clients[b[0]].keep);
}

#[test]
fn a_replica_of_another_layout_waits_for_the_commit() {
    let mut cluster = relays(ServerConfig::default());
    let (_, chain) = chain(&mut cluster, &["a"]);
    let wide = cluster.rollout("wide", 2);
    cluster.begin_all(&wide, |_| replicate(Selector::Latest));
    assert_eq!(cluster.edges(), [edge("a", "trainer")]);
    cluster.finish_reads(&chain[0]);
    assert_eq!(cluster.edges(), [edge("wide", "a")]);
}

#[test]
fn no_chain_is_longer_than_it_may_be() {
    let mut cluster = relays(ServerConfig { depth_limit: 2, ..Default::default() });
    let (_, chain) = chain(&mut cluster, &["a", "b", "c"]);
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "a")]);
    cluster.finish_reads(&chain[0]);
    assert_eq!(cluster.edges(), [edge("b", "a"), edge("c", "trainer")]);
}

#[test]
fn a_version_crosses_once_to_each_datacentre() {
    let mut cluster = relays(ServerConfig { fanout: 8, ..Default::default() });
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let near = place(&mut cluster, "near", 1, Role::Rollout, "us");
    let names = [("x", 1), ("y", 1), ("wide", 2)];
    let remote = names.map(|(name, shards)| place(&mut cluster, name, shards, Role::Rollout, "eu"));
    for group in remote.iter().chain([&near]) {
        cluster.begin_all(group, |_| replicate(Selector::Latest));
    }
    let expected = [edge("near", "trainer"), edge("x", "trainer"), edge("y", "x")];
    assert_eq!(cluster.edges(), expected);
    cluster.finish_reads(&remote[0]);
    cluster.finish_reads(&remote[1]);
    assert_eq!(cluster.edges(), [edge("near", "trainer"), edge("wide", "x")]);
    assert_eq!(cluster.counters().crossings, 1);
}

#[test]
fn a_crossing_does_not_take_the_place_of_a_reader_nearby() {
    let mut cluster = relays(ServerConfig::default());
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let places = [("x", "eu"), ("y", "asia"), ("near", "us"), ("wide", "us")];
    for (name, at) in places {
        let shards = if name == "wide" { 2 } else { 1 };
        let group = place(&mut cluster, name, shards, Role::Rollout, at);
        cluster.begin_all(&group, |_| replicate(Selector::Latest));
    }
    // Of each kind it has one; `wide` has another layout than `near`, and waits.
    let edges = [edge("x", "trainer"), edge("y", "x"), edge("near", "trainer")];
    assert_eq!(cluster.edges(), edges);
}

#[test]
fn who_fails_nearby_is_tried_again_and_then_left_for_one_far_away() {
    let mut cluster = relays(ServerConfig::default());
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let [x, y] = ["x", "y"].map(|n| place(&mut cluster, n, 1, Role::Rollout, "eu"));
    cluster.call(x[0], replicate(Selector::Latest));
    cluster.finish_reads(&x);
    cluster.call(y[0], replicate(Selector::Latest));
    for _ in 0..3 {
        assert_eq!(cluster.edges(), [edge("y", "x")]);
        cluster.fail_read(y[0]);
    }
    assert_eq!(cluster.edges(), [edge("y", "trainer")]);
}

#[test]
fn another_seed_is_elected_when_the_first_dies() {
    let mut cluster = relays(ServerConfig { fanout: 8, ..Default::default() });
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let [x, y, z] = ["x", "y", "z"].map(|n| place(&mut cluster, n, 1, Role::Rollout, "eu"));
    for group in [&x, &y, &z] {
        cluster.call(group[0], replicate(Selector::Latest));
    }
    cluster.kill(x[0]);
    cluster.advance(Span::from_secs(6));
    let edges = cluster.edges();
    let crossing = edges.iter().filter(|(_, source)| source == "trainer").count();
    assert_eq!((edges.len(), crossing), (2, 1), "{edges:?}");
}

#[test]
fn an_update_does_not_wait_for_a_seed_and_all_shards_hear_the_same() {
    let mut cluster = relays(ServerConfig { fanout: 8, ..Default::default() });
    let trainers = ["t1", "t2"].map(|name| place(&mut cluster, name, 1, Role::Trainer, "us"));
    let x = place(&mut cluster, "x", 1, Role::Rollout, "eu");
    let y = place(&mut cluster, "y", 2, Role::Rollout, "eu");
    cluster.publish(&trainers[0], 1, 11);
    cluster.auto_read = true;
    cluster.call_all(&x, |_| update());
    cluster.call_all(&y, |_| update());
    cluster.auto_read = false;
    cluster.publish(&trainers[1], 2, 22);
    cluster.call(y[0], update());
    cluster.call(x[0], update()); // all its shards are there: it becomes the seed
    cluster.call(y[1], update());
    let unchanged = Some(Ok(Answer::Unchanged { held: Some(version(0, 1)) }));
    assert!(y.iter().all(|client| cluster.outcome(*client) == unchanged));
    assert_eq!(cluster.state("y"), ReplicaState::Sealed);
    cluster.finish_reads(&x);
    cluster.begin_all(&y, |_| update());
    assert_eq!(cluster.edges(), [edge("y", "x")]);
    assert_eq!(cluster.counters().skips, 1);
}

#[test]
fn two_accusers_fence_a_copy_and_one_does_not() {
    let mut cluster = relays(ServerConfig::default());
    let (bad, good) = (cluster.trainer("bad", 1), cluster.trainer("good", 1));
    // Of different layouts, so that the second does not read from the first.
    let readers = [("r", 1), ("s", 2)].map(|(name, shards)| cluster.rollout(name, shards));
    cluster.publish(&bad, 1, 11);
    cluster.publish(&good, 1, 11);
    cluster.clients[bad[0]].memory ^= 1 << 40;
    for (reader, state) in readers.iter().zip([ReplicaState::Sealed, ReplicaState::Fenced]) {
        cluster.begin_all(reader, |_| replicate(Selector::Latest));
        assert!(cluster.edges().iter().any(|(_, source)| source == "bad"));
        cluster.finish_reads(reader);
        assert_eq!(cluster.state("bad"), state);
    }
    let outcome = cluster.call_all(&bad, |_| Call::List).pop();
    assert!(matches!(outcome, Some(Err(CallError::ContentMismatch { .. }))), "{outcome:?}");
    assert_eq!(cluster.counters().accusations, 2);
}

#[test]
fn the_last_copy_of_a_version_is_not_fenced_on_readers_words() {
    let mut cluster = relays(ServerConfig::default());
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 11);
    cluster.clients[trainer[0]].memory ^= 1 << 40;
    for name in ["r", "s", "t"] {
        let reader = cluster.rollout(name, 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        cluster.finish_reads(&reader);
        assert!(matches!(cluster.outcome(reader[0]), Some(Err(CallError::DigestMismatch { .. }))));
    }
    assert_eq!(cluster.state("trainer"), ReplicaState::Sealed);
}

#[test]
fn a_replica_accuses_once_however_often_it_is_opened() {
    let mut cluster = relays(ServerConfig::default());
    let (bad, good) = (cluster.trainer("bad", 1), cluster.trainer("good", 1));
    cluster.publish(&bad, 1, 11);
    cluster.publish(&good, 1, 11);
    cluster.clients[bad[0]].memory ^= 1 << 40;
    for _ in 0..3 {
        let reader = cluster.rollout("liar", 1);
        let blocker = cluster.rollout("blocker", 1);
        cluster.call(reader[0], replicate(Selector::Latest));
        cluster.call(blocker[0], replicate(Selector::Latest));
        cluster.finish_reads(&reader);
        for client in [reader[0], blocker[0]] {
            cluster.clients[client].session.close(cluster.now, Span::from_secs(1));
            cluster.run();
        }
    }
    assert_eq!(cluster.state("bad"), ReplicaState::Sealed);
}

#[test]
fn layouts_are_compared_shard_by_shard() {
    let mut cluster = relays(ServerConfig::default());
    let (_, _chain) = chain(&mut cluster, &["a"]);
    let odd = cluster.start(open("odd", 0, 1, Role::Rollout));
    let layout = ContentDigest([9; 16]);
    let export = weightcast_protocol::ExportId(1);
    cluster.call_all(&[odd], |_| Call::Register { layout, export, bytes: 8 });
    cluster.call(odd, replicate(Selector::Latest));
    assert_eq!(cluster.edges(), [edge("a", "trainer")]);
}

#[test]
fn a_relay_that_changed_its_source_meanwhile_is_one_all_the_same() {
    let mut cluster = Cluster::with(ServerConfig { fanout: 1, ..ServerConfig::default() });
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 11);
    let holder = cluster.rollout("holder", 2);
    cluster.call_all(&holder, |_| replicate(Selector::Latest));
    cluster.auto_read = false;
    let relay = cluster.rollout("relay", 2);
    cluster.begin_all(&relay, |_| replicate(Selector::Latest));
    let ReadOrder { seq, attempt: since, .. } =
        cluster.clients[relay[0]].host.reading.clone().expect("it reads");
    let serves = |generation| ClientMessage::Filling { seq, since, generation };
    cluster.tell(relay[0], serves(Generation(1)));
    // The second shard is slow to say so: by then both read elsewhere, and go on with what they have.
    let source = cluster.edges()[0].1.clone();
    let (lost, left) =
        if source == "trainer" { (&trainer, "holder") } else { (&holder, "trainer") };
    lost.iter().for_each(|client| cluster.kill(*client));
    cluster.advance(Span::from_secs(6));
    assert_eq!(cluster.edges(), [edge("relay", left)]);
    cluster.tell(relay[1], serves(Generation(1)));
    let behind = cluster.rollout("behind", 2);
    cluster.begin_all(&behind, |_| replicate(Selector::Latest));
    assert_eq!(cluster.edges(), [edge("relay", left), edge("behind", "relay")]);
}

#[test]
fn who_finds_no_source_in_one_datacentre_does_not_stand_for_those_in_another() {
    let mut cluster = Cluster::with(ServerConfig { fanout: 1, ..ServerConfig::default() });
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let near = place(&mut cluster, "near", 1, Role::Rollout, "eu");
    cluster.call_all(&near, |_| replicate(Selector::Latest));
    cluster.auto_read = false;
    let mut waits = |name, at| {
        let group = place(&mut cluster, name, 1, Role::Rollout, at);
        cluster.begin_all(&group, |_| replicate(Selector::Latest));
        group
    };
    let [_, last, ..] =
        [("a", "us"), ("b", "eu"), ("c", "us"), ("d", "eu")].map(|(n, at)| waits(n, at));
    assert_eq!(cluster.edges(), [edge("a", "trainer"), edge("b", "near")]);
    cluster.finish_reads(&last);
    let reads = |reader: &str| cluster.edges().iter().any(|(name, _)| name == reader);
    assert_eq!((reads("c"), reads("d")), (false, true), "{:?}", cluster.edges());
}

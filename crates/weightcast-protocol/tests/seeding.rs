//! Offload seeding: an update does not wait for a crossing, and the version crosses once (O1 to O3).

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Open, Role};
use weightcast_protocol::server::{ReplicaState, ServerConfig};
use weightcast_protocol::session::Output;
use weightcast_protocol::{CallError, Selector, Span};

/// Reads end by hand; sessions serve what they are being filled with.
fn cluster(config: ServerConfig) -> Cluster {
    let mut cluster = Cluster::with(ServerConfig { fanout: 8, ..config });
    (cluster.relays, cluster.auto_read) = (true, false);
    cluster
}

fn place(cluster: &mut Cluster, name: &str, shards: u32, at: &str, seeding: bool) -> Vec<usize> {
    let role = if name.starts_with("trainer") { Role::Trainer } else { Role::Rollout };
    let start = |cluster: &mut Cluster, shard| {
        let mut open = Open { offload_seeding: seeding, ..open(name, shard, shards, role) };
        open.location.datacentre = at.into();
        cluster.start(open)
    };
    let group: Vec<usize> = (0..shards).map(|shard| start(cluster, shard)).collect();
    cluster.call_all(&group, register);
    group
}

/// A trainer in `us` that goes from version to version, and seeding rollouts in `eu` that hold the
/// first one.
struct Scene {
    cluster: Cluster,
    trainer: Vec<usize>,
    rollouts: Vec<Vec<usize>>,
}

impl Scene {
    fn new(config: ServerConfig, names: &[(&str, u32)]) -> Self {
        let mut cluster = cluster(config);
        let trainer = place(&mut cluster, "trainer", 1, "us", false);
        let rollouts: Vec<_> =
            names.iter().map(|(n, shards)| place(&mut cluster, n, *shards, "eu", true)).collect();
        cluster.publish(&trainer, 1, 11);
        cluster.auto_read = true;
        for rollout in &rollouts {
            cluster.call_all(rollout, |_| update());
        }
        cluster.auto_read = false;
        Self { cluster, trainer, rollouts }
    }

    /// Another replica in `us` keeps the old version, the trainer goes on to the next.
    fn publish(&mut self, number: u64) {
        self.cluster.call_all(&self.trainer, |_| weightcast_protocol::message::Call::Unpublish);
        self.cluster.publish(&self.trainer, number, number * 11);
    }

    /// Updates a rollout; what all its shards were told.
    fn update(&mut self, rollout: usize) -> Outcome {
        let group = self.rollouts[rollout].clone();
        let mut outcomes = self.cluster.call_all(&group, |_| update());
        let first = outcomes.remove(0);
        assert!(outcomes.iter().all(|other| *other == first), "{outcomes:?}, not {first:?}");
        first
    }

    fn finish_seed(&mut self) {
        let seed = self.cluster.seed_shards();
        self.cluster.finish_reads(&seed);
    }
}

fn unchanged(outcome: &Outcome) -> Option<u64> {
    match outcome {
        Ok(Answer::Unchanged { held }) => held.map(|version| version.number),
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_update_returns_at_once_and_a_later_one_reads_what_crossed_meanwhile() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 2), ("y", 2)]);
    let before = scene.cluster.counters().crossings;
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    assert_eq!(scene.cluster.edges(), [edge("x~seed-4294967296.2", "trainer")]);
    assert_eq!(unchanged(&scene.update(1)), Some(1), "one seed for all of the datacentre");
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    scene.finish_seed();
    assert_eq!(scene.cluster.state("x~seed-4294967296.2"), ReplicaState::Sealed);
    scene.cluster.auto_read = true;
    let outcome = scene.update(1);
    assert_eq!(committed(&outcome), Some(2));
    let Ok(Answer::Committed { source, .. }) = outcome else { unreachable!() };
    assert_eq!(source, "x~seed-4294967296.2");
    assert!(!scene.cluster.seed_shards().is_empty(), "x lacks it");
    assert_eq!(committed(&scene.update(0)), Some(2));
    assert_eq!(scene.cluster.content(&scene.rollouts[0]), 22);
    assert!(scene.cluster.seed_shards().is_empty(), "nobody lacks it");
    let counters = scene.cluster.counters();
    assert_eq!(counters.crossings - before, 1);
    assert_eq!((counters.seeds_asked, counters.seeds, counters.seeds_released), (1, 1, 1));
}

fn edge(reader: &str, source: &str) -> (String, String) {
    (reader.to_owned(), source.to_owned())
}

#[test]
fn who_has_no_memory_for_a_seed_crosses_by_itself() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 2)]);
    scene.cluster.auto_seed = false;
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let x = scene.rollouts[0].clone();
    // One shard has room, the other has not.
    scene.cluster.open_seed(x[0]);
    scene.cluster.run();
    scene.cluster.refuse_seed(x[1]);
    assert!(scene.cluster.seed_shards().is_empty(), "the room of the first is free again");
    scene.cluster.begin_all(&x, |_| update());
    assert_eq!(scene.cluster.edges(), [edge("x", "trainer")]);
    scene.cluster.finish_reads(&x);
    assert_eq!(scene.cluster.outcome(x[0]).as_ref().and_then(committed), Some(2));
    // The next version is left to a seed again.
    scene.publish(3);
    assert_eq!(unchanged(&scene.update(0)), Some(2));
    assert_eq!(scene.cluster.counters().seeds_failed, 1);
}

#[test]
fn another_group_is_asked_when_a_seed_dies() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1), ("y", 1)]);
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let seed = scene.cluster.seed_shards();
    scene.cluster.kill(seed[0]);
    scene.cluster.kill(scene.rollouts[0][0]);
    assert_eq!(unchanged(&scene.update(1)), Some(1), "it may yet come");
    scene.cluster.advance(Span::from_secs(10));
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    assert_eq!(scene.cluster.edges(), [edge("y~seed-4294967296.2", "trainer")]);
    scene.finish_seed();
    scene.cluster.auto_read = true;
    assert_eq!(committed(&scene.update(1)), Some(2));
}

#[test]
fn a_seed_that_takes_too_long_is_given_up() {
    let config = ServerConfig { seed_deadline: Span::from_secs(3), ..ServerConfig::default() };
    let mut scene = Scene::new(config, &[("x", 1), ("y", 1)]);
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    scene.cluster.advance(Span::from_secs(2));
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    assert_eq!(scene.cluster.edges(), [edge("x~seed-4294967296.2", "trainer")]);
    scene.cluster.advance(Span::from_secs(2));
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    assert_eq!(scene.cluster.edges(), []);
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    assert_eq!(scene.cluster.edges(), [edge("y~seed-4294967296.2", "trainer")]);
    // x was asked in vain: it does not wait for ever.
    scene.finish_seed();
    scene.publish(3);
    let x = scene.rollouts[0].clone();
    scene.cluster.auto_read = true;
    assert_eq!(committed(&scene.update(0)), Some(2), "what is there comes first");
    assert_eq!(committed(&scene.update(1)), Some(2));
    assert_eq!(unchanged(&scene.update(0)), Some(2), "and then seeds are made again");
    assert_eq!(committed(&scene.update(0)), Some(3));
    assert_eq!(scene.cluster.content(&x), 33);
}

#[test]
fn versions_faster_than_the_link_do_not_starve_it() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    let keeper = place(&mut scene.cluster, "keeper", 1, "us", false);
    let mut before = 1;
    for number in [2, 22, 42, 62] {
        scene.publish(number);
        scene.cluster.auto_read = true;
        scene.cluster.call_all(&keeper, |_| update());
        scene.cluster.auto_read = false;
        let held = unchanged(&scene.update(0));
        assert_eq!(held, Some(std::mem::replace(&mut before, number)));
        // The next ones come while this one crosses; it is finished, and read first.
        scene.publish(number + 10);
        assert_eq!(unchanged(&scene.update(0)), held);
        scene.finish_seed();
        scene.cluster.begin_all(&scene.rollouts[0].clone(), |_| update());
        scene.cluster.finish_reads(&scene.rollouts[0].clone());
        let outcome = scene.cluster.outcome(scene.rollouts[0][0]).expect("it has ended");
        assert_eq!(committed(&outcome), Some(number));
        assert!(scene.cluster.seed_shards().is_empty());
    }
}

#[test]
fn who_holds_nothing_waits_for_the_seed_and_reads_it_as_it_comes() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let late = place(&mut scene.cluster, "late", 1, "eu", true);
    let wide = place(&mut scene.cluster, "wide", 2, "eu", true);
    scene.cluster.begin_all(&late, |_| update());
    scene.cluster.begin_all(&wide, |_| update());
    let expected = [edge("late", "x~seed-4294967296.2"), edge("x~seed-4294967296.2", "trainer")];
    let mut edges = scene.cluster.edges();
    edges.sort();
    assert_eq!(edges, expected);
    scene.finish_seed();
    scene.cluster.finish_reads(&late);
    assert_eq!(scene.cluster.outcome(late[0]).as_ref().and_then(committed), Some(2));
    scene.cluster.finish_reads(&wide);
    assert_eq!(scene.cluster.outcome(wide[0]).as_ref().and_then(committed), Some(2));
}

#[test]
fn without_a_seed_who_holds_nothing_crosses_at_once() {
    let mut scene = Scene::new(ServerConfig::default(), &[]);
    let late = place(&mut scene.cluster, "late", 1, "eu", true);
    scene.cluster.begin_all(&late, |_| update());
    assert_eq!(scene.cluster.edges(), [edge("late", "trainer")]);
}

#[test]
fn a_seed_goes_with_the_group_that_was_asked() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1), ("y", 1)]);
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let (x, now) = (scene.rollouts[0][0], scene.cluster.now);
    scene.cluster.clients[x].session.close(now, DEADLINE);
    scene.cluster.run();
    assert!(scene.cluster.seed_shards().is_empty());
    assert_eq!(scene.cluster.edges(), []);
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    assert_eq!(scene.cluster.edges(), [edge("y~seed-4294967296.2", "trainer")]);
}

#[test]
fn a_seed_is_no_copy_that_retention_relies_on() {
    let mut cluster = cluster(ServerConfig::default());
    let trainer = Open { retain: 1, ..open("trainer", 0, 1, Role::Trainer) };
    let trainer = vec![cluster.start(trainer)];
    cluster.call_all(&trainer, register);
    let x = place(&mut cluster, "x", 1, "eu", true);
    let mut scene = Scene { cluster, trainer, rollouts: vec![x] };
    scene.cluster.publish(&scene.trainer.clone(), 1, 11);
    scene.cluster.auto_read = true;
    assert_eq!(committed(&scene.update(0)), Some(1));
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    assert_eq!(scene.cluster.state("x~seed-4294967296.2"), ReplicaState::Sealed);
    let offloads = scene.cluster.counters().offloads;
    scene.publish(3);
    assert_eq!(scene.cluster.counters().offloads, offloads + 1, "of version 2");
}

#[test]
fn a_seed_that_nobody_asked_for_is_refused() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    let role = Role::Seed(version(0, 2));
    let stray = scene.cluster.start(open("x~seed-4294967296.2", 0, 1, role));
    let closed = scene.cluster.clients[stray].closed.clone();
    assert!(matches!(closed, Some(Some(CallError::Misuse { .. }))), "{closed:?}");
}

#[test]
fn all_shards_say_alike_whether_they_seed() {
    let mut cluster = cluster(ServerConfig::default());
    cluster.start(Open { offload_seeding: true, ..open("x", 0, 2, Role::Rollout) });
    let other = cluster.start(open("x", 1, 2, Role::Rollout));
    let closed = cluster.clients[other].closed.clone();
    assert!(matches!(closed, Some(Some(CallError::Misuse { .. }))), "{closed:?}");
}

#[test]
fn a_wish_that_was_lost_is_repeated() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    scene.cluster.auto_seed = false;
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let x = scene.rollouts[0][0];
    scene.cluster.break_stream(x);
    scene.cluster.advance(Span::from_secs(1));
    let wishes = scene.cluster.clients[x].log.iter();
    let wishes = wishes.filter(|output| matches!(output, Output::Seed { .. })).count();
    assert_eq!(wishes, 1, "the session knows it already");
    // So is a failure, until the server has heard it.
    scene.cluster.refuse_seed(x);
    scene.cluster.break_stream(x);
    scene.cluster.advance(Span::from_secs(1));
    assert_eq!(scene.cluster.counters().seeds_failed, 1);
}

#[test]
fn a_seed_comes_over_to_another_server_and_nobody_else_is_asked() {
    let mut cluster = Cluster::with_servers(2);
    cluster.relays = true;
    let trainer = place(&mut cluster, "trainer", 1, "us", false);
    let rollouts: Vec<_> = ["x", "y"].map(|n| place(&mut cluster, n, 1, "eu", true)).into();
    cluster.publish(&trainer, 1, 11);
    for rollout in &rollouts {
        cluster.call_all(rollout, |_| update());
    }
    let mut scene = Scene { cluster, trainer, rollouts };
    scene.cluster.auto_read = false;
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    scene.cluster.advance(Span::from_secs(1));
    scene.cluster.crash(0);
    scene.cluster.advance(Span::from_secs(20));
    let snapshot = scene.cluster.backups[0].snapshot(scene.cluster.now);
    let edges = &snapshot.models["policy"].edges;
    let edges: Vec<_> = edges.iter().map(|e| (e.reader.clone(), e.source.clone())).collect();
    assert_eq!(edges, [edge("x~seed-4294967296.2", "trainer")]);
    assert_eq!(unchanged(&scene.update(1)), Some(1));
    scene.finish_seed();
    scene.cluster.auto_read = true;
    assert_eq!(committed(&scene.update(1)), Some(2));
    assert_eq!(committed(&scene.update(0)), Some(2));
    assert!(scene.cluster.seed_shards().is_empty());
}

#[test]
fn an_exact_version_that_is_near_is_read_and_one_that_is_not_is_seeded() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    scene.publish(2);
    let exact = |number| weightcast_protocol::message::Call::Update {
        selector: Selector::Exact(number),
        allow_rollback: false,
        staged: false,
    };
    let x = scene.rollouts[0].clone();
    let outcome = scene.cluster.call_all(&x, |_| exact(2)).remove(0);
    assert_eq!(unchanged(&outcome), Some(1));
    scene.finish_seed();
    scene.cluster.auto_read = true;
    let outcome = scene.cluster.call_all(&x, |_| exact(2)).remove(0);
    assert_eq!(committed(&outcome), Some(2));
}

#[test]
fn a_late_failure_of_an_earlier_seed_says_nothing_of_the_next() {
    let mut scene = Scene::new(ServerConfig::default(), &[("x", 1)]);
    scene.cluster.auto_seed = false;
    scene.publish(2);
    assert_eq!(unchanged(&scene.update(0)), Some(1));
    let x = scene.rollouts[0][0];
    let (_, first) = scene.cluster.clients[x].wanted_seed().expect("it was asked");
    scene.cluster.refuse_seed(x);
    scene.cluster.auto_read = true;
    assert_eq!(committed(&scene.update(0)), Some(2));
    scene.publish(3);
    assert_eq!(unchanged(&scene.update(0)), Some(2));
    let (_, second) = scene.cluster.clients[x].wanted_seed().expect("it was asked again");
    assert_ne!(first, second);
    let now = scene.cluster.now;
    scene.cluster.clients[x].session.handle_seed_failed(now, first);
    scene.cluster.run();
    assert_eq!(scene.cluster.counters().seeds_failed, 1);
    scene.cluster.refuse_seed(x);
    assert_eq!(scene.cluster.counters().seeds_failed, 2);
}

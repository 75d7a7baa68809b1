//! Seeds: one after the other in a datacentre, and what becomes of one that dies.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, ClientMessage, Open, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::session::Output;
use weightcast_protocol::{Selector, Span};

fn place(cluster: &mut Cluster, name: &str, role: Role, at: &str) -> Vec<usize> {
    let mut open = Open { offload_seeding: role == Role::Rollout, ..open(name, 0, 1, role) };
    open.location.datacentre = at.into();
    let group = vec![cluster.start(open)];
    cluster.call_all(&group, register);
    group
}

/// A trainer in `us`; rollouts in `eu` that hold its first version. Reads end by hand.
fn scene(mut cluster: Cluster, names: &[&str]) -> (Cluster, Vec<usize>, Vec<Vec<usize>>) {
    cluster.relays = true;
    let trainer = place(&mut cluster, "trainer", Role::Trainer, "us");
    cluster.publish(&trainer, 1, 11);
    let rollouts = names.iter().map(|name| place(&mut cluster, name, Role::Rollout, "eu"));
    let rollouts: Vec<_> = rollouts.collect();
    for rollout in &rollouts {
        cluster.call_all(rollout, |_| update());
    }
    cluster.auto_read = false;
    (cluster, trainer, rollouts)
}

fn wide() -> Cluster {
    Cluster::with(ServerConfig { fanout: 8, ..ServerConfig::default() })
}

fn goes_on(cluster: &mut Cluster, trainer: &[usize], number: u64) {
    cluster.call_all(trainer, |_| Call::Unpublish);
    cluster.publish(trainer, number, number * 11);
}

fn unchanged(cluster: &mut Cluster, rollout: &[usize]) -> bool {
    let outcome = cluster.call_all(rollout, |_| update()).remove(0);
    matches!(outcome, Ok(Answer::Unchanged { .. }))
}

/// How often a rollout was asked for a seed.
fn asked(cluster: &Cluster, rollout: &[usize]) -> usize {
    cluster.clients[rollout[0]].log.iter().filter(|o| matches!(o, Output::Seed { .. })).count()
}

fn edge(reader: &str, source: &str) -> (String, String) {
    (reader.to_owned(), source.to_owned())
}

#[test]
fn who_was_asked_for_a_seed_that_dies_crosses_by_itself_though_it_hears_nothing_of_it() {
    let (mut cluster, trainer, rollouts) = scene(wide(), &["x", "y"]);
    goes_on(&mut cluster, &trainer, 2);
    assert!(unchanged(&mut cluster, &rollouts[0]));
    let seed = cluster.seed_shards();
    cluster.kill(seed[0]);
    assert_eq!(cluster.counters().seeds_failed, 0, "its lease runs");
    cluster.advance(Span::from_secs(10));
    assert_eq!((cluster.counters().seeds_failed, cluster.counters().seeds_asked), (1, 1));
    cluster.begin_all(&rollouts[0], |_| update());
    assert_eq!(cluster.edges(), [edge("x", "trainer")]);
    // It is told once: its next update is left to a seed again.
    cluster.finish_reads(&rollouts[0]);
    assert_eq!(committed(&cluster.outcome(rollouts[0][0]).unwrap()), Some(2));
    goes_on(&mut cluster, &trainer, 3);
    assert!(unchanged(&mut cluster, &rollouts[0]));
    assert_eq!(asked(&cluster, &rollouts[0]), 2);
}

/// Its memory is not free before its readers have gone.
#[test]
fn no_seed_is_asked_for_while_another_one_serves_its_last_reader() {
    let (mut cluster, trainer, rollouts) = scene(wide(), &["x", "y", "z"]);
    goes_on(&mut cluster, &trainer, 2);
    assert!(unchanged(&mut cluster, &rollouts[0]));
    let seed = cluster.seed_shards();
    cluster.finish_reads(&seed);
    assert_eq!(cluster.counters().seeds, 1);
    cluster.begin_all(&rollouts[1], |_| update());
    assert_eq!(cluster.edges(), [edge("y", "x~seed-4294967296.2")]);
    goes_on(&mut cluster, &trainer, 3);
    // Whoever was asked for it goes, and so does the seed, which still has a reader.
    cluster.clients[rollouts[0][0]].session.close(cluster.now, DEADLINE);
    cluster.run();
    assert_eq!(cluster.counters().seeds_released, 1);
    assert_eq!(cluster.edges(), [edge("y", "x~seed-4294967296.2")]);
    assert!(unchanged(&mut cluster, &rollouts[2]));
    assert!(unchanged(&mut cluster, &rollouts[2]));
    assert_eq!(cluster.counters().seeds_asked, 1);
    cluster.finish_reads(&rollouts[1]);
    assert_eq!(committed(&cluster.outcome(rollouts[1][0]).unwrap()), Some(2));
    assert!(cluster.seed_shards().is_empty());
    // What came with it is near; what came after it crosses next.
    cluster.auto_read = true;
    let outcome = cluster.call_all(&rollouts[2], |_| update()).remove(0);
    assert_eq!(committed(&outcome), Some(2));
    cluster.auto_read = false;
    assert!(unchanged(&mut cluster, &rollouts[2]));
    assert_eq!((cluster.counters().seeds_asked, asked(&cluster, &rollouts[2])), (2, 1));
}

#[test]
fn only_who_was_asked_says_that_a_seed_has_failed_and_only_of_that_one() {
    let (mut cluster, trainer, rollouts) = scene(wide(), &["x", "y"]);
    cluster.auto_seed = false;
    goes_on(&mut cluster, &trainer, 2);
    assert!(unchanged(&mut cluster, &rollouts[0]));
    let (_, ask) = cluster.clients[rollouts[0][0]].wanted_seed().expect("it was asked");
    for (who, ask) in [(rollouts[0][0], ask + 1), (rollouts[0][0], 0), (rollouts[1][0], ask)] {
        cluster.tell(who, ClientMessage::SeedFailed { ask });
        assert_eq!(cluster.counters().seeds_failed, 0, "{who} of {ask}");
    }
    cluster.tell(trainer[0], ClientMessage::SeedFailed { ask });
    assert_eq!(cluster.counters().seeds_failed, 0, "it is of another datacentre");
    cluster.tell(rollouts[0][0], ClientMessage::SeedFailed { ask });
    cluster.tell(rollouts[0][0], ClientMessage::SeedFailed { ask });
    assert_eq!(cluster.counters().seeds_failed, 1);
}

/// Each datacentre has a seed of its own, and each model.
#[test]
fn one_datacentre_s_seed_is_no_other_s() {
    let (mut cluster, trainer, mut rollouts) = scene(wide(), &["x"]);
    cluster.auto_read = true;
    rollouts.push(place(&mut cluster, "q", Role::Rollout, "asia"));
    cluster.call_all(&rollouts[1], |_| update());
    cluster.auto_read = false;
    goes_on(&mut cluster, &trainer, 2);
    assert!(unchanged(&mut cluster, &rollouts[0]) && unchanged(&mut cluster, &rollouts[1]));
    assert_eq!(cluster.counters().seeds_asked, 2);
    let mut expected =
        vec![edge("x~seed-4294967296.2", "trainer"), edge("q~seed-4294967296.2", "trainer")];
    let mut edges = cluster.edges();
    expected.sort();
    edges.sort();
    assert_eq!(edges, expected);
    // One dies: the other one's goes on, and is not asked again.
    let seeds = cluster.seed_shards();
    cluster.kill(seeds[0]);
    cluster.advance(Span::from_secs(10));
    assert_eq!(cluster.counters().seeds_failed, 1);
    cluster.finish_reads(&seeds[1..]);
    assert_eq!((cluster.counters().seeds, asked(&cluster, &rollouts[1])), (1, 1));
    cluster.auto_read = true;
    let outcome = cluster.call_all(&rollouts[1], |_| update()).remove(0);
    assert_eq!(committed(&outcome), Some(2));
}

#[test]
fn who_comes_over_with_its_seed_is_not_asked_for_it_again_when_its_stream_breaks() {
    let (mut cluster, trainer, rollouts) = scene(Cluster::with_servers(2), &["x"]);
    goes_on(&mut cluster, &trainer, 2);
    assert!(unchanged(&mut cluster, &rollouts[0]));
    cluster.advance(Span::from_secs(1));
    cluster.crash(0);
    cluster.advance(Span::from_secs(20));
    assert_eq!(asked(&cluster, &rollouts[0]), 1);
    cluster.break_stream(rollouts[0][0]);
    cluster.advance(Span::from_secs(1));
    assert_eq!(asked(&cluster, &rollouts[0]), 1);
    let seed = cluster.seed_shards();
    cluster.finish_reads(&seed);
    cluster.auto_read = true;
    let outcome = cluster.call_all(&rollouts[0], |_| update()).remove(0);
    assert_eq!(committed(&outcome), Some(2));
    assert_eq!(cluster.call_all(&trainer, |_| replicate(Selector::Latest)).len(), 1);
}

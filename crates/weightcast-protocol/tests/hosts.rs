//! Every host is entered once: replicas of one host get a version from each other.

use std::collections::BTreeSet;

use crate::cluster::*;
use weightcast_protocol::message::{Call, Location, Open, Role};
use weightcast_protocol::server::ServerConfig;
use weightcast_protocol::{Selector, Span};

/// Rollouts of one shard on these hosts, which read by hand, and a trainer of version 1 elsewhere.
fn rollouts(hosts: &[&str], config: ServerConfig) -> (Cluster, Vec<usize>, Vec<Vec<usize>>) {
    let mut cluster = Cluster::with(config);
    cluster.relays = true;
    let trainer = on(&mut cluster, "trainer", Role::Trainer, "t");
    let rollouts = hosts
        .iter()
        .enumerate()
        .map(|(number, host)| on(&mut cluster, &format!("{host}{number}"), Role::Rollout, host));
    let rollouts = rollouts.collect();
    cluster.publish(&trainer, 1, 11);
    cluster.auto_read = false;
    (cluster, trainer, rollouts)
}

fn on(cluster: &mut Cluster, name: &str, role: Role, host: &str) -> Vec<usize> {
    let location = Location { host: host.to_owned(), ..Location::default() };
    let group = vec![cluster.start(Open { location, ..open(name, 0, 1, role) })];
    cluster.call_all(&group, register);
    group
}

fn begin(cluster: &mut Cluster, groups: &[Vec<usize>]) {
    for group in groups {
        cluster.begin_all(group, |_| replicate(Selector::Latest));
    }
}

/// Edges between hosts, by the first letter of a name.
fn between(cluster: &Cluster) -> BTreeSet<(String, String)> {
    let edges = cluster.edges().into_iter();
    edges.filter(|(reader, source)| reader[..1] != source[..1]).collect()
}

fn finish(cluster: &mut Cluster, groups: &[Vec<usize>]) {
    for _ in groups {
        groups.iter().for_each(|group| cluster.finish_reads(group));
    }
}

#[test]
fn a_version_enters_each_host_once_whoever_asks_first() {
    for order in [[0, 1, 2, 3, 4, 5], [0, 3, 1, 4, 2, 5], [5, 4, 3, 2, 1, 0]] {
        let (mut cluster, _, rollouts) =
            rollouts(&["a", "a", "a", "b", "b", "b"], ServerConfig::default());
        let asked: Vec<_> = order.iter().map(|number| rollouts[*number].clone()).collect();
        begin(&mut cluster, &asked);
        let into =
            |host: &str| between(&cluster).iter().filter(|(to, _)| to.starts_with(host)).count();
        assert_eq!((into("a"), into("b")), (1, 1), "{order:?}: {:?}", cluster.edges());
        assert_eq!(cluster.edges().len(), 6, "all read");
        finish(&mut cluster, &asked);
        for rollout in &rollouts {
            assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
            assert_eq!(cluster.content(rollout), 11);
        }
        assert_eq!(cluster.counters().commits, 6);
    }
}

#[test]
fn whoever_waits_for_one_on_its_host_enters_if_that_one_is_lost() {
    let (mut cluster, _, rollouts) = rollouts(&["a", "a"], ServerConfig::default());
    cluster.relays = false;
    begin(&mut cluster, &rollouts);
    cluster.kill(rollouts[0][0]);
    cluster.advance(Span::from_secs(20));
    assert_eq!(cluster.edges(), [("a1".to_owned(), "trainer".to_owned())]);
    cluster.finish_reads(&rollouts[1]);
    assert_eq!(committed(&cluster.outcome(rollouts[1][0]).unwrap()), Some(1));
}

/// A reader that may not enter its host does not wait for places on other hosts.
#[test]
fn whoever_reads_from_one_that_died_enters_at_once_although_relays_elsewhere_are_taken() {
    let config = ServerConfig { lease: Span::from_secs(3600), ..Default::default() };
    let (mut cluster, _, rollouts) = rollouts(&["a", "a", "b", "c"], config);
    let other = on(&mut cluster, "u", Role::Trainer, "u");
    cluster.auto_read = true;
    cluster.publish(&other, 1, 11);
    cluster.auto_read = false;
    begin(&mut cluster, &rollouts);
    let edge = |reader: &str, source: &str| (reader.to_owned(), source.to_owned());
    let others = [edge("b2", "u"), edge("c3", "b2")];
    assert_eq!(cluster.edges()[..2], [edge("a0", "trainer"), edge("a1", "a0")]);
    assert_eq!(cluster.edges()[2..], others);
    // Its lease runs on, so it counts as a replica that gets the version.
    cluster.kill(rollouts[0][0]);
    for _ in 0..3 {
        assert!(cluster.edges().contains(&edge("a1", "a0")), "{:?}", cluster.edges());
        cluster.fail_read(rollouts[1][0]);
    }
    assert!(cluster.edges().contains(&edge("a1", "trainer")), "{:?}", cluster.edges());
}

/// No link is used there, so a chain would only keep from the holder those who could read its own memory; beyond the
/// bound there is one.
#[test]
fn replicas_of_a_host_read_from_a_holder_there_up_to_a_bound_of_their_own() {
    for (fanout, host_fanout, at_once) in [(1, 2, 2), (1, 8, 3), (3, 1, 3)] {
        let config = ServerConfig { fanout, host_fanout, ..Default::default() };
        let (mut cluster, _, rollouts) = rollouts(&["t", "t", "t"], config);
        begin(&mut cluster, &rollouts);
        let edges = cluster.edges();
        assert_eq!(edges.iter().filter(|(_, of)| of == "trainer").count(), at_once, "{edges:?}");
        assert_eq!(edges.len(), 3, "all read");
    }
}

/// One that is being filled and dies costs one reader its source, not all of the host.
#[test]
fn replicas_of_a_host_read_in_a_chain_from_one_that_is_being_filled() {
    let (mut cluster, _, rollouts) = rollouts(&["a", "a", "a"], ServerConfig::default());
    begin(&mut cluster, &rollouts);
    let edge = |reader: &str, source: &str| (reader.to_owned(), source.to_owned());
    assert_eq!(cluster.edges(), [edge("a0", "trainer"), edge("a1", "a0"), edge("a2", "a1")]);
}

/// Readers on other hosts have places of their own, however many there are on the source's.
#[test]
fn readers_on_the_own_host_take_no_place_from_those_on_others() {
    let (mut cluster, trainer, _) = rollouts(&[], ServerConfig::default());
    let near: Vec<_> =
        (0..3).map(|n| on(&mut cluster, &format!("t{n}"), Role::Rollout, "t")).collect();
    let far = ["b", "c"].map(|host| on(&mut cluster, host, Role::Rollout, host));
    begin(&mut cluster, &near);
    begin(&mut cluster, &far);
    let edge = |reader: &str, source: &str| (reader.to_owned(), source.to_owned());
    let mut expected: Vec<_> = (0..3).map(|n| edge(&format!("t{n}"), "trainer")).collect();
    expected.extend([edge("b", "trainer"), edge("c", "b")]);
    assert_eq!(BTreeSet::from_iter(cluster.edges()), expected.into_iter().collect());
    cluster.call(trainer[0], Call::Unpublish);
    finish(&mut cluster, &[near, far.to_vec()].concat());
    assert_eq!(cluster.counters().commits, 5);
}

/// The place of a reader that died is free at once, not only when its lease has run out.
#[test]
fn whoever_reads_from_one_that_died_on_its_host_reads_from_the_one_before_it() {
    let config =
        ServerConfig { lease: Span::from_secs(3600), host_fanout: 1, ..Default::default() };
    let (mut cluster, _, rollouts) = rollouts(&["a", "a", "a"], config);
    begin(&mut cluster, &rollouts);
    let edge = |reader: &str, source: &str| (reader.to_owned(), source.to_owned());
    assert_eq!(cluster.edges(), [edge("a0", "trainer"), edge("a1", "a0"), edge("a2", "a1")]);
    cluster.kill(rollouts[1][0]);
    cluster.fail_read(rollouts[2][0]);
    assert!(cluster.edges().contains(&edge("a2", "a0")), "{:?}", cluster.edges());
}

#[test]
fn a_copy_on_the_own_host_is_taken_although_another_is_as_good() {
    let (mut cluster, trainer, rollouts) = rollouts(&["b", "z", "z"], ServerConfig::default());
    cluster.auto_read = true;
    begin(&mut cluster, &rollouts[..2]);
    assert_eq!(cluster.content(&rollouts[1]), 11);
    cluster.call_all(&trainer, |_| Call::Unpublish);
    cluster.auto_read = false;
    begin(&mut cluster, &rollouts[2..]);
    assert_eq!(cluster.edges(), [("z2".to_owned(), "z1".to_owned())]);
}

/// The one that brings the version in draws from all that have nothing else to do.
#[test]
fn who_waits_on_the_same_host_takes_no_helper_away() {
    let config = ServerConfig { stripes: 4, ..ServerConfig::default() };
    let (mut cluster, _, rollouts) = rollouts(&["a", "a", "a"], config);
    let other = on(&mut cluster, "u", Role::Trainer, "u");
    cluster.auto_read = true;
    cluster.publish(&other, 1, 11);
    cluster.auto_read = false;
    begin(&mut cluster, &rollouts);
    let from: BTreeSet<_> = between(&cluster).into_iter().map(|(_, source)| source).collect();
    assert_eq!(from, ["trainer".to_owned(), "u".to_owned()].into());
    assert_eq!(cluster.counters().unstriped, 0);
    assert_eq!(cluster.edges().len(), 4, "{:?}", cluster.edges());
}

#[test]
fn who_reads_on_its_own_host_draws_from_no_other() {
    for (host, sources) in [("z", 1), ("y", 3)] {
        let config = ServerConfig { stripes: 4, ..ServerConfig::default() };
        let (mut cluster, trainer, rollouts) = rollouts(&["b", "c", "z"], config);
        cluster.auto_read = true;
        begin(&mut cluster, &rollouts);
        cluster.call_all(&trainer, |_| Call::Unpublish);
        cluster.auto_read = false;
        let reader = on(&mut cluster, "reader", Role::Rollout, host);
        begin(&mut cluster, &[reader]);
        assert_eq!(cluster.edges().len(), sources, "{host}: {:?}", cluster.edges());
    }
}

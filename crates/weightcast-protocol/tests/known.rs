//! Versions' contents are remembered as far as there is room (S7).

use crate::cluster::*;
use weightcast_protocol::message::{Call, EpochPolicy, Open, Role};
use weightcast_protocol::server::{Server, ServerConfig};
use weightcast_protocol::{CallError, Selector, Span};

/// A server that remembers one version of a model, and looks at its books after each event.
fn cluster() -> Cluster {
    let mut config = ServerConfig::default();
    config.limits.versions = 1;
    Cluster::with(config)
}

fn publish_next(cluster: &mut Cluster, trainer: &[usize], version: u64) {
    cluster.call_all(trainer, |_| Call::Unpublish);
    let published = cluster.publish(trainer, version, 10 * version);
    assert!(published[0].is_ok(), "{published:?}");
}

#[test]
fn what_a_group_holds_is_remembered_however_much_comes_after_it() {
    let mut cluster = cluster();
    let trainer = cluster.trainer("trainer", 2);
    cluster.publish(&trainer, 1, 10);
    let (first, second) = (cluster.rollout("first", 2), cluster.rollout("second", 1));
    cluster.call_all(&first, |_| update());
    for version in 2..6 {
        publish_next(&mut cluster, &trainer, version);
    }
    // The oldest is read, and judged by its digests, all the same.
    let read = cluster.call_all(&second, |_| replicate(Selector::Exact(1)));
    assert_eq!(committed(&read[0]), Some(1));
    assert_eq!(cluster.content(&second), 10);
    // Its holder moves on, and may go back while it is shown.
    let moved = cluster.call_all(&first, |_| update());
    assert_eq!((committed(&moved[0]), cluster.content(&first)), (Some(5), 50));
}

#[test]
fn what_is_put_in_place_is_remembered_when_nobody_else_holds_it_any_more() {
    let mut cluster = cluster();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 10);
    let rollout = cluster.rollout("rollout", 2);
    cluster.call_all(&rollout, |_| update());
    publish_next(&mut cluster, &trainer, 2);
    cluster.auto_install = false;
    cluster.begin_all(&rollout, |_| staged_update());
    publish_next(&mut cluster, &trainer, 3);
    cluster.finish_installs(&rollout);
    assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(2));
    assert_eq!(cluster.content(&rollout), 20);
}

#[test]
fn what_was_forgotten_is_not_published_anew() {
    let mut cluster = cluster();
    let trainer = cluster.trainer("trainer", 1);
    cluster.publish(&trainer, 1, 10);
    for version in 2..6 {
        publish_next(&mut cluster, &trainer, version);
    }
    cluster.call_all(&trainer, |_| Call::Unpublish);
    for version in 1..5 {
        let again = cluster.publish(&trainer, version, 77);
        let Err(CallError::Misuse { detail }) = &again[0] else { panic!("{again:?}") };
        assert!(detail.contains("is older than"), "{detail}");
    }
    publish_next(&mut cluster, &trainer, 6);
}

/// A server that took over knows of the newest version only from a trainer that is gone by now.
#[test]
fn the_newest_version_is_remembered_when_an_older_one_comes_over_after_it() {
    let mut cluster = Cluster::with_servers(2);
    let mut config = ServerConfig { index: 1, paranoid: true, ..ServerConfig::default() };
    config.limits.versions = 1;
    cluster.backups = vec![Server::new(config)];
    let trainer = cluster.trainer("trainer", 1);
    let late = cluster.rollout("late", 1);
    publish_next(&mut cluster, &trainer, 1);
    cluster.call_all(&late, |_| update());
    publish_next(&mut cluster, &trainer, 5);
    cluster.stand_still(late[0]);
    cluster.crash(0);
    cluster.advance(Span::from_secs(7));
    let term = cluster.clients[trainer[0]].session.lease().unwrap().term;
    assert_eq!(term, cluster.machine(1).term(), "it came over");
    cluster.kill(trainer[0]);
    cluster.advance(ServerConfig::default().lease.scaled(11, 10));
    cluster.go_on(late[0]);
    cluster.advance(Span::from_secs(20));
    assert_eq!(cluster.clients[late[0]].session.version(), Some(version(0, 1)));
    let second = Open { epoch: EpochPolicy::Current, ..open("second", 0, 1, Role::Trainer) };
    let trainer = vec![cluster.start(second)];
    cluster.call_all(&trainer, register);
    let published = cluster.publish(&trainer, 3, 30);
    assert!(matches!(published[0], Err(CallError::Misuse { .. })), "{published:?}");
    assert!(cluster.publish(&trainer, 6, 60)[0].is_ok());
}

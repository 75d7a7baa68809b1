//! What a choice of a source would come to is what it comes to.

use crate::cluster::*;
use weightcast_protocol::Selector;
use weightcast_protocol::message::{Call, Role};
use weightcast_protocol::server::{Drawbacks, Preview, PreviewedChoice, ServerConfig};

/// Reads end by hand, and sessions serve what they are being filled with.
fn relays(config: ServerConfig) -> Cluster {
    let mut cluster = Cluster::with(config);
    (cluster.relays, cluster.auto_read) = (true, false);
    cluster
}

fn place(
    cluster: &mut Cluster,
    name: &str,
    shards: u32,
    role: Role,
    (at, host): (&str, &str),
) -> Vec<usize> {
    let start = |cluster: &mut Cluster, shard| {
        let mut open = open(name, shard, shards, role);
        (open.location.datacentre, open.location.host) = (at.into(), host.into());
        cluster.start(open)
    };
    let group: Vec<usize> = (0..shards).map(|shard| start(cluster, shard)).collect();
    cluster.call_all(&group, register);
    group
}

fn preview(cluster: &Cluster, reader: &str, source: &str) -> Preview {
    cluster.server.preview("policy", reader, source).expect("both are there")
}

/// The replica that is chosen, if one is.
fn chosen(cluster: &Cluster, reader: &str, source: &str) -> Option<String> {
    match preview(cluster, reader, source).chosen {
        PreviewedChoice::Replica { name, .. } => Some(name),
        PreviewedChoice::Busy | PreviewedChoice::Nobody => None,
    }
}

/// Whether what is said before a reader asks is what the reader gets.
fn as_it_comes(cluster: &mut Cluster, reader: (&str, &[usize]), source: &str) {
    let told = chosen(cluster, reader.0, source);
    cluster.begin_all(reader.1, |_| replicate(Selector::Latest));
    let edge = cluster.edges().into_iter().find(|(from, _)| from == reader.0);
    assert_eq!(told, edge.map(|(_, source)| source), "{}", reader.0);
}

#[test]
fn a_reader_gets_the_source_that_was_previewed() {
    let mut cluster = relays(ServerConfig::default());
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, ("us", "one"));
    cluster.publish(&trainer, 1, 11);
    let mut readers = Vec::new();
    for (name, shards, at) in [
        ("x", 1, ("eu", "two")),
        ("y", 1, ("eu", "two")),
        ("wide", 2, ("eu", "two")),
        ("near", 1, ("us", "one")),
    ] {
        readers.push((name, place(&mut cluster, name, shards, Role::Rollout, at)));
    }
    for (name, group) in &readers {
        as_it_comes(&mut cluster, (name, group), "trainer");
    }
    assert_eq!(chosen(&cluster, "wide", "trainer"), None, "it waits for a copy in its datacentre");
}

#[test]
fn what_speaks_for_a_source_and_against_it_is_told_apart() {
    let mut cluster = relays(ServerConfig { host_fanout: 1, ..ServerConfig::default() });
    let trainer = place(&mut cluster, "trainer", 1, Role::Trainer, ("us", "one"));
    cluster.publish(&trainer, 1, 11);
    let beside = place(&mut cluster, "beside", 1, Role::Rollout, ("us", "one"));
    place(&mut cluster, "far", 2, Role::Rollout, ("eu", "two"));
    let told = preview(&cluster, "beside", "trainer");
    let wanted = Preview {
        version: version(0, 1),
        held: false,
        near: true,
        may_cross: false,
        has_room: true,
        below: false,
        registered: true,
        same_layouts: true,
        drawbacks: Drawbacks { trainer: true, ..Drawbacks::default() },
        chosen: PreviewedChoice::Replica {
            name: "trainer".into(),
            drawbacks: Drawbacks { trainer: true, ..Drawbacks::default() },
        },
    };
    assert_eq!(told, wanted);
    let told = preview(&cluster, "far", "trainer");
    assert_eq!((told.near, told.may_cross, told.same_layouts), (false, true, false));
    assert!(told.drawbacks.other_host);
    // Its one place is taken.
    cluster.call(beside[0], replicate(Selector::Latest));
    let told = preview(&cluster, "beside", "trainer");
    assert_eq!((told.has_room, told.drawbacks.readers), (false, 1));
    cluster.finish_reads(&beside);
    let told = preview(&cluster, "beside", "trainer");
    assert_eq!((told.held, told.has_room, told.drawbacks.readers), (true, true, 0));
}

#[test]
fn of_nobody_and_of_nothing_there_is_no_preview() {
    let mut cluster = Cluster::new();
    let trainer = cluster.trainer("trainer", 1);
    cluster.rollout("rollout", 1);
    let told = |cluster: &Cluster, model, reader, source| {
        cluster.server.preview(model, reader, source).is_some()
    };
    assert!(!told(&cluster, "policy", "rollout", "trainer"), "it holds nothing");
    cluster.publish(&trainer, 1, 11);
    assert!(told(&cluster, "policy", "rollout", "trainer"));
    for (model, reader, source) in [
        ("other", "rollout", "trainer"),
        ("policy", "nobody", "trainer"),
        ("policy", "rollout", "nobody"),
        ("policy", "trainer", "rollout"),
    ] {
        assert!(!told(&cluster, model, reader, source), "{model} {reader} {source}");
    }
    cluster.call_all(&trainer, |_| Call::Unpublish);
    assert!(!told(&cluster, "policy", "rollout", "trainer"), "nobody is sent there any more");
}

//! What people see of a server, and what calls say that could not end.

use crate::cluster::*;
use weightcast_protocol::message::{Answer, Call, Open, Role};
use weightcast_protocol::server::{ReplicaSnapshot, ReplicaState, ServerConfig};
use weightcast_protocol::session::Output;
use weightcast_protocol::{
    CallError, ContentDigest, Generation, OpSeq, Selector, ShardSums, Span, Sum,
};

const SECOND: Span = Span::from_secs(1);

fn replica(cluster: &Cluster, name: &str) -> ReplicaSnapshot {
    let snapshot = cluster.server.snapshot(cluster.now);
    let replicas = &snapshot.models["policy"].replicas;
    replicas.iter().find(|replica| replica.name == name).expect("it is there").clone()
}

fn waited_for(outcome: Option<Outcome>) -> String {
    match outcome {
        Some(Err(CallError::Timeout { waiting_for, .. })) => waiting_for,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_copy_is_shown_as_proved_when_it_is() {
    let (mut cluster, _) = Cluster::published(1, 100);
    cluster.auto_prove = false;
    let proved = |cluster: &Cluster| {
        ["trainer", "honest", "liar"].map(|name| {
            let replicas = &cluster.server.snapshot(cluster.now).models["policy"].replicas;
            replicas.iter().find(|replica| replica.name == name).map(|replica| replica.proved)
        })
    };
    let honest = cluster.rollout("honest", 2);
    assert_eq!(proved(&cluster), [Some(true), Some(false), None], "it holds nothing");
    cluster.call_all(&honest, |_| replicate(Selector::Latest));
    assert_eq!(proved(&cluster), [Some(true), Some(false), None]);
    for client in 0..3 {
        cluster.finish_proofs(client);
    }
    cluster.run();
    assert_eq!(proved(&cluster), [Some(true), Some(true), None]);

    let (mut cluster, _) = Cluster::published(1, 100);
    let liar = cluster.rollout("liar", 1);
    cluster.auto_read = false;
    cluster.begin_all(&liar, |_| replicate(Selector::Latest));
    cluster.claim(liar[0], 100);
    assert_eq!(cluster.counters().refuted, 1);
    assert_eq!(proved(&cluster), [Some(true), None, Some(false)]);
}

#[test]
fn a_call_that_waits_is_shown_with_who_has_made_it_and_its_times() {
    let mut cluster = Cluster::new();
    let rollout = cluster.rollout("r", 2);
    cluster.advance(SECOND);
    cluster.call_within(rollout[1], replicate(Selector::Exact(9)), Span::from_secs(20));
    cluster.advance(SECOND);
    let seen = replica(&cluster, "r");
    let pending = seen.pending.expect("it waits");
    assert_eq!(
        (pending.seq, pending.call.as_str(), pending.arrived),
        (OpSeq(2), "replicate(9)", 1)
    );
    assert_eq!((pending.age, pending.left), (SECOND, Span::from_secs(19)));
    assert_eq!((pending.wants, pending.failed.len()), (None, 0));
    assert_eq!((seen.state, seen.version, seen.num_shards), (ReplicaState::Empty, None, 2));
    let shards: Vec<_> = seen.shards.iter().map(|s| (s.shard, s.bytes, s.generation)).collect();
    assert_eq!(shards, [(0, Some(8), None), (1, Some(8), None)]);
    assert!(seen.shards.iter().all(|shard| shard.connected));
    // The shard that dies is heard of last at its last heartbeat.
    cluster.kill(rollout[0]);
    let left = |cluster: &Cluster, shard: usize| replica(cluster, "r").shards[shard].lease_left;
    let before = left(&cluster, 0);
    cluster.advance(Span::from_secs(2));
    assert_eq!(left(&cluster, 0), Span(before.0 - 2 * SECOND.0));
    assert!(left(&cluster, 1) > left(&cluster, 0));
    let connected: Vec<bool> = replica(&cluster, "r").shards.iter().map(|s| s.connected).collect();
    assert_eq!(connected, [false, true]);
}

#[test]
fn a_reader_without_a_place_is_shown_with_what_it_wants() {
    let (mut cluster, trainer) = Cluster::published(2, 100);
    cluster.auto_read = false;
    for (name, shards) in [("first", 1), ("second", 3)] {
        let rollout = cluster.rollout(name, shards);
        cluster.begin_all(&rollout, |_| replicate(Selector::Latest));
    }
    assert_eq!(cluster.edges(), [("first".to_owned(), "trainer".to_owned())]);
    assert_eq!(replica(&cluster, "first").pending.unwrap().wants, None, "it has a source");
    assert_eq!(replica(&cluster, "first").state, ReplicaState::Reading);
    assert_eq!(replica(&cluster, "second").pending.unwrap().wants, Some(version(0, 1)));
    let published = replica(&cluster, "trainer");
    assert_eq!(published.pending, None);
    let generations: Vec<_> = published.shards.iter().map(|shard| shard.generation).collect();
    assert_eq!(generations, [Some(Generation(1)); 2]);
    assert_eq!(trainer.len(), 2);
}

#[test]
fn an_unpublish_that_waits_for_digests_names_whose_and_holds_back_an_update() {
    for (sealed, named) in
        [(&[][..], "shards 0, 1, 2"), (&[0], "shards 1, 2"), (&[0, 1], "shard 2")]
    {
        let (mut cluster, trainer) = Cluster::unsealed(3, 100);
        sealed.iter().for_each(|shard| cluster.finish_seal(trainer[*shard]));
        cluster.run();
        for shard in &trainer {
            cluster.call_within(*shard, Call::Unpublish, SECOND);
        }
        cluster.advance(Span::from_secs(2));
        for shard in &trainer {
            let waited_for = waited_for(cluster.outcome(*shard));
            let expected = format!("the digests of {named} of what replica trainer has published");
            assert_eq!(waited_for, expected);
        }
        // It is out of sight, and not given up: nothing can be read over it.
        for staged in [false, true] {
            let call = if staged { staged_update() } else { update() };
            for outcome in cluster.call_all(&trainer, |_| call.clone()) {
                let Err(CallError::Misuse { detail }) = outcome else { panic!("{outcome:?}") };
                assert!(detail.contains("unpublish was begun and not finished"), "{detail}");
            }
        }
        cluster.finish_seals(&trainer);
        assert!(cluster.unpublished(&trainer));
    }
}

/// A shard that gave less time than the first ends the call before the readers have had theirs.
#[test]
fn an_unpublish_that_waits_for_readers_names_the_first_few() {
    let config = ServerConfig { fanout: 8, ..ServerConfig::default() };
    for readers in [1, 4, 5] {
        let mut cluster = Cluster::with(config.clone());
        let trainer = cluster.trainer("trainer", 2);
        cluster.publish(&trainer, 1, 100);
        cluster.auto_read = false;
        let names: Vec<String> = (0..readers).map(|reader| format!("r{reader}")).collect();
        for name in &names {
            let reader = cluster.rollout(name, 1);
            cluster.begin_all(&reader, |_| replicate(Selector::Latest));
        }
        cluster.call_within(trainer[0], Call::Unpublish, Span::from_secs(30));
        cluster.call_within(trainer[1], Call::Unpublish, Span::from_secs(2));
        cluster.advance(Span(2 * SECOND.0 - 1));
        assert_eq!(cluster.counters().timeouts, 0);
        cluster.advance(Span(1));
        let named = names[..names.len().min(4)].join(", ");
        let expected = format!("{named} to finish reading from replica trainer");
        for shard in &trainer {
            assert_eq!(waited_for(cluster.outcome(*shard)), expected);
        }
        assert_eq!((cluster.counters().timeouts, cluster.edges().len()), (1, readers));
    }
}

/// In a group that is not large every shard is told where to look, in a larger one the first eight are.
#[test]
fn of_many_shards_that_are_refused_a_few_are_told_where_to_look() {
    for (shards, told) in [(256, 256), (257, 8)] {
        let (mut cluster, trainer) = Cluster::unsealed(shards, 5);
        for client in &trainer {
            let client = &mut cluster.clients[*client];
            let generation = client.host.sealing.take().expect("it was published");
            let (counted, other) = (Sum([5, 0]), Sum([6, 0]));
            let sums = ShardSums { counted, held: other, expected: counted };
            client.session.handle_sealed(cluster.now, generation, sums);
        }
        cluster.run();
        let refused = |client: &usize| {
            let refused = cluster.clients[*client].log.iter().find_map(|output| match output {
                Output::Refused { witnesses } => Some(witnesses.copy.is_some()),
                _ => None,
            });
            refused.expect("all are told that")
        };
        let where_to: Vec<bool> = trainer.iter().map(refused).collect();
        let expected: Vec<bool> = (0..shards).map(|shard| shard < told).collect();
        assert_eq!(where_to, expected, "of {shards}");
    }
}

#[test]
fn catalogs_that_differ_are_laid_to_the_first_shard_that_differs() {
    for (catalogs, named) in [([1, 2, 3], 1), ([1, 1, 2], 2), ([1, 2, 2], 1), ([1, 2, 1], 1)] {
        let mut cluster = Cluster::new();
        let trainer = cluster.trainer("trainer", 3);
        let call = |shard: u32| Call::Publish {
            version: 1,
            catalog: ContentDigest([catalogs[shard as usize]; 16]),
            generation: Generation(0),
        };
        for outcome in cluster.call_all(&trainer, call) {
            let Err(CallError::LayoutMismatch { detail, .. }) = outcome else {
                panic!("{outcome:?}")
            };
            assert!(detail.starts_with(&format!("shards 0 and {named} registered")), "{detail}");
        }
        assert_eq!(cluster.counters().publishes, 0);
    }
}

/// Two models whose versions, replicas and shards have the same names.
#[test]
fn models_do_not_mix() {
    let mut cluster = Cluster::new();
    let mut started = Vec::new();
    for (model, content) in [("one", 100), ("other", 900)] {
        let group = |cluster: &mut Cluster, name: &str, role, shards: u32| -> Vec<usize> {
            let open =
                |shard| Open { model: model.into(), retain: 1, ..open(name, shard, shards, role) };
            let group: Vec<usize> = (0..shards).map(|shard| cluster.start(open(shard))).collect();
            cluster.call_all(&group, register);
            group
        };
        let trainer = group(&mut cluster, "trainer", Role::Trainer, 2);
        cluster.publish(&trainer, 1, content);
        started.push((trainer, group(&mut cluster, "rollout", Role::Rollout, 1), content));
    }
    cluster.auto_read = false;
    for (_, rollout, _) in &started {
        cluster.begin_all(rollout, |_| replicate(Selector::Exact(1)));
        assert!(
            cluster.clients[rollout[0]].host.reading.is_some(),
            "one's reader takes no other's place"
        );
    }
    for (_, rollout, content) in &started {
        cluster.finish_reads(rollout);
        assert_eq!(committed(&cluster.outcome(rollout[0]).unwrap()), Some(1));
        assert_eq!(cluster.content(rollout), *content);
    }
    assert_eq!((cluster.counters().challenges, cluster.counters().proofs), (2, 2));
    let snapshot = cluster.server.snapshot(cluster.now);
    for model in ["one", "other"] {
        let model = &snapshot.models[model];
        let holders: Vec<_> = model.versions.values().collect();
        assert_eq!(holders, [&["rollout".to_owned(), "trainer".to_owned()]]);
        assert_eq!((model.replicas.len(), model.edges.len(), model.retain), (2, 0, 1));
    }
    // What goes in one stays in the other.
    let (trainer, ..) = &started[0];
    assert!(cluster.unpublished(trainer));
    let listed = |cluster: &mut Cluster, at: usize| -> usize {
        let listing = cluster.list(&started[at].1);
        listing.versions.values().map(|names| names.len()).sum()
    };
    assert_eq!((listed(&mut cluster, 0), listed(&mut cluster, 1)), (1, 2));
    assert!(matches!(cluster.outcome(started[1].0[0]), Some(Ok(Answer::Published { .. }))));
}

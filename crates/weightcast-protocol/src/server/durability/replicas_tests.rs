//! That what must hold of offload and seed replicas is looked at: a server whose books were spoiled
//! says so, and says nothing where all is as it may be.

use super::*;
use crate::message::{ClientMessage, Open};
use crate::server::Server;
use crate::server::props::opening;
use crate::server::stores::group::{Group, Held, Over};
use crate::server::stores::trust::Trust;
use crate::server::{ServerConfig, ServerOutput};
use crate::{ConnectionId, ContentDigest, SessionId, Term};

/// A server with two rollouts of one shard in one datacentre.
fn server() -> (Server, [Incarnation; 2]) {
    let mut server = Server::new(ServerConfig::default());
    for (number, replica) in [(1, "a"), (2, "b")] {
        let open = Open { session: SessionId(number.into()), ..opening("policy", replica, 1) };
        server.handle(Time(1), ConnectionId(number), ClientMessage::Open(open));
    }
    while let Some(output) = server.poll_output() {
        assert!(matches!(output, ServerOutput::Send { .. }));
    }
    let groups: Vec<Incarnation> = server.groups.ids().copied().collect();
    assert_eq!(server.validate(), Ok(()));
    (server, groups.try_into().expect("two of them"))
}

fn model(server: &mut Server) -> &mut Model {
    server.models.get_mut("policy").expect("somebody is in it")
}

fn group(server: &mut Server, group: Incarnation) -> &mut Group {
    server.groups.get_mut(&group).expect("it lives")
}

fn broken(server: &Server) -> Option<&'static str> {
    server.validate().err().map(|violation| violation.invariant)
}

fn gone() -> Incarnation {
    Incarnation { term: Term(9), number: 9 }
}

fn version(number: u64) -> Version {
    Version { epoch: crate::Epoch(0), number }
}

fn over() -> Option<Over> {
    let error = CallError::Misuse { detail: "closed".into() };
    Some(Over { error, closing: true })
}

/// What changes the books of one of two.
type Change = fn(&mut Server, Incarnation);

#[test]
fn a_datacentre_has_one_seed_that_is_not_about_to_go() {
    let exceptions: [(&str, Change); 6] = [
        ("none", |_, _| {}),
        ("it goes", |server, seed| group(server, seed).over = over()),
        ("it was told to", |server, seed| group(server, seed).released = true),
        ("it comes over", |server, seed| group(server, seed).recovering = true),
        ("others may", |server, _| model(server).recovers = true),
        ("it is elsewhere", |server, seed| {
            let members = group(server, seed).members.values_mut();
            members.for_each(|member| member.location.datacentre = "far".into());
        }),
    ];
    for (which, change) in exceptions {
        for changed in [0, 1] {
            let (mut server, seeds) = server();
            model(&mut server).seeding.replicas.extend(seeds);
            change(&mut server, seeds[changed]);
            let violation = server.books().validate_seeds("policy", &server.models["policy"]).err();
            let expected = (which == "none").then_some("O2");
            assert_eq!(violation.map(|violation| violation.invariant), expected, "{which}");
        }
    }
}

#[test]
fn whoever_is_gone_is_in_no_book() {
    let books: [Change; 3] = [
        |server, group| _ = model(server).seeding.replicas.insert(group),
        |server, group| _ = model(server).retention.replicas.insert(group),
        |server, group| _ = model(server).retention.held_back.insert(group),
    ];
    for book in books {
        let (mut server, [one, _]) = server();
        book(&mut server, one);
        assert_eq!(broken(&server), None);
        book(&mut server, gone());
        assert_eq!(broken(&server), Some("T5"));
    }
    // Who was asked for an offload waits for it.
    let (mut server, [one, other]) = server();
    model(&mut server).retention.asked.insert(version(1), one);
    model(&mut server).retention.held_back.insert(other);
    assert_eq!(broken(&server), Some("T5"));
    model(&mut server).retention.held_back.insert(one);
    assert_eq!(broken(&server), None);
}

/// Both list a copy of version 1, as offload replicas do.
fn copies(trust: [Trust; 2]) -> (Server, [Incarnation; 2]) {
    let (mut server, offloads) = server();
    let content = crate::server::stores::model::Content {
        catalog: ContentDigest::default(),
        sum: None,
        since: crate::server::stores::observed::Observed(Time(0)),
    };
    model(&mut server).known.insert(version(1), content);
    for (offload, trust) in offloads.into_iter().zip(trust) {
        let group = group(&mut server, offload);
        group.registered = true;
        group.held = Some(Held {
            version: version(1),
            catalog: content.catalog,
            generations: vec![crate::Generation(1)],
            sums: Default::default(),
            sealed: true,
            authored: false,
            trust,
            accusers: Default::default(),
            fenced: None,
            offload_failed: None,
            visible: true,
        });
        let replica = group.replica.clone();
        model(&mut server).show(version(1), &replica, offload);
        model(&mut server).retention.replicas.insert(offload);
    }
    (server, offloads)
}

#[test]
fn a_version_has_one_offload_once_one_of_them_is_proved() {
    use Trust::{Claimed, Proved, Refuted};
    for trust in [[Claimed, Claimed], [Claimed, Refuted], [Refuted, Refuted]] {
        assert_eq!(broken(&copies(trust).0), None, "{trust:?}");
    }
    for trust in [[Proved, Claimed], [Claimed, Proved], [Proved, Proved], [Refuted, Proved]] {
        assert_eq!(broken(&copies(trust).0), Some("A4"), "{trust:?}");
    }
    let exceptions: [Change; 4] = [
        |server, _| model(server).recovers = true,
        |server, copy| _ = model(server).retention.replicas.remove(&copy),
        |server, copy| group(server, copy).held.as_mut().unwrap().sealed = false,
        |server, copy| server.copies().hide(copy),
    ];
    for change in exceptions {
        for changed in [0, 1] {
            let (mut server, copies) = copies([Proved, Proved]);
            change(&mut server, copies[changed]);
            assert_eq!(broken(&server), None);
        }
    }
}

/// A reader's list of slow sources does not grow with those that come and go.
#[test]
fn who_is_gone_is_not_remembered_as_slow() {
    let (mut server, [reader, source]) = server();
    group(&mut server, reader).slow.insert(gone(), 5);
    server.transfers().note_slow(reader, source, 7);
    assert_eq!(server.groups[&reader].slow, [(source, 7)].into());
    server.transfers().note_slow(reader, source, 9);
    assert_eq!(server.groups[&reader].slow, [(source, 9)].into(), "what it gave last counts");
}

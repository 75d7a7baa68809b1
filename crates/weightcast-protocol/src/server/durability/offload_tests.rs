use super::*;
use crate::Time;
use crate::server::Server;
use crate::server::props::{server, version};
use crate::server::stores::group::Over;

/// A group of two shards that holds version 1, and another one.
fn owners() -> (Server, [Incarnation; 2]) {
    let mut server = server();
    let groups = ["owner", "other"].map(|name| server.prop(name, 2));
    groups.iter().for_each(|group| server.holds(*group, version(1)));
    (server, groups)
}

fn ask(server: &mut Server, owner: Incarnation) {
    let model = server.models.get_mut("policy").expect("a prop");
    model.retention.asked.insert(version(1), owner);
    model.retention.held_back.insert(owner);
}

fn failed(server: &Server, group: Incarnation) -> Option<String> {
    server.groups[&group].held.as_ref().expect("it holds it").offload_failed.clone()
}

fn forget(server: &mut Server) {
    server.agenda.clear();
}

#[test]
fn an_offload_fails_by_the_word_of_whoever_was_asked_of_the_copy_that_it_holds() {
    for asked in [None, Some(0), Some(1)] {
        // Its shards serve it at 10 and 11.
        for (shard, generation) in [(0, 10), (1, 11), (0, 11), (1, 10), (1, 12)] {
            let (mut server, groups) = owners();
            if let Some(owner) = asked {
                ask(&mut server, groups[owner]);
            }
            forget(&mut server);
            let member = server.member(groups[0], shard);
            let reason = "é".repeat(DETAIL_CHARS + 1);
            server.durability().offload_failed(
                member,
                version(2),
                Generation(generation),
                reason.clone(),
            );
            assert_eq!(failed(&server, groups[0]), None, "it is not asked for that");
            server.durability().offload_failed(member, version(1), Generation(generation), reason);
            let counts = asked == Some(0) && generation == 10 + u64::from(shard);
            let expected = format!("shard {shard}: {}", "é".repeat(DETAIL_CHARS));
            assert_eq!(failed(&server, groups[0]), counts.then_some(expected));
            let stays = asked.is_some() && !counts;
            assert_eq!(server.models["policy"].retention.asked.len(), usize::from(stays));
            assert_eq!(server.agenda.groups.contains(&groups[0]), counts);
            assert_eq!(server.agenda.models.contains("policy"), counts);
        }
    }
}

/// Only an offload that was made for the group that was asked, and was not told to go, fails the
/// request.
#[test]
fn an_offload_that_ends_before_it_is_there_has_failed() {
    for (name, released, fails) in [
        (offload_name("owner", version(1)), false, true),
        (offload_name("owner", version(1)), true, false),
        (offload_name("other", version(1)), false, false),
        (offload_name("owner", version(2)), false, false),
    ] {
        let (mut server, [owner, _]) = owners();
        ask(&mut server, owner);
        let copy = server.prop(&name, 2);
        server.at(copy).role = Role::Offload(version(1));
        server.at(copy).released = released;
        forget(&mut server);
        server.durability().note_end(copy);
        let expected = fails.then(|| format!("{name} was lost"));
        assert_eq!(failed(&server, owner), expected, "{name}, {released}");
        assert_eq!(server.models["policy"].retention.asked.is_empty(), fails);
        assert_eq!(server.agenda.groups.contains(&owner), fails);
    }
}

#[test]
fn a_group_that_breaks_is_held_back_no_more_and_one_that_closes_is() {
    for (over, released, ends) in [
        (None, false, true),
        (Some(false), false, true),
        (Some(true), false, false),
        (Some(false), true, false),
    ] {
        let (mut server, [owner, _]) = owners();
        ask(&mut server, owner);
        server.durability().hold_until(Time(0), owner, Time(9));
        let error = CallError::Misuse { detail: "over".into() };
        server.at(owner).over = over.map(|closing| Over { error, closing });
        server.at(owner).released = released;
        forget(&mut server);
        server.durability().note_end(owner);
        assert_eq!(server.groups[&owner].hold_until.is_none(), ends, "{over:?}, {released}");
        assert_eq!(server.books().group(owner).is_held_back(), !ends);
        assert_eq!(server.models["policy"].retention.asked.is_empty(), ends);
        assert_eq!(server.agenda.models.contains("policy"), ends, "others may be asked");
    }
}

#[test]
fn a_seal_is_news_where_something_is_retained_or_offloaded() {
    for (versions, replicas) in [(0, 0), (1, 0), (0, 1), (1, 1)] {
        let (mut server, [owner, other]) = owners();
        let retention = &mut server.models.get_mut("policy").expect("a prop").retention;
        retention.versions = versions;
        retention.replicas.extend((replicas > 0).then_some(other));
        ask(&mut server, owner);
        forget(&mut server);
        server.durability().note_seal(owner);
        assert_eq!(server.agenda.models.contains("policy"), versions + replicas > 0);
        assert_eq!((server.counters.offloads, failed(&server, owner)), (0, None));
        assert_eq!(server.models["policy"].retention.asked.len(), 1, "it is no offload");
        server.at(other).role = Role::Offload(version(1));
        server.durability().note_seal(other);
        assert_eq!(server.counters.offloads, 1);
        assert!(server.models["policy"].retention.asked.is_empty());
    }
}

#[test]
fn an_offload_is_needed_while_its_version_is_retained_and_held_by_nobody_else() {
    type Change = fn(&mut Server, Incarnation);
    let scene = || {
        let mut server = server();
        let owner = server.prop("owner", 2);
        let copy = server.prop(&offload_name("owner", version(1)), 2);
        server.at(copy).role = Role::Offload(version(1));
        server.holds(copy, version(1));
        server.models.get_mut("policy").expect("a prop").retention.versions = 1;
        (server, owner, copy)
    };
    let is_needed = |server: &Server, copy| server.books().group(copy).is_offload_needed();
    let (server, owner, copy) = scene();
    assert!(is_needed(&server, copy));
    let needless: [Change; 3] = [
        |server, copy| {
            let error = CallError::Misuse { detail: "refused".into() };
            server.at(copy).held.as_mut().expect("set").fenced = Some(error);
        },
        |server, _| server.models.get_mut("policy").expect("a prop").retention.versions = 0,
        |server, _| {
            let holder = server.prop("holder", 1);
            server.holds(holder, version(1));
            server.at(holder).held.as_mut().expect("set").trust = Trust::Proved;
        },
    ];
    let early: [Change; 4] = [
        |server, copy| server.at(copy).released = true,
        |server, copy| server.at(copy).recovering = true,
        |server, _| server.models.get_mut("policy").expect("a prop").recovers = true,
        |server, copy| {
            let error = CallError::Misuse { detail: "over".into() };
            server.at(copy).over = Some(Over { error, closing: true });
        },
    ];
    for change in needless {
        let mut server = server.clone();
        change(&mut server, copy);
        assert!(!is_needed(&server, copy));
        for leave_alone in early {
            let mut server = server.clone();
            leave_alone(&mut server, copy);
            assert!(is_needed(&server, copy), "it goes already, or it is too early to tell");
        }
    }
    // On its way it is needed while it is what its owner was asked for.
    let mut server = server;
    server.at(copy).held = None;
    assert!(!is_needed(&server, copy));
    ask(&mut server, owner);
    assert!(is_needed(&server, copy));
    let other = server.prop("other", 2);
    ask(&mut server, other);
    assert!(!is_needed(&server, copy), "another one was asked since");
}

//! Who is needed in a datacentre, and who is not: each reason by itself, and all of them together.

use super::*;
use crate::server::Server;
use crate::server::props::{server, version};
use crate::server::stores::group::Over;

const HERE: &str = "here";
const NOW: Time = Time(50);

fn error() -> CallError {
    CallError::Misuse { detail: "over".into() }
}

fn place(server: &mut Server, group: Incarnation, at: &str) {
    for member in server.at(group).members.values_mut() {
        member.location.datacentre = at.to_owned();
    }
}

fn put(server: &mut Server, name: &str, at: &str, held: Option<u64>) -> Incarnation {
    let group = server.prop(name, 1);
    place(server, group, at);
    if let Some(number) = held {
        server.holds(group, version(number));
    }
    group
}

fn seed(server: &mut Server, owner: &str, number: u64, held: Option<u64>) -> Incarnation {
    let name = crate::server::stores::seeding::seed_name(owner, version(number));
    let seed = put(server, &name, HERE, held);
    server.at(seed).role = Role::Seed(version(number));
    server.models.get_mut("policy").expect("a prop").seeding.replicas.insert(seed);
    seed
}

fn asks(server: &mut Server, at: &str, owner: &str, number: u64) {
    let (version, owner, until) = (version(number), owner.to_owned(), Time(99));
    let asked = Asked { ask: 5, version, owner, until };
    let model = server.models.get_mut("policy").expect("a prop");
    model.seeding.asked.insert(at.to_owned(), asked);
}

fn asked(server: &Server) -> Option<(u64, u64)> {
    let asked = server.models["policy"].seeding.asked.get(HERE);
    asked.map(|asked| (asked.ask, asked.version.number))
}

#[test]
fn a_version_is_lacked_by_rollouts_of_its_datacentre_that_hold_less_or_nothing() {
    for role in [Role::Rollout, Role::Trainer, Role::Seed(version(2)), Role::Offload(version(2))] {
        for (registered, at) in [(false, HERE), (true, HERE), (true, "there"), (true, "")] {
            for held in [None, Some(1), Some(2), Some(3)] {
                let mut server = server();
                let group = put(&mut server, "g", at, held);
                (server.at(group).role, server.at(group).registered) = (role, registered);
                let lacks = role == Role::Rollout && registered && held.is_none_or(|held| held < 2);
                let seed = seed(&mut server, "owner", 2, None);
                let lacked = server.books().group(seed).is_lacked(version(2));
                assert_eq!(lacked, lacks && at == HERE, "{role:?} {registered} {at} {held:?}");
            }
        }
    }
}

/// A seed that holds version 2, its owner and a rollout that lacks it.
fn needed() -> (Server, Incarnation, Incarnation) {
    let mut server = server();
    put(&mut server, "owner", HERE, Some(1));
    let lacks = put(&mut server, "lacks", HERE, None);
    let seed = seed(&mut server, "owner", 2, Some(2));
    (server, seed, lacks)
}

#[test]
fn a_seed_is_needed_until_something_makes_it_needless() {
    let (server, seed, lacks) = needed();
    assert!(server.books().group(seed).is_seed_needed());
    type Change = fn(&mut Server, Incarnation);
    let needless: [(&str, Change); 7] = [
        ("refused", |server, seed| server.at(seed).held.as_mut().unwrap().fenced = Some(error())),
        ("another is on its way", |server, _| asks(server, HERE, "owner", 3)),
        ("its owner is gone", |server, _| {
            server.models.get_mut("policy").unwrap().replicas.remove("owner");
        }),
        ("something newer is here", |server, _| _ = put(server, "new", HERE, Some(3))),
        ("it holds nothing, and is not asked for", |server, seed| server.at(seed).held = None),
        ("nobody lacks it", |server, _| {
            for group in server.groups.values_mut().filter(|g| g.role == Role::Rollout) {
                group.registered = false;
            }
        }),
        ("an earlier seed has the same", |server, seed| {
            let earlier = Incarnation { number: 0, ..seed };
            let mut group = server.groups[&seed].clone();
            group.incarnation = earlier;
            server.groups.insert(earlier, group);
            server.models.get_mut("policy").unwrap().seeding.replicas.insert(earlier);
        }),
    ];
    for (name, change) in needless {
        let mut server = server.clone();
        change(&mut server, seed);
        assert!(!server.books().group(seed).is_seed_needed(), "{name}");
        // Too early to tell, or it goes already: it is left alone.
        let mut early = server.clone();
        early.at(seed).recovering = true;
        assert!(early.books().group(seed).is_seed_needed(), "{name}, it comes over");
        let mut early = server.clone();
        early.models.get_mut("policy").expect("a prop").recovers = true;
        assert!(early.books().group(seed).is_seed_needed(), "{name}, others come over");
        server.at(seed).released = true;
        assert!(server.books().group(seed).is_seed_needed(), "{name}, it was told");
        server.at(seed).released = false;
        server.at(seed).over = Some(Over { error: error(), closing: true });
        assert!(server.books().group(seed).is_seed_needed(), "{name}, it closes");
    }
    let keeps: [(&str, Change); 5] = [
        ("another is asked for elsewhere", |server, _| asks(server, "there", "owner", 3)),
        ("something newer is elsewhere", |server, _| _ = put(server, "new", "there", Some(3))),
        ("something older is here", |server, _| _ = put(server, "new", HERE, Some(1))),
        ("a later seed has the same", |server, _| _ = self::seed(server, "other", 2, Some(2))),
        ("an older seed has less", |server, seed| {
            let earlier = Incarnation { number: 0, ..seed };
            let mut group = server.groups[&seed].clone();
            (group.incarnation, group.held.as_mut().unwrap().version) = (earlier, version(1));
            server.groups.insert(earlier, group);
            server.models.get_mut("policy").unwrap().seeding.replicas.insert(earlier);
        }),
    ];
    for (name, change) in keeps {
        let mut server = server.clone();
        change(&mut server, seed);
        assert!(server.books().group(seed).is_seed_needed(), "{name}");
    }
    // One that was told to go stands back for nobody.
    let mut server = server;
    let earlier = Incarnation { number: 0, ..seed };
    let group = crate::server::stores::group::Group {
        incarnation: earlier,
        released: true,
        ..server.groups[&seed].clone()
    };
    server.groups.insert(earlier, group);
    server.models.get_mut("policy").expect("a prop").seeding.replicas.insert(earlier);
    assert!(server.books().group(seed).is_seed_needed());
    // On its way it is needed while it is what was asked for.
    server.at(seed).held = None;
    for (at, owner, number, needed) in [
        (HERE, "owner", 2, true),
        (HERE, "owner", 3, false),
        (HERE, "lacks", 2, false),
        ("there", "owner", 2, false),
    ] {
        server.models.get_mut("policy").expect("a prop").seeding.asked.clear();
        asks(&mut server, at, owner, number);
        assert_eq!(server.books().group(seed).is_seed_needed(), needed, "{at} {owner} {number}");
    }
    assert!(server.groups.contains(&lacks));
}

#[test]
fn what_was_asked_for_is_dropped_when_it_is_here_or_whoever_was_asked_is_gone() {
    type Change = fn(&mut Server);
    let cases: [(&str, Change, bool); 8] = [
        ("nothing happens", |_| (), true),
        ("it is here", |server| _ = put(server, "g", HERE, Some(2)), false),
        ("something newer is here", |server| _ = put(server, "g", HERE, Some(3)), false),
        ("something older is here", |server| _ = put(server, "g", HERE, Some(1)), true),
        ("it is elsewhere", |server| _ = put(server, "g", "there", Some(2)), true),
        ("something newer is elsewhere", |server| _ = put(server, "g", "there", Some(3)), true),
        ("the owner is gone", |server| _ = owner_leaves(server), false),
        (
            "the owner may come over",
            |server| {
                owner_leaves(server);
                server.models.get_mut("policy").unwrap().recovers = true;
            },
            true,
        ),
    ];
    for (name, change, stays) in cases {
        let mut server = server();
        put(&mut server, "owner", HERE, Some(1));
        asks(&mut server, HERE, "owner", 2);
        change(&mut server);
        server.review_seeds("policy");
        assert_eq!(asked(&server).is_some(), stays, "{name}");
    }
}

fn owner_leaves(server: &mut Server) -> Option<Incarnation> {
    server.models.get_mut("policy").expect("a prop").replicas.remove("owner")
}

#[test]
fn a_seed_that_has_come_is_asked_for_no_more_and_any_commit_makes_up_for_a_failed_one() {
    let mut server = server();
    let owner = put(&mut server, "owner", HERE, Some(1));
    let seed = seed(&mut server, "owner", 2, None);
    asks(&mut server, HERE, "owner", 2);
    for group in [owner, seed] {
        server.at(group).seed_failed = true;
    }
    server.durability().note_seeded(owner);
    assert_eq!((asked(&server), server.counters.seeds), (Some((5, 2)), 0));
    assert!(!server.groups[&owner].seed_failed);
    server.durability().note_seeded(seed);
    assert_eq!((asked(&server), server.counters.seeds), (None, 1));
    // Of another one it says nothing.
    asks(&mut server, HERE, "owner", 3);
    server.durability().note_seeded(seed);
    assert_eq!(asked(&server), Some((5, 3)));
}

#[test]
fn a_seed_that_is_let_go_is_told_once_and_nobody_waits_for_it() {
    for held in [None, Some(2)] {
        let mut server = server();
        put(&mut server, "owner", HERE, Some(1));
        let seed = seed(&mut server, "owner", 2, held);
        asks(&mut server, HERE, "owner", 2);
        for _ in 0..2 {
            server.let_seed_go(seed);
            let group = &server.groups[&seed];
            assert_eq!((group.released, group.over.is_some()), (held.is_some(), held.is_none()));
            assert_eq!(server.counters.seeds_released, u64::from(held.is_some()));
            assert_eq!(asked(&server).is_some(), held.is_some());
            assert_eq!(server.counters.seeds_failed, 0, "it is not wanted, and has not failed");
        }
    }
    // One that is at its end already is left alone.
    let (mut server, seed, _) = needed();
    server.at(seed).over = Some(Over { error: error(), closing: true });
    server.let_seed_go(seed);
    assert!(!server.groups[&seed].released && server.counters.seeds_released == 0);
}

#[test]
fn a_seed_that_comes_over_goes_on_with_its_time_begun_anew() {
    for deadline in [7, 600] {
        for (held, before) in [(None, false), (Some(2), false), (None, true)] {
            let mut server = server();
            server.config.seed_deadline = crate::Span(deadline);
            let seed = seed(&mut server, "owner", 2, held);
            if before {
                asks(&mut server, HERE, "other", 3);
            }
            server.agenda.models.clear();
            server.durability().seed_came_over(NOW, seed);
            let expected = match (before, held) {
                (true, _) => Some((5, 3)), // what is on its way stays
                (false, None) => Some((0, 2)),
                (false, Some(_)) => None,
            };
            assert_eq!(asked(&server), expected);
            assert!(server.agenda.models.contains("policy"));
            if expected == Some((0, 2)) {
                let asked = &server.models["policy"].seeding.asked[HERE];
                assert_eq!((asked.owner.as_str(), asked.until), ("owner", Time(50 + deadline)));
            }
        }
    }
    // Another group, or one that has broken, is none.
    let mut server = server();
    let group = put(&mut server, "g", HERE, None);
    server.durability().seed_came_over(NOW, group);
    assert_eq!(asked(&server), None);
    let seed = seed(&mut server, "owner", 2, None);
    server.at(seed).over = Some(Over { error: error(), closing: false });
    server.durability().seed_came_over(NOW, seed);
    assert_eq!(asked(&server), None);
}

#[test]
fn a_seed_that_takes_too_long_fails_at_its_time_and_whoever_was_asked_crosses() {
    for (now, overdue) in [(98, false), (99, true), (100, true)] {
        let mut server = server();
        let owner = put(&mut server, "owner", HERE, Some(1));
        let other = put(&mut server, "other", HERE, Some(1));
        asks(&mut server, HERE, "owner", 2);
        asks(&mut server, "there", "owner", 2);
        server.agenda.models.clear();
        server.durability().give_up_overdue_seed(Time(now), other);
        assert_eq!(asked(&server).is_none(), overdue);
        assert!(server.models["policy"].seeding.asked.contains_key("there"));
        assert_eq!(server.counters.seeds_failed, u64::from(overdue));
        assert_eq!(server.groups[&owner].seed_failed, overdue, "who was asked");
        assert!(!server.groups[&other].seed_failed);
        assert_eq!(server.agenda.models.contains("policy"), overdue);
    }
}

/// A rollout that holds version 2 and wants another one.
#[test]
fn whoever_holds_something_waits_for_a_seed_that_brings_more_or_what_it_wants() {
    for wanted in 1..5 {
        for brings in 1..5 {
            for (at, near, held) in [
                (HERE, false, true),
                ("there", false, true),
                (HERE, true, true),
                (HERE, false, false),
            ] {
                let mut server = server();
                let reader = put(&mut server, "reader", HERE, held.then_some(2));
                if near {
                    put(&mut server, "near", HERE, Some(wanted));
                }
                let useful = brings == wanted || brings > 2;
                let expected = held && useful && at == HERE && !near;
                let waits =
                    |server: &Server| server.books().group(reader).waits_for_seed(version(wanted));
                // Asked for.
                let mut asked = server.clone();
                asks(&mut asked, at, "owner", brings);
                assert_eq!(waits(&asked), expected, "{wanted} {brings} {at} {near} {held}");
                // On its way, whoever brings it.
                let far = put(&mut server, "far", "far", Some(brings));
                let crossing = put(&mut server, "crossing", at, None);
                server.reads(crossing, version(brings), &[far]);
                assert_eq!(waits(&server), expected, "{wanted} {brings} {at} {near} {held}");
                // Of another model it is of no use.
                server.at(crossing).model = "other".into();
                assert!(!waits(&server));
            }
        }
    }
}

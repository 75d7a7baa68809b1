use super::*;
use crate::CallError;
use crate::server::Server;
use crate::server::props::{server, version};
use crate::server::stores::group::Over;

fn error() -> CallError {
    CallError::Misuse { detail: "over".into() }
}

/// A group of two shards that holds version 1, whose copy counts and is believed.
fn holder() -> (Server, Incarnation) {
    let mut server = server();
    let group = holds(&mut server, "a", 1);
    (server, group)
}

fn holds(server: &mut Server, name: &str, number: u64) -> Incarnation {
    let group = server.prop(name, 2);
    server.holds(group, version(number));
    server.at(group).held.as_mut().expect("just set").trust = Trust::Proved;
    group
}

fn retain(server: &mut Server, versions: u32) {
    server.models.get_mut("policy").expect("a prop").retention.versions = versions;
}

/// What speaks against relying on a copy. Whether it counts, and whether it may be the last that does.
type Flaw = (&'static str, fn(&mut Group), bool, bool);

const FLAWS: [Flaw; 12] = [
    ("none", |_| (), true, true),
    // Who gives its copy up is out of sight.
    ("hidden", |group| group.held.as_mut().unwrap().visible = false, false, true),
    ("not sealed", |group| group.held.as_mut().unwrap().sealed = false, false, false),
    ("fenced", |group| group.held.as_mut().unwrap().fenced = Some(error()), false, false),
    ("released", |group| group.released = true, false, true),
    ("spot, first", |group| spot(group, 0), false, false),
    ("spot, last", |group| spot(group, 1), false, false),
    ("seed", |group| group.role = Role::Seed(version(1)), false, false),
    ("offload", |group| group.role = Role::Offload(version(1)), true, false),
    ("closing", |group| group.over = Some(Over { error: error(), closing: true }), false, true),
    ("broken", |group| group.over = Some(Over { error: error(), closing: false }), false, false),
    ("incomplete", |group| _ = group.members.remove(&1), false, false),
];

fn spot(group: &mut Group, shard: u32) {
    group.members.get_mut(&shard).expect("a prop").location.spot = true;
}

#[test]
fn a_copy_counts_if_nothing_at_all_speaks_against_it() {
    for (name, spoil, counts, may_be_last) in FLAWS {
        let (mut server, group) = holder();
        retain(&mut server, 1);
        spoil(server.at(group));
        assert_eq!(server.groups[&group].counts(), counts, "{name}");
        assert_eq!(server.books().group(group).is_last_countable(), may_be_last, "{name}");
        // With every other flaw it does not count either.
        for (other, spoil, also, _) in FLAWS {
            let mut server = server.clone();
            if server.groups[&group].members.len() == 2 || !other.starts_with("spot") {
                spoil(server.at(group));
                let of_roles = [name, other].iter().all(|name| ["seed", "offload"].contains(name));
                assert_eq!(
                    server.groups[&group].counts(),
                    counts && also || (of_roles && other == "offload"),
                    "{name}, {other}"
                );
            }
        }
    }
    let (mut server, group) = holder();
    retain(&mut server, 1);
    server.at(group).held = None;
    assert!(!server.groups[&group].counts() && !server.books().group(group).is_last_countable());
}

#[test]
fn a_copy_is_the_last_while_no_other_counts_and_is_believed() {
    for (name, spoil, counts, _) in FLAWS {
        for trust in [Trust::Claimed, Trust::Proved, Trust::Refuted] {
            for number in [1, 2] {
                let (mut server, group) = holder();
                retain(&mut server, 2);
                let other = holds(&mut server, "b", number);
                server.at(other).held.as_mut().expect("just set").trust = trust;
                spoil(server.at(other));
                let as_good = counts && trust == Trust::Proved && number == 1;
                assert_eq!(
                    server.books().group(group).is_last_countable(),
                    !as_good,
                    "{name}, {trust:?}"
                );
                let model = &server.models["policy"];
                assert_eq!(server.books().is_countable(model, version(1), Some(group)), as_good);
                let any = as_good || server.groups[&group].counts();
                assert_eq!(server.books().is_countable(model, version(1), None), any);
                // What is not to survive is nobody's last copy.
                retain(&mut server, 0);
                assert!(!server.books().group(group).is_last_countable());
            }
        }
    }
}

/// A version is retained unless as many newer versions as are wanted have a copy to rely on.
#[test]
fn a_version_goes_only_when_so_many_newer_ones_are_safe() {
    for safe in 0..32_u32 {
        let mut server = server();
        for number in 0..5 {
            let group = holds(&mut server, &format!("g{number}"), number);
            let trust = if safe >> number & 1 == 1 { Trust::Proved } else { Trust::Claimed };
            server.at(group).held.as_mut().expect("just set").trust = trust;
        }
        for wanted in 0..6 {
            retain(&mut server, wanted);
            for number in 0..5 {
                let newer = (safe >> (number + 1)).count_ones();
                let model = &server.models["policy"];
                let retained = server.books().is_retained(model, version(number));
                assert_eq!(retained, newer < wanted, "{number} of {safe:05b}, {wanted}");
            }
        }
    }
}

#[test]
fn a_copy_is_held_back_for_the_shorter_of_two_times_from_now() {
    let (mut server, group) = holder();
    server.config.offload_deadline = crate::Span(60);
    let held = |server: &Server| {
        let group = &server.groups[&group];
        (group.hold_until, group.held.as_ref().expect("it holds it").offload_failed.clone())
    };
    for (now, until, expected) in
        [(0, 59, 59), (0, 60, 60), (0, 61, 60), (5, u64::MAX, 65), (100, 120, 120), (100, 90, 90)]
    {
        server.at(group).held.as_mut().expect("set").offload_failed = Some("before".into());
        server.durability().hold_until(Time(now), group, Time(until));
        let expected = Some(Time(expected));
        assert_eq!(held(&server), (expected, None), "whatever there was before");
        assert_eq!(server.next_timeout(), expected);
    }
    server.durability().end_hold(group);
    assert_eq!((held(&server).0, server.next_timeout()), (None, None));
}

/// What a group that wants to give its copy up hears, at time 50.
struct Heard {
    may: bool,
    waits: bool,
    asked: bool,
    lost: Option<&'static str>,
}

fn give_up(server: &mut Server, group: Incarnation, ready: bool) -> Heard {
    let before = server.counters.retention_lost;
    let may = server.durability().may_give_up(Time(50), group, ready);
    let retention = &server.models["policy"].retention;
    let reason = server.losses.back().map(|loss| loss.reason.clone());
    let known = ["it was not offloaded in time", "it was found not to hold the version's bytes"];
    let lost = reason.map(|reason| known.into_iter().find(|k| *k == reason).unwrap_or("other"));
    assert_eq!(server.counters.retention_lost - before, u64::from(lost.is_some()));
    let waits = retention.held_back.contains(&group);
    Heard { may, waits, asked: retention.asked.contains_key(&version(1)), lost }
}

#[test]
fn the_last_copy_waits_for_its_time_and_is_lost_with_the_reason() {
    for ready in [false, true] {
        for (until, overdue) in
            [(None, true), (Some(49), true), (Some(50), true), (Some(51), false)]
        {
            for (failed, trust) in [
                (false, Trust::Proved),
                (true, Trust::Proved),
                (false, Trust::Refuted),
                (true, Trust::Refuted),
            ] {
                let (mut server, group) = holder();
                retain(&mut server, 1);
                server.at(group).hold_until = until.map(Time);
                let held = server.at(group).held.as_mut().expect("set");
                held.offload_failed = failed.then(|| "no memory".to_owned());
                held.trust = trust;
                let heard = give_up(&mut server, group, ready);
                let reason = match (trust, failed, overdue) {
                    (Trust::Refuted, ..) => Some("it was found not to hold the version's bytes"),
                    (_, true, _) => Some("other"),
                    (_, false, true) => Some("it was not offloaded in time"),
                    (_, false, false) => None,
                };
                assert_eq!(heard.lost, reason.filter(|_| ready), "{until:?} {failed} {trust:?}");
                assert_eq!(heard.may, reason.is_some() && ready);
                assert_eq!((heard.waits, heard.asked), (reason.is_none(), reason.is_none()));
            }
        }
    }
}

#[test]
fn who_holds_no_last_copy_waits_for_nothing_and_its_offload_is_not_wanted() {
    for ready in [false, true] {
        let (mut server, group) = holder();
        retain(&mut server, 1);
        server.durability().hold_until(Time(0), group, Time(99));
        let heard = give_up(&mut server, group, ready);
        assert!(!heard.may && heard.waits && heard.asked);
        // Another one is asked as well, for another version.
        let other = server.prop("other", 1);
        let model = server.models.get_mut("policy").expect("a prop");
        model.retention.asked.insert(version(7), other);
        model.retention.held_back.insert(other);
        holds(&mut server, "b", 1);
        server.agenda.models.clear();
        let heard = give_up(&mut server, group, ready);
        assert!(heard.may && !heard.waits && !heard.asked && heard.lost.is_none());
        assert!(server.agenda.models.contains("policy"), "who waits for it looks again");
        let retention = &server.models["policy"].retention;
        assert!(retention.held_back.contains(&other) && retention.asked.contains_key(&version(7)));
        // It may become the last again, as long as it has not given its copy up.
        let until = (!ready).then_some(Time(99));
        assert_eq!(server.groups[&group].hold_until, until);
        assert_eq!(server.next_timeout(), until);
    }
}

/// One offload of a version is asked for, however many groups want to give the version up.
#[test]
fn a_version_is_offloaded_by_one_at_a_time() {
    let (mut server, group) = holder();
    retain(&mut server, 1);
    server.at(group).hold_until = Some(Time(99));
    let other = server.prop("other", 1);
    let model = server.models.get_mut("policy").expect("a prop");
    model.retention.asked.insert(version(1), other);
    let heard = give_up(&mut server, group, true);
    assert!(!heard.may && heard.waits && heard.lost.is_none());
    assert_eq!(server.models["policy"].retention.asked[&version(1)], other);
}

//! What is said of groups put into the books by hand.

use super::*;
use crate::message::{Call, Role};
use crate::server::props::{SEQ, server, version};
use crate::server::stores::group::Over;
use crate::server::stores::transaction::Phase;
use crate::{CallError, Condition, Freshness, Oldest, OpSeq, Quorum, Selector, Span};

const NOW: Time = Time(2_000_000_000);

/// Calls begin at time zero with a deadline at 30 s, and every shard was heard half a second ago.
fn heard(server: &mut Server) {
    let lease = server.config.lease_with_margin();
    for session in server.sessions.values_mut() {
        session.lease_until = Time(NOW.0 - 500_000_000) + lease;
    }
    for group in server.groups.values_mut() {
        for call in group.transactions.values_mut() {
            call.deadline = Time(30_000_000_000);
        }
    }
}

fn asked(server: &Server, group: Incarnation) -> Why {
    server.why(NOW, None, &server.groups[&group].replica).unwrap()
}

fn sentence(server: &mut Server, group: Incarnation) -> String {
    heard(server);
    asked(server, group).sentence
}

fn called_by(server: &mut Server, group: Incarnation, call: Call, shards: &[u32]) {
    let transaction = server.has_called(group, call.clone());
    transaction.arrived = shards.iter().map(|shard| (*shard, call.clone())).collect();
}

const WAITED: &str = "has waited 2.0 s for";
const ENDS: &str = "the deadline of the call ends the wait in 28.0 s";
const SILENT: &str = "has no connection, last heard 0.5 s ago, evicted in 5.0 s";

#[test]
fn a_shard_that_never_calls_is_named_with_its_last_call() {
    let mut server = server();
    let group = server.prop("g", 2);
    called_by(
        &mut server,
        group,
        Call::Publish { version: 3, catalog: Default::default(), generation: Default::default() },
        &[0],
    );
    for (last, told) in [
        (OpSeq(0), "has called nothing yet"),
        (OpSeq(2), "last made call 2"),
        (SEQ, "last called publish(3) 2.0 s ago"),
    ] {
        server.at(group).members.get_mut(&1).unwrap().last_seq = last;
        let expected = format!(
            "publish(3) of replica g {WAITED} shard 1 of replica g to call; shard 1 {SILENT}, and {told}; {ENDS}"
        );
        assert_eq!(sentence(&mut server, group), expected);
    }
    server.connections.bind(server.session(group, 1), crate::ConnectionId(1));
    assert!(
        sentence(&mut server, group).contains("shard 1 is connected, last heard 0.5 s ago, and")
    );
}

#[test]
fn a_shard_that_has_not_opened_is_named_before_any_call() {
    let mut server = server();
    let group = server.prop("g", 3);
    server.at(group).members.remove(&1);
    let to_open = "shard 1 of replica g to open: the others say that num_shards is 3";
    assert_eq!(sentence(&mut server, group), format!("open of replica g waits for {to_open}"));
    server.at(group).recovering = true;
    assert!(sentence(&mut server, group).contains("shards 0, 1, 2 of replica g to come over"));
}

#[test]
fn a_version_that_nobody_publishes_leads_to_the_trainer() {
    let mut server = server();
    let group = server.prop("g", 1);
    let call = Call::Replicate { selector: Selector::Latest };
    called_by(&mut server, group, call, &[0]);
    let none =
        "version latest of model policy (latest is none); no trainer of model policy is open";
    let begins = format!("replicate(latest) of replica g {WAITED}");
    assert_eq!(sentence(&mut server, group), format!("{begins} {none}; {ENDS}"));
    let trainer = server.prop("t", 2);
    server.at(trainer).role = Role::Trainer;
    let idle = format!(
        "replica t makes no call now, holds nothing, has called nothing yet; its shard 0 {SILENT}; its shard 1 {SILENT}"
    );
    let expected =
        format!("{begins} version latest of model policy (latest is none); {idle}; {ENDS}");
    assert_eq!(sentence(&mut server, group), expected);
    let why = asked(&server, group);
    assert_eq!((why.waits, why.held_up_by, why.cycle), (true, vec!["t".to_owned()], Vec::new()));
}

#[test]
fn replicas_that_wait_for_each_other_are_a_cycle() {
    let mut server = server();
    let [trainer, rollout] = ["t", "r"].map(|name| server.prop(name, 1));
    server.at(trainer).role = Role::Trainer;
    server.holds(trainer, version(1));
    let held = Freshness { oldest: Oldest::Number(2), by: Quorum::All };
    called_by(&mut server, trainer, Call::Wait { until: Condition::Held(held) }, &[0]);
    called_by(&mut server, rollout, Call::Replicate { selector: Selector::Exact(2) }, &[0]);
    for (of, cycle) in [(trainer, ["t", "r"]), (rollout, ["r", "t"])] {
        heard(&mut server);
        let why = asked(&server, of);
        assert_eq!(why.cycle, cycle);
        let closes = format!("this closes a cycle of {}, {}", cycle[0], cycle[1]);
        assert!(why.sentence.contains(&closes), "{}", why.sentence);
    }
}

#[test]
fn a_place_at_a_source_is_held_by_its_readers() {
    let mut server = server();
    let [source, first, second] = ["s", "a", "b"].map(|name| server.prop(name, 1));
    server.holds(source, version(1));
    server.reads(first, version(1), &[source]);
    let arrived = |server: &mut Server, group| {
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived.insert(0, call.call.clone());
    };
    arrived(&mut server, first);
    called_by(&mut server, second, Call::Replicate { selector: Selector::Latest }, &[0]);
    server.at(second).transactions.get_mut(&SEQ).unwrap().transfer =
        Some(crate::server::stores::transaction::GroupTransfer {
            version: Some(version(1)),
            ..Default::default()
        });
    let told = sentence(&mut server, second);
    for part in [
        "for a free source of version 1 (epoch 0); s serves a, and --fanout allows 1",
        "a waits in replicate(1) for shard 0 to read version 1 (epoch 0)",
        "the source is s (a shard of it, at data port s:0, has no connection",
    ] {
        assert!(told.contains(part), "{told}\nlacks {part}");
    }
    for group in [source, first, second] {
        server.lies(group, 0, "h");
    }
    server.config.host_fanout = 2;
    let told = sentence(&mut server, second);
    assert!(told.contains("s serves a, and --host-fanout allows 2"), "{told}");
    let failures = &mut server.groups.transfer(second).unwrap().failures;
    failures.insert(source, 2);
    let reason = "no route".to_owned();
    let (version, source_replica) = (version(1), "s".to_owned());
    server.groups.transfer(second).unwrap().last_error =
        Some(CallError::SourceLost { version, source_replica, reason });
    let told = sentence(&mut server, second);
    assert!(told.contains("s has failed 2 times, the last time because no route"), "{told}");
}

#[test]
fn a_drain_names_the_readers_and_when_they_are_cut_off() {
    let mut server = server();
    let [source, reader] = ["s", "r"].map(|name| server.prop(name, 1));
    server.holds(source, version(1));
    server.reads(reader, version(1), &[source]);
    called_by(&mut server, source, Call::Unpublish, &[0]);
    server.at(source).drain_until = Some(NOW + Span::from_secs(4));
    let told = sentence(&mut server, source);
    let expected = format!(
        "unpublish of replica s {WAITED} r to finish reading from replica s; readers are cut off in 4.0 s; r waits"
    );
    assert!(told.starts_with(&expected), "{told}");
}

#[test]
fn a_seal_that_is_missing_is_looked_for_at_the_publisher() {
    let mut server = server();
    let [source, reader] = ["s", "r"].map(|name| server.prop(name, 2));
    server.holds(source, version(1));
    let held = server.at(source).held.as_mut().unwrap();
    held.sealed = false;
    held.sums.insert(0, Default::default());
    server.reads(reader, version(1), &[source]);
    let call = server.at(reader).transactions.get_mut(&SEQ).unwrap();
    call.arrived = (0..2).map(|shard| (shard, call.call.clone())).collect();
    let prepared = (crate::Generation(1), Default::default());
    let transfer = server.groups.transfer(reader).unwrap();
    transfer.prepared.extend([(0, prepared), (1, prepared)]);
    let told = sentence(&mut server, reader);
    let expected = "the publisher's digests of version 1 (epoch 0), or its source to commit; the digests of shard 1 of s are missing; replica s makes no call now";
    assert!(told.contains(expected), "{told}");
}

#[test]
fn a_relay_that_has_not_committed_is_followed() {
    let mut server = server();
    let [source, relay, reader] = ["s", "relay", "r"].map(|name| server.prop(name, 1));
    server.holds(source, version(1));
    server.reads(relay, version(1), &[source]);
    server.relays(relay);
    server.reads(reader, version(1), &[relay]);
    for group in [relay, reader] {
        let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
        call.arrived.insert(0, call.call.clone());
    }
    heard(&mut server);
    let why = asked(&server, reader);
    assert_eq!(why.held_up_by, ["relay"]);
    let prepared = (crate::Generation(1), Default::default());
    server.groups.transfer(reader).unwrap().prepared.insert(0, prepared);
    let told = sentence(&mut server, reader);
    assert!(
        told.contains("relay has not committed the version; relay waits in replicate(1)"),
        "{told}"
    );
}

#[test]
fn shards_that_install_and_copies_that_are_held_back_are_named() {
    let mut server = server();
    let [source, group] = ["s", "g"].map(|name| server.prop(name, 2));
    server.holds(source, version(1));
    server.reads(group, version(1), &[source]);
    let call = server.at(group).transactions.get_mut(&SEQ).unwrap();
    call.arrived = (0..2).map(|shard| (shard, call.call.clone())).collect();
    let transfer = server.groups.transfer(group).unwrap();
    transfer.phase = Phase::Installing;
    transfer.installed.insert(0, crate::Generation(2));
    let told = sentence(&mut server, group);
    assert!(told.contains("the shards to put version 1 (epoch 0) in place; shard 1 has"), "{told}");
    server.groups.transfer(group).unwrap().phase = Phase::Draining;
    server.models.get_mut("policy").unwrap().retention.held_back.insert(group);
    server.at(group).hold_until = Some(NOW + Span::from_secs(7));
    let told = sentence(&mut server, group);
    assert!(
        told.contains("an offload of what replica g holds; the copy is held back for 7.0 s"),
        "{told}"
    );
}

#[test]
fn a_group_that_makes_no_call_waits_for_nothing() {
    let mut server = server();
    let group = server.prop("g", 1);
    server.holds(group, version(4));
    server.connections.bind(server.session(group, 0), crate::ConnectionId(1));
    let idle = "nothing is waited for: replica g makes no call now, holds version 4 (epoch 0), has called nothing yet";
    let idle = idle.replace("version 4 (epoch 0)", &version(4).to_string());
    assert_eq!(sentence(&mut server, group), idle);
    server.at(group).held.as_mut().unwrap().sealed = false;
    assert!(sentence(&mut server, group).ends_with("; the digests of shard 0 are missing"));
    let error = CallError::Misuse { detail: "over".to_owned() };
    server.at(group).over = Some(Over { error, closing: true });
    assert_eq!(sentence(&mut server, group), "nothing is waited for: replica g has ended: over");
}

/// However long the chain, the sentence ends.
#[test]
fn a_long_chain_is_cut() {
    let mut server = server();
    let groups: Vec<Incarnation> = (0..12).map(|n| server.prop(&format!("g{n:02}"), 1)).collect();
    server.holds(groups[0], version(1));
    for pair in groups.windows(2) {
        server.reads(pair[1], version(1), &[pair[0]]);
        server.relays(pair[1]);
        let call = server.at(pair[1]).transactions.get_mut(&SEQ).unwrap();
        call.arrived.insert(0, call.call.clone());
    }
    heard(&mut server);
    let why = asked(&server, groups[11]);
    assert_eq!(why.held_up_by.len(), 8);
    assert_eq!(why.held_up_by[7], "g03");
    let told = "; replica g03 waits itself, in replicate(1) for 2.0 s; ";
    assert!(why.sentence.contains(told), "it makes a call: {}", why.sentence);
}

#[test]
fn a_name_that_is_not_there_or_twice_is_said_to_be() {
    let mut server = server();
    let told = |server: &Server, model| server.why(NOW, model, "x").unwrap_err().to_string();
    assert_eq!(told(&server, None), "no replica x is known: there is none (weightcast status)");
    for name in ["a", "b", "c", "d"] {
        server.prop(name, 1);
    }
    let four = "no replica x is known: there are a, b, c, d (weightcast status)";
    assert_eq!(told(&server, None), four);
    server.prop("e", 1);
    let five = "no replica x is known: there are a, b, c, d, ... (weightcast status)";
    assert_eq!(told(&server, Some("policy")), five);
    assert!(told(&server, Some("other")).contains("there is none"));
    let open = crate::server::props::opening("other", "a", 1);
    let life = server.numbers.last_incarnation.next();
    server.membership().found_group(&open, life).unwrap();
    let twice = server.why(NOW, None, "a").unwrap_err().to_string();
    assert_eq!(twice, "models other, policy have a replica a: name one (--model)");
    assert!(
        server.why(NOW, Some("other"), "a").unwrap().sentence.contains("open of replica a waits")
    );
}

#[test]
fn the_newest_life_of_a_name_tells() {
    let mut server = server();
    let [old, new] = ["g", "g"].map(|name| server.prop(name, 1));
    server.holds(old, version(1));
    assert!(asked(&server, new).sentence.contains("holds nothing"));
}

#[test]
fn a_sentence_is_cut_to_a_page() {
    for length in [DETAIL_CHARS - 1, DETAIL_CHARS, DETAIL_CHARS + 1] {
        assert_eq!(cut("ü".repeat(length)).chars().count(), length.min(DETAIL_CHARS));
    }
}

/// A trainer that is not followed is said to wait, if it does.
#[test]
fn a_second_trainer_that_waits_itself_is_not_said_to_be_idle() {
    let mut server = server();
    let [group, first, second] = ["g", "t", "u"].map(|name| server.prop(name, 1));
    for trainer in [first, second] {
        server.at(trainer).role = Role::Trainer;
    }
    called_by(&mut server, group, Call::Replicate { selector: Selector::Latest }, &[0]);
    assert!(sentence(&mut server, group).contains("replica u makes no call now"));
    called_by(&mut server, second, Call::List, &[0]);
    assert!(sentence(&mut server, group).contains("replica u waits itself, in list for 2.0 s"));
}

/// Who asks need not be in the circle.
#[test]
fn a_circle_that_the_asker_is_not_in_is_found() {
    let mut server = server();
    let [trainer, rollout, asker] = ["t", "r", "a"].map(|name| server.prop(name, 1));
    server.at(trainer).role = Role::Trainer;
    server.at(asker).registered = false;
    server.holds(trainer, version(1));
    let held = Freshness { oldest: Oldest::Number(2), by: Quorum::All };
    called_by(&mut server, trainer, Call::Wait { until: Condition::Held(held) }, &[0]);
    called_by(&mut server, rollout, Call::Replicate { selector: Selector::Exact(2) }, &[0]);
    called_by(&mut server, asker, Call::Describe { selector: Selector::Exact(2) }, &[0]);
    heard(&mut server);
    let why = asked(&server, asker);
    assert_eq!((why.held_up_by, why.cycle), (names(["t", "r"]), names(["t", "r"])));
}

/// A timeout goes to every shard of the group in a frame.
#[test]
fn what_a_timeout_says_is_cut_to_a_page() {
    let mut server = server();
    let group = server.prop("g", 1);
    for number in 0..2 * NAMED {
        let trainer =
            server.prop(&format!("{number}{}", "t".repeat(crate::limits::NAME_BYTES - 1)), 4);
        server.at(trainer).role = Role::Trainer;
    }
    called_by(&mut server, group, Call::Replicate { selector: Selector::Latest }, &[0]);
    let (_, detail) = server.waited_for(NOW, group);
    assert_eq!(detail.chars().count(), DETAIL_CHARS, "five names fill more than a page");
}

fn names<const N: usize>(names: [&str; N]) -> Vec<String> {
    names.map(str::to_owned).to_vec()
}

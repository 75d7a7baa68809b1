//! Stages of calls of groups put into the books by hand.

use super::*;
use crate::message::Answer;
use crate::server::ServerConfig;
use crate::server::props::{SEQ, server, version};
use crate::{Attempt, CallError, Generation, Selector, ShardSums, Term, TicketKey, Time};

fn telling() -> Server {
    let mut server = server();
    server.config = ServerConfig { tell_stages: true, ..server.config };
    server
}

/// The stages that the server tells after it has looked at the group, and settled.
fn told(server: &mut Server, group: Incarnation) -> Vec<CallStage> {
    server.agenda.moved.push(group);
    server.settle(Time(5));
    std::iter::from_fn(|| server.poll_stage()).map(|change| change.stage).collect()
}

#[test]
fn each_phase_of_a_transfer_is_told_once() {
    let mut server = telling();
    let [source, group] = ["source", "g"].map(|name| server.prop(name, 2));
    server.holds(source, version(1));
    server.reads(group, version(1), &[source]);
    let call = server.at(group).pending().call.clone();
    server.at(group).pending_mut().arrived.insert(0, call.clone());
    let phase = |server: &mut Server, phase| {
        server.groups.transfer(group).unwrap().phase = phase;
        let told_now = told(server, group);
        assert_eq!(told(server, group), [], "nothing has changed since");
        told_now
    };
    assert_eq!(phase(&mut server, Phase::Waiting), [CallStage::Group]);
    server.at(group).pending_mut().arrived.insert(1, call);
    server.agenda.clear();
    assert_eq!(phase(&mut server, Phase::Waiting), [CallStage::Choose]);
    assert_eq!(phase(&mut server, Phase::Draining), [CallStage::Drain]);
    assert_eq!(phase(&mut server, Phase::Reading), [CallStage::Read]);
    let transfer = server.groups.transfer(group).unwrap();
    transfer.prepared.insert(0, (Generation(1), ShardSums::default()));
    assert_eq!(told(&mut server, group), [], "one of two shards has read");
    let transfer = server.groups.transfer(group).unwrap();
    transfer.prepared.insert(1, (Generation(1), ShardSums::default()));
    assert_eq!(told(&mut server, group), [CallStage::Commit]);
    assert_eq!(phase(&mut server, Phase::Installing), [CallStage::Install]);
    server.calls().finish(group, Err(CallError::Misuse { detail: String::new() }));
    assert_eq!(told(&mut server, group), [CallStage::Ended("misuse")]);
}

#[test]
fn a_change_names_the_call_as_its_session_does() {
    let mut server = telling();
    let [source, group] = ["source", "g"].map(|name| server.prop(name, 1));
    server.holds(source, version(1));
    server.reads(group, version(1), &[source]);
    // Sessions name calls by the term that their tickets prove: the server's own, not the last it heard of.
    server.terms.own = TicketKey::of_secret(b"job").prove(Term(3), Term(1));
    server.agenda.moved.push(group);
    server.settle(Time(5));
    let change = server.poll_stage().unwrap();
    assert_eq!(change.trace, TraceId::of(&server.terms.own, group, SEQ));
    let of = change.of.unwrap();
    assert_eq!((of.model.as_str(), of.replica.as_str()), ("policy", "g"));
    assert_eq!((of.call.as_str(), of.version), ("replicate(1)", Some(version(1))));
    assert_eq!(of.sources, ["source"]);
}

#[test]
fn calls_without_a_transfer_wait_for_their_shards_and_then_for_something() {
    for (call, waits) in [
        (Call::Unpublish, CallStage::Drain),
        (Call::Describe { selector: Selector::Latest }, CallStage::Wait),
    ] {
        let mut server = telling();
        let group = server.prop("g", 2);
        server.has_called(group, call.clone()).arrived.insert(0, call.clone());
        assert_eq!(told(&mut server, group), [CallStage::Group]);
        server.at(group).pending_mut().arrived.insert(1, call);
        assert_eq!(told(&mut server, group), [waits]);
    }
}

#[test]
fn a_call_that_ends_where_it_begins_is_told_of() {
    let mut server = telling();
    let group = server.prop("g", 1);
    server.has_called(group, Call::List).arrived.insert(0, Call::List);
    server.calls().finish(group, Ok(Answer::Unpublished));
    assert_eq!(told(&mut server, group), [CallStage::Group, CallStage::Ended("ok")]);
    assert!(server.stages.0.told.is_empty());
}

#[test]
fn a_group_that_is_forgotten_has_lost_its_call() {
    let mut server = telling();
    let group = server.prop("g", 1);
    server.has_called(group, Call::List);
    assert_eq!(told(&mut server, group), [CallStage::Group]);
    let trace = server.stages.0.told[&group].1;
    server.groups.remove(&group);
    assert!(server.agenda.moved.is_empty());
    server.tell_stages(&[]);
    let change = server.poll_stage().unwrap();
    assert_eq!((change.trace, change.stage, change.of), (trace, CallStage::Ended("lost"), None));
    assert!(server.stages.0.told.is_empty() && server.poll_stage().is_none());
}

#[test]
fn a_server_that_is_not_asked_tells_nothing() {
    let mut server = server();
    let [source, group] = ["source", "g"].map(|name| server.prop(name, 1));
    server.holds(source, version(1));
    server.reads(group, version(1), &[source]);
    server.groups.transfer(group).unwrap().attempt = Attempt(1);
    assert_eq!(told(&mut server, group), []);
    assert!(server.agenda.moved.is_empty() && server.stages.0.told.is_empty());
}

//! Parcels move from a sender that brings nothing, or writes what differs: to whom, and how often.

use std::collections::{BTreeMap, BTreeSet};

use super::driver::PushRig;
use super::{PUSH, TARGET, config, grant, needs, parcels};
use crate::push::{
    PushCommand, PushConfig, PushInput, PushReport, SendRefusal, SendRefused, SenderId, TargetEnd,
    TargetId,
};
use crate::{Generation, Span};

const ALL: &[u64] = &[1, 2, 3];

/// One target with these parcels.
fn rig(moves: u32, held: &[(u64, &[u64])]) -> PushRig {
    let mut rig = PushRig::new(PushConfig { moves, ..config() });
    rig.give(PushInput::Joins(vec![needs(7, held)]));
    rig
}

fn failed(number: u64, sender: u64) -> PushInput {
    let (sender, refusal) = (SenderId(sender), SendRefusal::Failed);
    PushInput::Refused(SendRefused { push: PUSH, target: TARGET, grant: number, sender, refusal })
}

fn routed(rig: &PushRig) -> Vec<u64> {
    rig.routes().iter().map(|sender| sender.0).collect()
}

/// The present sender of parcel 0 can't write it, under a grant of this number.
fn fails(rig: &mut PushRig, number: u64) {
    let sender = routed(rig)[0];
    rig.report(|report| PushReport { grants: vec![grant(number, sender, &[0])], ..report });
    rig.give(failed(number, sender));
}

/// What was compared: these parcels differ, and all others are written. A grant with the number of the generation is open.
fn differs(rig: &mut PushRig, generation: u64, of: &[(u32, u64)]) {
    let differing: BTreeMap<u32, SenderId> =
        of.iter().map(|(parcel, sender)| (*parcel, SenderId(*sender))).collect();
    let all = 0..rig.routes().len() as u32;
    let written: BTreeSet<u32> = all.filter(|parcel| !differing.contains_key(parcel)).collect();
    rig.report(|report| PushReport {
        written: written.clone(),
        differing: differing.clone(),
        generation: Generation(generation),
        grants: vec![grant(generation, 1, &[0])],
        ..report
    });
}

/// Only when it has left all of them does a parcel come back to one.
#[test]
fn a_parcel_that_moves_goes_to_a_sender_that_it_has_not_left() {
    let mut rig = rig(9, &[(10, ALL)]);
    let mut seen = vec![routed(&rig)[0]];
    for number in 1..=2 {
        fails(&mut rig, number);
        seen.push(routed(&rig)[0]);
    }
    seen.sort_unstable();
    assert_eq!(seen, ALL, "each of them once");
    let last = routed(&rig)[0];
    fails(&mut rig, 3);
    assert_ne!(routed(&rig)[0], last, "to any of the others");
}

#[test]
fn a_parcel_leaves_senders_that_live_as_often_as_the_configuration_lets_it() {
    for moves in [0, 1, 3] {
        let mut rig = rig(moves, &[(10, ALL)]);
        for number in 1..=u64::from(moves) {
            let before = (routed(&rig), rig.orders.len());
            fails(&mut rig, number);
            assert_ne!(routed(&rig), before.0);
            assert_eq!(rig.orders.len(), before.1 + 1);
        }
        let before = (routed(&rig), rig.orders.len());
        fails(&mut rig, 9);
        assert_eq!((routed(&rig), rig.orders.len()), before, "no more often than {moves} times");
    }
}

/// The target is told when its routes change, and not when they can't.
#[test]
fn a_sender_that_alone_holds_what_it_owes_keeps_it_and_nobody_is_told() {
    let mut rig = rig(9, &[(10, &[1])]);
    fails(&mut rig, 1);
    assert_eq!((routed(&rig), rig.orders.len()), (vec![1], 1));
    rig.now = rig.now + Span::from_secs(6);
    rig.report(|report| report);
    assert_eq!((routed(&rig), rig.orders.len()), (vec![1], 1), "nor when it is slow");
    rig.give(PushInput::SenderLost { sender: SenderId(3) });
    assert_eq!(rig.orders.len(), 1, "nor for a sender that owes nothing");
}

/// The grants of before are closed, so what it has under them counts no more.
#[test]
fn the_patience_with_a_sender_begins_anew_with_a_new_grant() {
    let mut rig = rig(9, &[(10, &[1, 2])]);
    let granted =
        |number| move |report| PushReport { grants: vec![grant(number, 1, &[0])], ..report };
    rig.report(granted(1));
    rig.now = rig.now + Span::from_secs(4);
    rig.report(|report| PushReport { grants: vec![], ..report });
    rig.now = rig.now + Span::from_secs(2);
    rig.report(granted(2));
    rig.now = rig.now + Span(4_999_999_999);
    rig.report(granted(2));
    assert_eq!(routed(&rig), [1], "5 s are not over");
    rig.now = rig.now + Span(1);
    rig.report(granted(2));
    assert_eq!(routed(&rig), [2]);
}

/// A sender that owes nothing is not slow, however long its grant was open.
#[test]
fn the_patience_with_a_sender_begins_when_it_has_something_to_write() {
    let mut rig = rig(9, &[(10, &[1]), (10, &[2]), (10, ALL)]);
    assert_eq!(routed(&rig), [1, 2, 3]);
    rig.report(|report| report);
    rig.now = rig.now + Span::from_secs(1);
    let all =
        |written: &'static [u32]| move |report| PushReport { written: parcels(written), ..report };
    rig.report(all(&[0, 1]));
    rig.now = rig.now + Span::from_secs(3);
    rig.report(all(&[0, 1]));
    rig.now = rig.now + Span::from_secs(4);
    rig.give(PushInput::SenderLost { sender: SenderId(3) });
    let to = routed(&rig)[2];
    assert_ne!(to, 3);
    rig.report(all(&[0, 1]));
    assert_eq!(routed(&rig)[2], to, "it has just been asked");
    rig.now = rig.now + Span::from_secs(5);
    rig.report(all(&[0, 1]));
    assert_ne!(routed(&rig)[2], to);
}

#[test]
fn a_sender_that_brings_something_has_its_patience_anew() {
    let mut rig = rig(9, &[(10, &[1, 2][..]); 3]);
    let owed: Vec<_> = (0..).zip(routed(&rig)).filter(|(_, sender)| *sender == 1).collect();
    assert_eq!(owed.len(), 2);
    let (first, second) = (owed[0].0, owed[1].0);
    rig.report(|report| report);
    rig.now = rig.now + Span::from_secs(4);
    rig.report(|report| PushReport { written: [first].into(), ..report });
    rig.now = rig.now + Span::from_secs(4);
    rig.report(|report| PushReport { written: [first].into(), ..report });
    assert_eq!(routed(&rig)[second as usize], 1);
    rig.now = rig.now + Span::from_secs(1);
    rig.report(|report| PushReport { written: [first].into(), ..report });
    assert_eq!(routed(&rig)[second as usize], 2);
}

/// A parcel that differs moves as one that was not written does: as often, and to another holder.
#[test]
fn what_differs_ends_the_push_once_it_has_moved_as_often_as_it_may() {
    for moves in [1, 3] {
        let mut rig = rig(moves, &[(10, &[1, 2]), (10, &[1, 2])]);
        for round in 0..u64::from(moves) {
            let from = routed(&rig)[0];
            differs(&mut rig, 2 + round, &[(0, from)]);
            assert!(rig.result.is_none(), "it may still move");
            assert_ne!(routed(&rig)[0], from);
        }
        let (from, by) = (routed(&rig)[0], routed(&rig)[1]);
        differs(&mut rig, 9, &[(1, by)]);
        assert!(rig.result.is_none(), "parcel 1 differs for the first time");
        let by = routed(&rig)[1];
        differs(&mut rig, 10, &[(0, from), (1, by)]);
        assert_eq!(rig.outcome().end, TargetEnd::Differs, "one that may not move is enough");
        assert_eq!(rig.orders.last().unwrap().command, PushCommand::Dismiss);
        assert!(rig.sent.iter().all(|grant| grant.number < 10), "no grant is passed on any more");
    }
}

/// Nobody alive holds one of them, so the other one is not asked for either.
#[test]
fn what_differs_and_nobody_holds_any_more_ends_the_push_with_one_word() {
    let mut rig = rig(9, &[(10, &[1]), (10, &[2])]);
    rig.report(|report| PushReport { written: parcels(&[0, 1]), ..report });
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    assert!(rig.result.is_none(), "what is written is written");
    differs(&mut rig, 2, &[(0, 1), (1, 2)]);
    let outcome = rig.outcome();
    assert_eq!((outcome.end, outcome.unheld), (TargetEnd::NoHolder, parcels(&[0])));
    let commands: Vec<_> = rig.orders.iter().map(|order| &order.command).collect();
    assert_eq!((commands.len(), commands[1]), (2, &PushCommand::Dismiss));
    assert_eq!(rig.driver.load(SenderId(2)), 0);
}

/// Its sender has to write it again, beside what it has to write for others.
#[test]
fn what_differs_is_a_load_again() {
    let mut rig = rig(9, &[(10, &[1]), (10, &[2])]);
    rig.give(PushInput::Joins(vec![needs(8, &[(4, &[1])])]));
    let load = |rig: &PushRig| [1, 2].map(|sender| rig.driver.load(SenderId(sender)));
    assert_eq!(load(&rig), [14, 10]);
    rig.report(|report| PushReport { written: parcels(&[0, 1]), ..report });
    assert_eq!(load(&rig), [4, 0]);
    differs(&mut rig, 2, &[(0, 1)]);
    assert_eq!(load(&rig), [14, 0]);
    rig.report(|report| PushReport { written: parcels(&[0, 1]), ..report });
    rig.give(PushInput::Leaves { target: TargetId(8) });
    assert_eq!(load(&rig), [0, 0]);
}

/// It can't write what it does not hold.
#[test]
fn a_further_holder_gets_only_the_parcels_that_it_holds() {
    let mut rig = rig(9, &[(10, &[1]), (10, &[1])]);
    let held = [(TARGET, parcels(&[1]))].into();
    rig.give(PushInput::SenderHolds { sender: SenderId(2), parcels: held });
    rig.report(|report| PushReport { grants: vec![grant(1, 1, &[0, 1])], ..report });
    rig.give(failed(1, 1));
    assert_eq!(routed(&rig), [1, 2]);
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    let outcome = rig.outcome();
    assert_eq!((outcome.end, outcome.unheld), (TargetEnd::NoHolder, parcels(&[0])));
}

/// Each counts for its own target.
#[test]
fn a_refusal_of_one_targets_grant_moves_nothing_of_another() {
    let mut rig = rig(9, &[(10, &[1, 2])]);
    rig.give(PushInput::Joins(vec![needs(8, &[(10, &[1, 2])])]));
    let other = rig.driver.routes(TargetId(8)).cloned();
    rig.report(|report| PushReport { grants: vec![grant(1, 1, &[0])], ..report });
    let (sender, refusal) = (SenderId(1), SendRefusal::Busy);
    for target in [TargetId(8), TargetId(99)] {
        let refused = SendRefused { push: PUSH, target, grant: 1, sender, refusal };
        rig.give(PushInput::Refused(refused));
        assert_eq!((routed(&rig), rig.orders.len()), (vec![1], 2));
    }
    let refused = SendRefused { push: PUSH, target: TARGET, grant: 1, sender, refusal };
    rig.give(PushInput::Refused(refused));
    assert_eq!(routed(&rig), [2], "a busy sender's too");
    assert_eq!(rig.driver.routes(TargetId(8)).cloned(), other);
}

//! Targets join and leave, and bytes are spread over senders.

use super::driver::PushRig;
use super::{TARGET, config, needs};
use crate::Span;
use crate::push::{PushCommand, PushInput, PushReport, SenderId, TargetEnd, TargetId};

/// Parcels of these bytes that all of the senders hold.
fn shared<'a>(bytes: &[u64], by: &'a [u64]) -> Vec<(u64, &'a [u64])> {
    bytes.iter().map(|bytes| (*bytes, by)).collect()
}

#[test]
fn bytes_are_spread_evenly_over_all_who_hold_them() {
    let mut rig = PushRig::new(config());
    for target in 0..8 {
        let all = shared(&[7, 1, 5, 3, 2, 9, 4, 4], &[1, 2, 3, 4]);
        rig.give(PushInput::Joins(vec![needs(target, &all)]));
    }
    let loads = [1, 2, 3, 4].map(|sender| rig.driver.load(SenderId(sender)));
    assert_eq!(loads.iter().sum::<u64>(), 8 * 35);
    let (most, least) = (loads.iter().max().unwrap(), loads.iter().min().unwrap());
    assert!(most - least <= 3, "{loads:?}");
}

/// What one sender alone holds comes first, so that the others take what is left.
#[test]
fn a_sender_that_alone_holds_something_gets_less_of_the_rest() {
    let mut rig = PushRig::new(config());
    let (all, one) = (&[1, 2][..], &[1][..]);
    rig.give(PushInput::Joins(vec![needs(0, &[(4, all), (4, all), (6, one), (4, all)])]));
    let loads = [1, 2].map(|sender| rig.driver.load(SenderId(sender)));
    assert_eq!(loads, [10, 8]);
}

#[test]
fn equal_targets_begin_at_different_senders() {
    let mut rig = PushRig::new(config());
    let first = |rig: &PushRig, target| rig.driver.routes(TargetId(target)).unwrap()[&0].0;
    for target in 0..4 {
        rig.give(PushInput::Joins(vec![needs(target, &shared(&[6], &[1, 2, 3, 4]))]));
    }
    let chosen: std::collections::BTreeSet<_> = (0..4).map(|target| first(&rig, target)).collect();
    assert_eq!(chosen.len(), 4);
}

#[test]
fn a_target_that_joins_changes_nothing_for_those_that_are_there() {
    let mut rig = PushRig::joined();
    let before = rig.routes();
    rig.give(PushInput::Joins(vec![needs(8, &shared(&[50, 1, 1], &[1, 2]))]));
    rig.give(PushInput::Joins(vec![needs(7, &shared(&[1], &[1]))]));
    assert_eq!(rig.routes(), before);
    let told: Vec<_> = rig.orders.iter().map(|order| (order.target.0, order.revision)).collect();
    assert_eq!(told, [(7, 1), (8, 1)]);
    let joined = rig.driver.routes(TargetId(8)).unwrap();
    assert_ne!(joined[&0], joined[&1], "the large one counts for more");
}

#[test]
fn a_target_that_leaves_takes_only_its_own_routes_along() {
    for (leaves, end) in [
        (PushInput::Leaves { target: TargetId(8) }, TargetEnd::Left),
        (PushInput::TargetLost { target: TargetId(8) }, TargetEnd::Lost),
    ] {
        let mut rig = PushRig::joined();
        let (before, loads) = (rig.routes(), [1, 2].map(|s| rig.driver.load(SenderId(s))));
        rig.give(PushInput::Joins(vec![needs(8, &shared(&[50, 1, 1], &[1, 2]))]));
        rig.give(leaves.clone());
        rig.give(leaves);
        assert_eq!(rig.routes(), before);
        assert_eq!([1, 2].map(|s| rig.driver.load(SenderId(s))), loads);
        let dismissed = rig.orders.iter().filter(|order| order.command == PushCommand::Dismiss);
        assert_eq!(dismissed.count(), usize::from(end == TargetEnd::Left));
        assert!(rig.orders.iter().all(|order| order.target != TARGET || order.revision == 1));
        rig.give(PushInput::Cancel);
        assert_eq!(rig.result.unwrap().targets[&TargetId(8)].end, end);
    }
}

/// A sender owes no more what it has written, whoever's end comes.
#[test]
fn what_was_written_is_taken_off_its_sender_once() {
    let mut rig = PushRig::joined();
    let loads = |rig: &PushRig| [1, 2].map(|sender| rig.driver.load(SenderId(sender)));
    rig.give(PushInput::Joins(vec![needs(8, &[(40, &[1]), (30, &[2])])]));
    assert_eq!(loads(&rig).iter().sum::<u64>(), 100);
    let by = rig.routes()[2];
    assert_eq!(by, SenderId(2), "it alone holds the last parcel");
    let before = loads(&rig);
    rig.report(|report| PushReport { written: [2].into(), ..report });
    assert_eq!(loads(&rig), [before[0], before[1] - 10]);
    rig.give(PushInput::Leaves { target: TARGET });
    assert_eq!(loads(&rig), [40, 30], "what the other target is owed");
}

#[test]
fn a_parcel_that_nobody_alive_holds_is_named() {
    let mut rig = PushRig::joined();
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    rig.give(PushInput::Joins(vec![needs(8, &[(1, &[2]), (1, &[1]), (1, &[])])]));
    assert!(rig.result.is_none(), "the other target goes on");
    rig.give(PushInput::Cancel);
    let result = rig.result.unwrap();
    let outcome = &result.targets[&TargetId(8)];
    assert_eq!((outcome.end, &outcome.unheld), (TargetEnd::NoHolder, &[1, 2].into()));
}

#[test]
fn a_holder_that_joins_is_there_when_another_is_lost() {
    let mut rig = PushRig::joined();
    let before = rig.routes();
    let parcels = [(TARGET, [1, 2].into()), (TargetId(99), [0].into())].into();
    rig.give(PushInput::SenderHolds { sender: SenderId(3), parcels });
    assert_eq!((rig.routes(), rig.orders.len()), (before, 1), "nothing moves without need");
    rig.give(PushInput::SenderLost { sender: SenderId(2) });
    assert_eq!(rig.routes()[2], SenderId(3));
}

#[test]
fn a_sender_that_was_lost_is_a_holder_again_once_it_holds_the_version_again() {
    let mut rig = PushRig::joined();
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    assert_eq!(rig.routes(), [SenderId(2); 3]);
    let parcels = [(TARGET, [0, 1, 2].into())].into();
    rig.give(PushInput::SenderHolds { sender: SenderId(1), parcels });
    assert_eq!(rig.routes(), [SenderId(2); 3], "nothing moves without need");
    rig.give(PushInput::SenderLost { sender: SenderId(2) });
    assert_eq!((rig.routes(), rig.result.is_none()), (vec![SenderId(1); 3], true));
}

/// Each target's time begins with its own join.
#[test]
fn deadlines_count_from_the_join() {
    let mut rig = PushRig::joined();
    rig.pass(Span::from_secs(15));
    rig.give(PushInput::Joins(vec![needs(8, &shared(&[1], &[1]))]));
    rig.pass(Span::from_secs(5));
    assert_eq!(rig.driver.open().collect::<Vec<_>>(), [TargetId(8)], "{:?}", rig.now);
    rig.pass(Span::from_secs(15));
    let ends = rig.result.unwrap().targets;
    assert!(ends.values().all(|outcome| outcome.end == TargetEnd::Silent));
    assert!(ends.values().all(|outcome| outcome.took == Span::from_secs(20)));
}

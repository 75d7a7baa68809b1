//! What a target tells its driver, and when; and what it forgets from one push to the next.

use super::{PUSH, TARGET, fill, grant, parcels, version, written};
use crate::push::TargetOutput::{Close, Open, Pause, Resume, Tell, Verify};
use crate::push::{
    PushCommand, PushNumber, PushOrder, PushReport, PushTarget, SenderId, TargetOutput, TargetState,
};
use crate::{Generation, Safeguards, Span, Time};

const START: Time = Time(1);

fn new() -> PushTarget {
    PushTarget::new(TARGET, Generation(0), Safeguards::default())
}

fn outputs(target: &mut PushTarget) -> Vec<TargetOutput> {
    let outputs = std::iter::from_fn(|| target.poll_output()).collect();
    target.validate().unwrap();
    outputs
}

/// What was told, and that nothing else is to be done.
fn told(target: &mut PushTarget) -> PushReport {
    let outputs = outputs(target);
    let [Tell { driver, report }] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((*driver, report), (report.push.driver, &target.report()));
    report.clone()
}

/// Parcels 0 and 1 by sender 1, parcel 2 by sender 2; all but the last output was seen.
fn filling() -> PushTarget {
    let mut target = new();
    target.handle_order(START, fill(1, &[1, 1, 2]));
    target.handle_paused();
    outputs(&mut target);
    target
}

fn verifying() -> PushTarget {
    let mut target = filling();
    target.handle_written(&written(1, 1, &[0, 1]));
    target.handle_written(&written(2, 2, &[2]));
    outputs(&mut target);
    target
}

fn ready() -> PushTarget {
    let mut target = verifying();
    target.handle_verified(Generation(1), &parcels(&[]));
    outputs(&mut target);
    target
}

fn later(revision: u64, ids: &[u64]) -> PushOrder {
    PushOrder {
        push: PushNumber { driver: 2, number: 1 },
        version: version(6),
        ..fill(revision, ids)
    }
}

#[test]
fn each_turn_of_a_push_is_told_after_what_is_to_be_done() {
    let mut target = new();
    target.handle_order(START, fill(1, &[1, 1, 2]));
    let ordered = outputs(&mut target);
    assert!(matches!(ordered[..], [Pause, Tell { driver: 1, .. }]));
    target.handle_paused();
    let opened = outputs(&mut target);
    assert_eq!(opened[..2], [Open(grant(1, 1, &[0, 1])), Open(grant(2, 2, &[2]))]);
    assert_eq!(opened[2..], [Tell { driver: 1, report: target.report() }]);
    target.handle_written(&written(1, 1, &[1]));
    let report = told(&mut target);
    assert_eq!((report.written, report.grants.len()), (parcels(&[1]), 2));
    target.handle_written(&written(1, 1, &[0, 1]));
    told(&mut target);
    target.handle_written(&written(2, 2, &[2]));
    let verify = Verify { generation: Generation(1), version: version(5) };
    let tell = Tell { driver: 1, report: target.report() };
    assert_eq!(outputs(&mut target), [Close { grant: 1 }, Close { grant: 2 }, verify, tell]);
    target.handle_verified(Generation(1), &parcels(&[]));
    let tell = Tell { driver: 1, report: target.report() };
    assert_eq!(outputs(&mut target), [Resume { version: version(5) }, tell]);
    assert_eq!((target.state(), target.report().sequence), (TargetState::Ready, 6));
}

/// Its driver has asked, so it hears again what the target is.
#[test]
fn an_order_that_comes_again_is_answered_and_changes_nothing() {
    for mut target in [filling(), verifying(), ready()] {
        let before = target.report();
        target.handle_order(START, fill(1, &[2, 2, 2]));
        let again = told(&mut target);
        assert_eq!(again, PushReport { sequence: before.sequence + 1, ..before });
    }
}

/// A word that comes again has nothing new in it.
#[test]
fn a_word_that_brings_nothing_is_told_to_nobody() {
    let mut target = filling();
    target.handle_written(&written(1, 1, &[0]));
    told(&mut target);
    for of in [&[0][..], &[], &[7]] {
        target.handle_written(&written(1, 1, of));
        assert_eq!(outputs(&mut target), [], "{of:?}");
    }
    // After a comparison too, which leaves what differs behind.
    let mut target = verifying();
    target.handle_verified(Generation(1), &parcels(&[0]));
    target.handle_order(START, fill(2, &[2, 1, 2]));
    outputs(&mut target);
    for of in [&[][..], &[2]] {
        target.handle_written(&written(3, 2, of));
        assert_eq!(outputs(&mut target), [], "{of:?}");
    }
}

#[test]
fn what_differs_is_told_and_what_is_ready_too() {
    for (differing, state) in [(&[1, 2][..], TargetState::Filling), (&[], TargetState::Ready)] {
        let mut target = verifying();
        target.handle_verified(Generation(1), &parcels(differing));
        let all = outputs(&mut target);
        let Some(Tell { report, .. }) = all.last() else { panic!("{all:?}") };
        assert_eq!((report.state, report), (state, &target.report()));
        let expected: Vec<_> = [(1, SenderId(1)), (2, SenderId(2))][..differing.len()].to_vec();
        assert_eq!(report.differing.clone().into_iter().collect::<Vec<_>>(), expected);
        assert_eq!(report.generation, Generation(1 + u64::from(!differing.is_empty())));
    }
}

#[test]
fn a_target_that_sleeps_or_wakes_tells_its_driver_at_once() {
    let mut target = filling();
    let generation = target.report().generation;
    target.handle_slept();
    let slept = outputs(&mut target);
    assert_eq!(slept[..2], [Close { grant: 1 }, Close { grant: 2 }]);
    let report = target.report();
    assert_eq!(slept[2..], [Tell { driver: 1, report: report.clone() }]);
    assert_eq!((report.state, report.generation), (TargetState::Asleep, generation.next()));
    assert_eq!(target.next_timeout(), None);
    target.handle_woken();
    let woken = told(&mut target);
    assert_eq!(
        (woken.state, woken.written, woken.grants),
        (TargetState::Empty, parcels(&[]), vec![])
    );
}

#[test]
fn only_a_target_that_sleeps_wakes_and_only_one_that_stops_serving_has_stopped() {
    for mut target in [new(), filling(), verifying(), ready()] {
        let before = target.report();
        target.handle_woken();
        target.handle_paused();
        assert_eq!((outputs(&mut target), target.report()), (vec![], before));
    }
    let mut target = new();
    target.handle_order(START, fill(1, &[1]));
    outputs(&mut target);
    target.handle_woken();
    assert_eq!((outputs(&mut target), target.state()), (vec![], TargetState::Pausing));
}

/// Its memory is given away: what it hears is answered, and nothing of it waits.
#[test]
fn a_sleeping_target_answers_orders_and_takes_part_in_none() {
    let mut target = filling();
    target.handle_slept();
    outputs(&mut target);
    for order in [later(1, &[1, 1, 1]), later(2, &[2, 2, 2])] {
        let number = (order.push, order.revision);
        target.handle_order(START, order);
        let report = told(&mut target);
        assert_eq!((report.state, (report.push, report.revision)), (TargetState::Asleep, number));
        assert_eq!((target.next_timeout(), target.open_for(START)), (None, None));
    }
}

#[test]
fn the_lease_of_what_is_being_filled_ends_so_long_after_the_drivers_last_word() {
    let lease = Span::from_secs(10);
    let mut target = new();
    target.handle_timeout(START);
    assert_eq!((outputs(&mut target), target.next_timeout()), (vec![], None));
    target.handle_order(START, fill(1, &[1, 1, 2]));
    assert_eq!(target.next_timeout(), Some(START + lease));
    assert_eq!(target.open_for(START), None, "no grant is open yet");
    target.handle_paused();
    assert_eq!(target.open_for(START + Span(4)), Some(Span(lease.0 - 4)));
    outputs(&mut target);
    target.handle_timeout(Time(START.0 + lease.0 - 1));
    assert_eq!(outputs(&mut target), []);
    target.handle_order(Time(50), fill(2, &[1, 1, 2]));
    assert_eq!(target.next_timeout(), Some(Time(50) + lease), "an order prolongs it");
    outputs(&mut target);
    target.handle_written(&written(1, 1, &[0]));
    outputs(&mut target);
    target.handle_timeout(Time(50) + lease);
    let over = outputs(&mut target);
    assert_eq!(over[..2], [Close { grant: 1 }, Close { grant: 2 }]);
    assert_eq!(over[2..], [Tell { driver: 1, report: target.report() }]);
    let report = target.report();
    assert_eq!((report.state, report.written), (TargetState::Empty, parcels(&[])));
    assert_eq!((target.next_timeout(), target.open_for(Time(50))), (None, None));
    target.handle_order(Time(99), fill(3, &[1, 1, 2]));
    assert_eq!(told(&mut target).state, TargetState::Empty, "the push is over here");
    assert_eq!(target.next_timeout(), None);
}

/// No driver has to be heard for what is whole.
#[test]
fn a_target_that_is_ready_waits_for_nobody_and_keeps_what_it_has() {
    let mut target = ready();
    assert_eq!(target.next_timeout(), None);
    target.handle_timeout(Time(u64::MAX));
    assert_eq!(outputs(&mut target), []);
    target.handle_order(START, fill(2, &[1, 1, 2, 3]));
    assert_eq!(told(&mut target).state, TargetState::Ready);
    assert_eq!((target.next_timeout(), target.ready()), (None, Some(version(5))));
    target.handle_order(START, PushOrder { command: PushCommand::Dismiss, ..fill(3, &[]) });
    assert_eq!((told(&mut target).state, target.ready()), (TargetState::Ready, Some(version(5))));
}

#[test]
fn a_later_push_closes_all_grants_of_an_earlier_one_before_anything_else() {
    let mut target = filling();
    target.handle_written(&written(1, 1, &[0]));
    outputs(&mut target);
    target.handle_order(Time(9), later(1, &[2]));
    let begun = outputs(&mut target);
    assert_eq!(begun[..3], [Close { grant: 1 }, Close { grant: 2 }, Pause]);
    let report = target.report();
    assert_eq!(begun[3..], [Tell { driver: 2, report: report.clone() }]);
    assert_eq!((report.state, report.written), (TargetState::Pausing, parcels(&[])));
    assert_eq!(target.next_timeout(), Some(Time(9) + Span::from_secs(10)));
    target.handle_written(&written(1, 1, &[0]));
    assert_eq!(outputs(&mut target), [], "nothing is open");
}

/// What differed in one push is no word about the next.
#[test]
fn a_push_begins_without_what_differed_in_the_one_before() {
    let differs = || {
        let mut target = verifying();
        target.handle_verified(Generation(1), &parcels(&[0]));
        target
    };
    let mut target = differs();
    target.handle_order(START, later(1, &[1]));
    assert_eq!(target.report().differing, [].into());
    let mut dismissed = differs();
    dismissed.handle_order(START, PushOrder { command: PushCommand::Dismiss, ..fill(2, &[]) });
    let mut woken = differs();
    woken.handle_slept();
    woken.handle_woken();
    for mut target in [dismissed, woken] {
        outputs(&mut target);
        let report = target.report();
        assert_eq!((report.state, report.push), (TargetState::Empty, PUSH));
        assert_eq!((report.written, report.differing), (parcels(&[]), [].into()));
    }
}

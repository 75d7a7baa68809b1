//! What a push has its driver do, when, and in which order.

use std::collections::BTreeMap;

use super::driver::PushRig;
use super::{PUSH, TARGET, config, needs, parcels, routes, version};
use crate::push::{
    PushCommand, PushConfig, PushDriver, PushInput, PushOrder, PushOutput, PushReport, PushResult,
    SenderId, TargetEnd, TargetId, TargetOutcome, TargetState,
};
use crate::{Span, Time};

const OTHER: TargetId = TargetId(8);

fn outputs(driver: &mut PushDriver) -> Vec<PushOutput> {
    driver.validate().unwrap();
    std::iter::from_fn(|| driver.poll_output()).collect()
}

fn order(target: TargetId, revision: u64, command: PushCommand) -> PushOutput {
    let lease = config().lease;
    PushOutput::Order(PushOrder {
        push: PUSH,
        target,
        revision,
        version: version(5),
        command,
        lease,
    })
}

/// A push to both targets: one parcel each, which sender 1 alone holds.
fn both() -> PushDriver {
    let mut driver = PushDriver::new(config());
    let joins = [7, 8].map(|target| needs(target, &[(10, &[1])]));
    driver.handle(Time(0), PushInput::Joins(joins.to_vec()));
    driver
}

#[test]
fn orders_and_the_end_come_in_the_order_in_which_they_were_wanted() {
    let mut driver = both();
    driver.handle(Time(5), PushInput::Leaves { target: OTHER });
    driver.handle(Time(9), PushInput::Cancel);
    let fill = |target| order(target, 1, PushCommand::Fill { routes: routes(&[1]) });
    let dismiss = |target| order(target, 2, PushCommand::Dismiss);
    let outcome = |end, took| TargetOutcome {
        end,
        missing: [(SenderId(1), parcels(&[0]))].into(),
        unheld: parcels(&[]),
        moved: 0,
        took: Span(took),
    };
    let targets =
        [(TARGET, outcome(TargetEnd::Cancelled, 9)), (OTHER, outcome(TargetEnd::Left, 5))];
    let result = PushResult { push: PUSH, version: version(5), targets: targets.into() };
    assert_eq!(
        outputs(&mut driver),
        [fill(TARGET), fill(OTHER), dismiss(OTHER), dismiss(TARGET), PushOutput::Ended(result)]
    );
}

#[test]
fn a_push_that_is_over_hears_nothing_any_more() {
    let mut driver = both();
    driver.handle(Time(1), PushInput::Cancel);
    outputs(&mut driver);
    assert_eq!((driver.next_timeout(), driver.open().count()), (None, 0));
    let held: BTreeMap<_, _> = [(TARGET, parcels(&[0]))].into();
    for input in [
        PushInput::Joins(vec![needs(9, &[(1, &[1])])]),
        PushInput::Leaves { target: TARGET },
        PushInput::SenderHolds { sender: SenderId(2), parcels: held },
        PushInput::SenderLost { sender: SenderId(1) },
        PushInput::Cancel,
    ] {
        driver.handle(Time(2), input);
    }
    driver.handle_timeout(Time(u64::MAX));
    assert_eq!(outputs(&mut driver), []);
    assert_eq!((driver.open().count(), driver.routes(TargetId(9))), (0, None));
    assert_eq!(driver.load(SenderId(1)), 0);
}

#[test]
fn a_push_says_which_one_it_is() {
    let driver = both();
    assert_eq!((driver.number(), driver.config()), (PUSH, &config()));
    assert_eq!(driver.open().collect::<Vec<_>>(), [TARGET, OTHER]);
    assert_eq!([1, 2].map(|sender| driver.load(SenderId(sender))), [20, 0]);
}

/// Whether it is to be told again or to be given up: the first of all targets counts.
#[test]
fn the_next_timeout_is_that_of_the_first_target_that_waits() {
    let config = PushConfig { ask_every: Span(15), silence: Span(20), ..config() };
    let mut driver = PushDriver::new(config);
    driver.handle(Time(0), PushInput::Joins(vec![needs(7, &[(10, &[1])])]));
    driver.handle(Time(4), PushInput::Joins(vec![needs(8, &[(10, &[1])])]));
    outputs(&mut driver);
    for (due, wanted) in [(15, 1), (19, 1), (20, 1), (24, 2)] {
        assert_eq!(driver.next_timeout(), Some(Time(due)));
        driver.handle_timeout(Time(due - 1));
        assert_eq!(outputs(&mut driver), [], "not before {due}");
        driver.handle_timeout(Time(due));
        assert_eq!(outputs(&mut driver).len(), wanted, "{due}");
    }
    assert_eq!(driver.next_timeout(), None);
}

/// Its grants end by their lease, and it may be in another push.
#[test]
fn a_target_at_which_the_push_is_over_is_told_nothing_more() {
    let mut driver = both();
    driver.handle(Time(0), PushInput::Leaves { target: TARGET });
    outputs(&mut driver);
    for _ in 0..3 {
        let due = driver.next_timeout().unwrap();
        driver.handle_timeout(due);
        let told = outputs(&mut driver);
        assert_eq!(told, [order(OTHER, 1, PushCommand::Fill { routes: routes(&[1]) })]);
    }
    driver.handle(Time(9), PushInput::Leaves { target: TARGET });
    driver.handle(Time(9), PushInput::SenderLost { sender: SenderId(2) });
    assert_eq!(outputs(&mut driver), [], "nobody waits for sender 2");
}

/// What it still says late is nobody's bytes.
#[test]
fn a_report_of_a_target_at_which_the_push_is_over_counts_for_nothing() {
    let mut rig = PushRig::joined();
    rig.give(PushInput::Joins(vec![needs(8, &[(10, &[1]), (10, &[1])])]));
    rig.give(PushInput::Leaves { target: TARGET });
    let (orders, load) = (rig.orders.len(), rig.driver.load(SenderId(1)));
    for state in [TargetState::Filling, TargetState::Ready, TargetState::Empty] {
        rig.report(|report| PushReport { state, written: parcels(&[0, 1, 2]), ..report });
        rig.report(|report| PushReport { state, ..report });
    }
    let found = (rig.orders.len(), rig.sent.len(), rig.driver.load(SenderId(1)));
    assert_eq!(found, (orders, 0, load));
    rig.give(PushInput::Cancel);
    assert_eq!(rig.outcome().end, TargetEnd::Left);
}

/// The sender has still to write the rest.
#[test]
fn a_grant_of_which_a_part_is_written_is_brought_again() {
    let mut rig = PushRig::joined();
    rig.report(|report| report);
    rig.report(|report| PushReport { written: parcels(&[0, 2]), ..report });
    let before = rig.sent.len();
    rig.pass(Span::from_secs(1));
    let again: Vec<_> = rig.sent[before..].iter().map(|grant| grant.sender).collect();
    assert_eq!(again, [SenderId(1)], "parcel 1 of two");
    rig.give(PushInput::SenderLost { sender: SenderId(1) });
    let before = rig.sent.len();
    rig.pass(Span::from_secs(1));
    assert_eq!(rig.sent.len(), before, "nobody reminds a sender that is lost");
}

/// A grant is passed on when it is new, not whenever it is reported.
#[test]
fn a_grant_is_passed_on_once_and_the_next_one_when_it_is_open() {
    let mut rig = PushRig::joined();
    rig.report(|report| report);
    rig.report(|report| report);
    assert_eq!(rig.sent.len(), 2);
    rig.report(|report| PushReport { grants: vec![], ..report });
    rig.report(|report| PushReport { grants: vec![super::grant(3, 1, &[0, 1])], ..report });
    assert_eq!(rig.sent[2..], [super::grant(3, 1, &[0, 1])]);
}

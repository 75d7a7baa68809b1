//! When an engine in doubt acts, and what it has forgotten by its next update.

use crate::engine_update::{
    DoubtConfig, DoubtInput, DoubtOutput, EngineDoubt, FleetTransaction, FleetVerdict,
};
use crate::{Safeguards, Span, Time};

const FIRST: FleetTransaction = FleetTransaction { driver: 1, number: 1 };
const SECOND: FleetTransaction = FleetTransaction { driver: 1, number: 2 };

fn doubt() -> EngineDoubt {
    EngineDoubt::new(DoubtConfig {
        lease: Span::from_secs(10),
        ask_every: Span::from_secs(4),
        deadline: Span::from_secs(7),
        retries: 1,
        safeguards: Safeguards::default(),
    })
}

fn at(seconds: u64) -> Time {
    Time(0) + Span::from_secs(seconds)
}

fn paused_in(transaction: FleetTransaction) -> DoubtInput {
    DoubtInput::Heard { paused_in: Some(transaction), busy: Span(0) }
}

fn decided(transaction: FleetTransaction) -> DoubtInput {
    DoubtInput::Decided { transaction, verdict: FleetVerdict::Commit }
}

fn outputs(doubt: &mut EngineDoubt) -> Vec<DoubtOutput> {
    std::iter::from_fn(|| doubt.poll_output()).collect()
}

#[test]
fn an_engine_that_starts_owes_nobody_anything_and_has_left_no_fleet() {
    let mut doubt = doubt();
    assert_eq!((doubt.has_left(), doubt.in_doubt(), doubt.next_timeout()), (false, None, None));
    doubt.handle_timeout(at(99));
    for input in [decided(FIRST), DoubtInput::Went { serving: false }, DoubtInput::Slept] {
        doubt.handle(at(99), input);
    }
    assert_eq!(
        (outputs(&mut doubt), doubt.has_left(), doubt.next_timeout()),
        (vec![], false, None)
    );
}

#[test]
fn an_engine_in_doubt_acts_at_its_lease_asks_again_and_leaves_at_its_deadline() {
    let mut doubt = doubt();
    doubt.handle(at(1), paused_in(FIRST));
    let ask = DoubtOutput::Ask { transaction: FIRST };
    for (due, output, in_doubt) in [
        (at(11), ask, Some(FIRST)),
        (at(15), ask, Some(FIRST)),
        (at(18), DoubtOutput::Leave { transaction: FIRST }, None),
    ] {
        assert_eq!(doubt.next_timeout(), Some(due));
        doubt.handle_timeout(Time(due.0 - 1));
        assert_eq!((outputs(&mut doubt), doubt.has_left()), (vec![], false), "not before {due:?}");
        doubt.handle_timeout(due);
        assert_eq!((outputs(&mut doubt), doubt.in_doubt()), (vec![output], in_doubt));
    }
    assert_eq!((doubt.has_left(), doubt.next_timeout()), (true, None));
    doubt.handle(at(19), decided(FIRST));
    assert_eq!(outputs(&mut doubt), [], "the verdict comes too late");
}

/// What comes in late may be the first that is heard of the time.
#[test]
fn whatever_an_engine_in_doubt_hears_it_looks_at_the_time() {
    let mut doubt = doubt();
    doubt.handle(at(0), paused_in(FIRST));
    doubt.handle(at(10), decided(SECOND));
    assert_eq!(outputs(&mut doubt), [DoubtOutput::Ask { transaction: FIRST }]);
    doubt.handle(at(17), decided(SECOND));
    assert_eq!(outputs(&mut doubt), [DoubtOutput::Leave { transaction: FIRST }]);
}

#[test]
fn what_an_engine_in_doubt_wants_comes_in_the_order_in_which_it_was_wanted() {
    let mut doubt = doubt();
    doubt.handle(at(0), paused_in(FIRST));
    for second in [10, 30] {
        doubt.handle_timeout(at(second));
        doubt.handle(at(second), decided(FIRST));
        doubt.handle(at(second), DoubtInput::Went { serving: false });
    }
    let ask = DoubtOutput::Ask { transaction: FIRST };
    let go = DoubtOutput::Go { transaction: FIRST, verdict: FleetVerdict::Commit };
    let leave = DoubtOutput::Leave { transaction: FIRST };
    assert_eq!(outputs(&mut doubt), [ask, go, ask, go, leave]);
}

/// It waits as long for the driver after a failure as before.
#[test]
fn an_engine_that_could_not_go_waits_a_lease_before_it_asks_again() {
    let mut doubt = doubt();
    doubt.handle(at(0), paused_in(FIRST));
    doubt.handle_timeout(at(10));
    doubt.handle(at(12), decided(FIRST));
    doubt.handle(at(12), decided(FIRST));
    assert_eq!(outputs(&mut doubt).len(), 2, "it goes once");
    doubt.handle(at(20), DoubtInput::Went { serving: false });
    assert_eq!((doubt.next_timeout(), doubt.in_doubt()), (Some(at(30)), None));
}

/// Of the update before nothing counts: neither that the engine has left, nor how often it has tried.
#[test]
fn the_next_update_begins_with_all_retries_and_with_an_engine_that_has_not_left() {
    let fail = |doubt: &mut EngineDoubt, from: u64, transaction| {
        doubt.handle_timeout(at(from));
        doubt.handle(at(from), decided(transaction));
        doubt.handle(at(from), DoubtInput::Went { serving: false });
        outputs(doubt);
    };
    let rested = [
        paused_in(SECOND),
        DoubtInput::Slept,
        DoubtInput::Heard { paused_in: None, busy: Span(0) },
    ];
    for rest in rested {
        for failures in [1, 2] {
            let mut doubt = doubt();
            doubt.handle(at(0), paused_in(FIRST));
            (0..failures).for_each(|n| fail(&mut doubt, 100 * (n + 1), FIRST));
            assert_eq!(doubt.has_left(), failures == 2);
            doubt.handle(at(300), rest);
            assert!(!doubt.has_left());
            doubt.handle(at(300), paused_in(SECOND));
            assert_eq!(doubt.next_timeout(), Some(at(310)));
            fail(&mut doubt, 400, SECOND);
            assert!(!doubt.has_left() && doubt.next_timeout().is_some(), "it may try once more");
            fail(&mut doubt, 500, SECOND);
            assert!(doubt.has_left());
        }
    }
    let mut doubt = doubt();
    doubt.handle(at(0), paused_in(FIRST));
    fail(&mut doubt, 100, FIRST);
    doubt.handle_timeout(at(200));
    doubt.handle(at(200), decided(FIRST));
    doubt.handle(at(200), DoubtInput::Went { serving: true });
    doubt.handle(at(300), paused_in(SECOND));
    outputs(&mut doubt);
    fail(&mut doubt, 400, SECOND);
    assert!(!doubt.has_left(), "after a success too");
}

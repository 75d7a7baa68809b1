//! What a worker's gate says and has done, and in which order.

use super::gate::{REFUSED, order, serving, take};
use super::version;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineGate, FleetTransaction, GateOutput, InstallMeans, StepAnswer, StepFailure, StepOrder,
    UpdateAttempt, UpdateStep,
};
use crate::{Safeguards, Span};

const OWN: FleetTransaction = FleetTransaction { driver: 1, number: 7 };
const DONE: Option<StepAnswer> = Some(StepAnswer::Done);

fn staged(step: UpdateStep, number: u64) -> StepOrder {
    order(step, number, InstallMeans::Staged)
}

fn failed(failure: StepFailure) -> Option<StepAnswer> {
    Some(StepAnswer::Failed(failure))
}

fn outputs(gate: &mut EngineGate) -> Vec<GateOutput> {
    gate.validate().unwrap();
    std::iter::from_fn(|| gate.poll_output()).collect()
}

fn answer(attempt: UpdateAttempt, answer: StepAnswer) -> GateOutput {
    GateOutput::Answer { attempt, answer }
}

/// A gate that has taken these steps, numbered from 1.
fn after(steps: &[UpdateStep]) -> EngineGate {
    let mut gate = serving();
    for (number, step) in (1..).zip(steps) {
        assert_eq!(take(&mut gate, staged(*step, number)), DONE, "{step}");
    }
    gate
}

#[test]
fn what_a_gate_wants_comes_in_the_order_of_what_it_heard() {
    let mut gate = serving();
    gate.handle_order(staged(Inspect, 1));
    let asked = answer(staged(Inspect, 1).attempt, StepAnswer::Inspected(gate.report()));
    let fetch = staged(Fetch, 2);
    gate.handle_order(fetch);
    gate.handle_performed(fetch.attempt, Ok(()));
    gate.handle_order(staged(Install, 3));
    assert_eq!(
        outputs(&mut gate),
        [
            asked,
            GateOutput::Perform(fetch),
            answer(fetch.attempt, StepAnswer::Done),
            answer(staged(Install, 3).attempt, StepAnswer::Failed(StepFailure::OutOfOrder)),
        ]
    );
}

/// The answer of the first one is for both.
#[test]
fn an_order_that_comes_again_while_it_is_obeyed_begins_nothing_and_is_answered_once() {
    let mut gate = serving();
    let fetch = staged(Fetch, 1);
    (0..3).for_each(|_| gate.handle_order(fetch));
    assert_eq!(outputs(&mut gate), [GateOutput::Perform(fetch)]);
    assert!(gate.may_act(fetch.attempt));
    (0..3).for_each(|_| gate.handle_performed(fetch.attempt, Ok(())));
    assert_eq!(outputs(&mut gate), [answer(fetch.attempt, StepAnswer::Done)]);
    assert_eq!((gate.busy(), gate.may_act(fetch.attempt)), (Span(0), false), "it is over");
}

#[test]
fn a_step_that_fails_is_answered_so_and_again_when_it_comes_again() {
    let mut gate = serving();
    let fetch = staged(Fetch, 1);
    gate.handle_order(fetch);
    gate.handle_performed(fetch.attempt, Err(StepFailure::Source));
    let no = answer(fetch.attempt, StepAnswer::Failed(StepFailure::Source));
    assert_eq!(outputs(&mut gate), [GateOutput::Perform(fetch), no]);
    gate.handle_order(fetch);
    assert_eq!(outputs(&mut gate), [no]);
    assert_eq!((gate.busy(), gate.report().staged), (Span(0), None));
}

/// Its number was heard with another word, so the order came late.
#[test]
fn an_order_whose_number_was_heard_with_a_question_is_fenced() {
    let mut gate = serving();
    gate.handle_order(staged(Inspect, 5));
    outputs(&mut gate);
    assert_eq!(take(&mut gate, staged(Pause, 5)), failed(StepFailure::Fenced));
    assert!(gate.may_serve());
    assert_eq!(take(&mut gate, staged(Pause, 6)), DONE);
}

/// A driver that is over asks, and nothing that is under way ends by that.
#[test]
fn a_question_that_is_not_newer_ends_no_step() {
    let mut gate = serving();
    let fetch = staged(Fetch, 5);
    gate.handle_order(fetch);
    for number in [1, 4, 5] {
        gate.handle_order(staged(Inspect, number));
        assert_eq!((gate.may_act(fetch.attempt), gate.busy()), (true, fetch.deadline));
        assert_eq!(gate.report().seen, fetch.attempt);
    }
    gate.handle_performed(fetch.attempt, Ok(()));
    assert_eq!(gate.report().staged, Some(version(2)));
}

#[test]
fn only_the_step_that_is_under_way_may_act_or_end() {
    let mut gate = serving();
    let fetch = staged(Fetch, 5);
    assert!(!gate.may_act(fetch.attempt));
    gate.handle_order(fetch);
    outputs(&mut gate);
    for number in [4, 6] {
        let other = staged(Fetch, number).attempt;
        assert!(!gate.may_act(other));
        gate.handle_performed(other, Ok(()));
        gate.handle_performed(other, Err(StepFailure::Engine));
    }
    assert_eq!((outputs(&mut gate), gate.busy()), (vec![], fetch.deadline));
    assert_eq!(gate.report().staged, None);
}

#[test]
fn an_engine_that_falls_asleep_in_a_step_answers_at_once() {
    let mut gate = after(&[Negotiate, Fetch, Pause, Begin]);
    let install = staged(Install, 5);
    gate.handle_order(install);
    outputs(&mut gate);
    gate.handle_slept();
    let asleep = answer(install.attempt, StepAnswer::Failed(StepFailure::Asleep));
    assert_eq!((outputs(&mut gate), gate.busy()), (vec![asleep], Span(0)));
    gate.handle_performed(install.attempt, Ok(()));
    assert_eq!(outputs(&mut gate), [], "the step is over");
    gate.handle_order(install);
    assert_eq!(outputs(&mut gate), [asleep]);
}

/// What is staged is given away with the memory, and the fleet goes on without the engine.
#[test]
fn a_sleeping_engine_has_forgotten_its_update() {
    let mut gate = serving();
    let negotiate = StepOrder { transaction: Some(OWN), ..staged(Negotiate, 1) };
    assert_eq!(take(&mut gate, negotiate), DONE);
    let report = gate.report();
    assert_eq!((report.offered, report.staged), (Some(version(2)), None), "nothing has come yet");
    for (number, step) in [(2, Fetch), (3, Pause), (4, Begin)] {
        assert_eq!(take(&mut gate, staged(step, number)), DONE);
    }
    let before = gate.report();
    assert_eq!((before.transaction, before.offered), (Some(OWN), Some(version(2))));
    gate.handle_slept();
    let report = gate.report();
    assert_eq!((report.transaction, report.staged), (None, None));
    assert_eq!((report.asleep, report.paused, report.serving), (true, true, false));
    assert_eq!(take(&mut gate, staged(Discard, 5)), DONE, "nothing is there to be discarded");
    gate.handle_woken();
    let report = gate.report();
    assert_eq!((report.asleep, report.paused, report.serving), (false, true, false));
    assert_eq!(take(&mut gate, staged(Fetch, 6)), DONE);
    assert_eq!(take(&mut gate, staged(Install, 7)), REFUSED, "`Begin` is undone too");
}

#[test]
fn an_engine_that_has_slept_is_opened_anew_before_anything_is_installed() {
    let mut gate = after(&[Fetch, Pause, Begin]);
    gate.handle_slept();
    gate.handle_woken();
    assert_eq!(take(&mut gate, staged(Fetch, 4)), DONE);
    assert_eq!(take(&mut gate, staged(Install, 5)), REFUSED);
    assert_eq!(take(&mut gate, staged(Begin, 6)), DONE);
    assert_eq!(take(&mut gate, staged(Install, 7)), DONE);
}

/// The gate may not have been there yet when the engine fell asleep.
#[test]
fn an_engine_that_wakes_stands_still_also_if_nobody_saw_it_fall_asleep() {
    let mut gate = serving();
    gate.handle_woken();
    let report = gate.report();
    assert_eq!((report.paused, report.serving, gate.may_serve()), (true, false, false));
    assert_eq!((report.ready, report.held), (None, Some(version(1))));
}

/// Where there is no old version, the engine is out of the fleet.
#[test]
fn a_discard_forgets_what_was_staged_and_the_fleets_update_only_if_it_says_so() {
    for (old, transaction) in [(Some(version(1)), Some(OWN)), (None, None)] {
        let mut gate = serving();
        let of_fleet = |order| StepOrder { transaction: Some(OWN), ..order };
        for (number, step) in (1..).zip([Negotiate, Fetch, Pause, Begin]) {
            assert_eq!(take(&mut gate, of_fleet(staged(step, number))), DONE);
        }
        let discard = StepOrder { old, ..of_fleet(staged(Discard, 5)) };
        assert_eq!(take(&mut gate, discard), DONE);
        let report = gate.report();
        assert_eq!((report.staged, report.transaction), (None, transaction));
        assert!(report.paused && !report.serving);
        assert_eq!(take(&mut gate, of_fleet(staged(Fetch, 6))), DONE);
        assert_eq!(take(&mut gate, of_fleet(staged(Install, 7))), REFUSED, "`Begin` is undone");
    }
}

/// An engine that goes on has nothing left of its update.
#[test]
fn a_resume_ends_the_update_and_what_was_staged_for_it() {
    let mut gate = serving();
    for (number, step) in (1..).zip([Negotiate, Fetch, Pause, Begin]) {
        let order = StepOrder { transaction: Some(OWN), ..staged(step, number) };
        assert_eq!(take(&mut gate, order), DONE);
    }
    let back = StepOrder { version: version(1), ..staged(Resume, 5) };
    assert_eq!(take(&mut gate, back), DONE);
    let report = gate.report();
    assert_eq!((report.staged, report.transaction, report.serving), (None, None, true));
    assert_eq!(take(&mut gate, staged(Fetch, 6)), DONE);
    assert_eq!(take(&mut gate, staged(Pause, 7)), DONE);
    assert_eq!(take(&mut gate, staged(Install, 8)), REFUSED, "`Begin` is undone");
}

#[test]
fn a_new_gate_has_begun_nothing_and_says_what_it_was_made_with() {
    let mut gate = EngineGate::new(1, Some(version(1)), 4, Safeguards::default());
    let report = gate.report();
    assert_eq!((report.life, report.seen), (super::LIFE, UpdateAttempt::before(4, 0)));
    assert_eq!((report.paused, report.asleep, report.serving), (true, false, false));
    let nothing = (report.transaction, report.offered, report.old, report.staged);
    assert_eq!((nothing, gate.busy()), ((None, None, None, None), Span(0)));
    let of_driver = |step, number| StepOrder {
        attempt: UpdateAttempt { number, ..UpdateAttempt::before(4, 1) },
        ..staged(step, number)
    };
    assert_eq!(take(&mut gate, of_driver(Fetch, 1)), DONE);
    assert_eq!(take(&mut gate, of_driver(Install, 2)), REFUSED);
}

//! What an update says of its engine in the end, and how often it tries before.

use super::*;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineReport, EngineState, FleetTransaction, StepFailure, UpdateReason,
};
use crate::{Span, Version};

const OWN: FleetTransaction = FleetTransaction { driver: 1, number: 7 };
const FAILED: StepAnswer = StepAnswer::Failed(StepFailure::Engine);

/// An engine that stands still, or serves.
fn report(ready: Option<Version>, serving: bool) -> EngineReport {
    EngineReport { ready, serving, paused: !serving, life: LIFE, ..EngineReport::default() }
}

/// Both workers say this of the present order.
fn say(rig: &mut UpdateRig, answer: StepAnswer) {
    rig.answer(0, answer);
    if rig.order.is_some() && rig.outcome.is_none() {
        rig.answer(1, answer);
    }
}

fn ended(rig: &UpdateRig) -> UpdateOutcome {
    rig.outcome.expect("it is over")
}

/// Both spans end with the update; an engine that was never paused was paused for no time.
#[test]
fn an_outcome_says_how_long_the_engine_stood_still_and_how_long_all_took() {
    const TURN: u64 = 1_000_000;
    let mut rig = UpdateRig::new(config());
    rig.go_to(Pause);
    let paused_at = rig.now;
    rig.go_to(Resume);
    say(&mut rig, StepAnswer::Done);
    let outcome = ended(&rig);
    assert_eq!((outcome.paused, outcome.total), (rig.now - paused_at, rig.now - Time(0)));
    assert_eq!(outcome.total, Span(20 * TURN), "two workers, ten steps");
    let mut rig = UpdateRig::new(config());
    rig.answer(0, FAILED);
    say(&mut rig, StepAnswer::Done);
    say(&mut rig, StepAnswer::Inspected(report(Some(version(1)), true)));
    let outcome = ended(&rig);
    assert_eq!((outcome.paused, outcome.total), (Span(0), Span(5 * TURN)));
    let mut rig = UpdateRig::new(UpdateConfig { paused: true, ..config() });
    rig.give(UpdateInput::Lost);
    assert_eq!((ended(&rig).paused, ended(&rig).total), (Span(TURN), Span(TURN)));
}

#[test]
fn an_engine_that_dies_is_said_to_be_lost_at_its_step_unless_the_update_had_failed_before() {
    for step in [Negotiate, Pause, Install, Resume] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(step);
        rig.give(UpdateInput::Lost);
        assert_eq!(ended(&rig).failure, Some((step, UpdateReason::Lost)));
        assert_eq!(ended(&rig).report, None);
    }
    let mut rig = UpdateRig::new(config());
    rig.go_to(Pause);
    rig.answer(0, FAILED);
    rig.give(UpdateInput::Lost);
    let first = UpdateReason::Failed(StepFailure::Engine);
    assert_eq!(ended(&rig).failure, Some((Pause, first)));
}

/// Nobody else decides over an engine whose update has gone well, or failed by itself.
#[test]
fn only_a_later_driver_or_a_doubt_takes_the_engine_out_of_a_drivers_hands() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Resume);
    say(&mut rig, StepAnswer::Done);
    assert!(ended(&rig).is_new() && !ended(&rig).is_superseded());
    for (reason, superseded) in [
        (UpdateReason::Deadline, false),
        (UpdateReason::Lost, false),
        (UpdateReason::Cancelled, false),
        (UpdateReason::Aborted, false),
        (UpdateReason::Failed(StepFailure::Engine), false),
        (UpdateReason::Failed(StepFailure::Fenced), true),
        (UpdateReason::InDoubt, true),
    ] {
        let outcome = UpdateOutcome { failure: Some((Fetch, reason)), ..ended(&rig) };
        assert_eq!(outcome.is_superseded(), superseded, "{reason:?}");
    }
}

/// It has lost what was staged, and nothing else.
#[test]
fn an_engine_that_cannot_discard_is_resumed_all_the_same() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Pause);
    rig.answer(0, FAILED);
    rig.answer(0, FAILED);
    assert_eq!(rig.steps[3..], [Discard, Resume]);
    say(&mut rig, StepAnswer::Done);
    let outcome = ended(&rig);
    assert_eq!((outcome.state, outcome.serving), (EngineState::Old(version(1)), true));
    // One that was not paused is asked.
    let mut rig = UpdateRig::new(config());
    rig.answer(0, FAILED);
    rig.answer(0, FAILED);
    assert_eq!(rig.steps, [Negotiate, Discard, Inspect]);
}

/// Whether on the way there or back, an engine that says that it stands still is resumed with the version that it was to have.
#[test]
fn a_resume_that_was_not_answered_is_repeated_as_often_as_there_are_retries() {
    for (goes_back, held) in [(false, version(2)), (true, version(1))] {
        for retries in [0, 1, 2] {
            let config = UpdateConfig { retries, ..config() };
            let mut rig = match goes_back {
                true => UpdateRig::of(EngineUpdate::back(config, Time(0))),
                false => UpdateRig::new(config),
            };
            rig.go_to(Resume);
            let before = rig.steps.len();
            for _ in 0..retries {
                rig.let_pass();
                say(&mut rig, StepAnswer::Inspected(report(Some(held), false)));
                let order = rig.order.expect("once more");
                assert_eq!((order.step, order.version), (Resume, held));
            }
            let mut last =
                UpdateRig { steps: rig.steps.clone(), ..UpdateRig::of(rig.update.clone()) };
            (last.order, last.now) = (rig.order, rig.now);
            last.let_pass();
            say(&mut last, StepAnswer::Inspected(report(Some(held), false)));
            let outcome = ended(&last);
            let state = if goes_back { EngineState::Old(held) } else { EngineState::New(held) };
            assert_eq!((outcome.state, outcome.serving), (state, false), "it is given up");
            assert_eq!(outcome.failure, Some((Resume, UpdateReason::Deadline)));
            assert_eq!(last.steps.len() - before, 2 * retries as usize + 1);
            say(&mut rig, StepAnswer::Done);
            assert_eq!((ended(&rig).state, ended(&rig).serving), (state, true));
        }
    }
}

/// Each of these says that nothing is left to be done, or nothing that this driver may do.
#[test]
fn an_engine_is_resumed_again_only_if_it_stands_still_awake_with_the_right_version() {
    let new = Some(version(2));
    for said in [
        report(new, true),
        EngineReport { asleep: true, ..report(new, false) },
        report(Some(version(1)), false),
        report(None, false),
    ] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(Resume);
        rig.let_pass();
        let before = rig.steps.len();
        say(&mut rig, StepAnswer::Inspected(said));
        let outcome = ended(&rig);
        assert_eq!((rig.steps.len(), outcome.serving), (before, said.serving), "{said:?}");
        assert_eq!(outcome.report, Some(said));
        let failure = Some((Resume, UpdateReason::Deadline)).filter(|_| !said.serving);
        assert_eq!(outcome.failure, failure);
    }
    // Somebody else has paused it: this driver has not.
    let mut rig = UpdateRig::new(config());
    rig.answer(0, FAILED);
    say(&mut rig, StepAnswer::Done);
    say(&mut rig, StepAnswer::Inspected(report(Some(version(1)), false)));
    assert_eq!(rig.steps, [Negotiate, Discard, Inspect]);
    assert_eq!((ended(&rig).state, ended(&rig).serving), (EngineState::Old(version(1)), false));
}

/// There is no version to which it may go back, so it stays as it is.
#[test]
fn an_engine_without_an_old_version_is_not_resumed_after_a_failure() {
    for ready in [None, Some(version(1)), Some(version(2))] {
        let mut rig = UpdateRig::new(UpdateConfig { old: None, ..config() });
        rig.go_to(Begin);
        rig.answer(0, FAILED);
        say(&mut rig, StepAnswer::Done);
        say(&mut rig, StepAnswer::Inspected(report(ready, false)));
        assert_eq!(rig.steps[4..], [Discard, Inspect]);
        assert!(!ended(&rig).serving);
    }
}

#[test]
fn only_an_engine_that_is_still_in_the_fleets_update_is_told_to_forget_it() {
    let other = FleetTransaction { driver: 1, number: 8 };
    for (transaction, said, forgets) in [
        (Some(OWN), Some(OWN), true),
        (Some(OWN), Some(other), false),
        (Some(OWN), None, false),
        (None, None, false),
        (None, Some(other), false),
    ] {
        let config = UpdateConfig { transaction, retries: 0, ..config() };
        let mut rig = UpdateRig::of(EngineUpdate::forward(config, Time(0)));
        rig.go_to(Verify);
        rig.answer(0, FAILED);
        let answer = EngineReport { transaction: said, ..report(None, false) };
        say(&mut rig, StepAnswer::Inspected(answer));
        let last = if forgets { Discard } else { Inspect };
        assert_eq!((rig.steps.last(), rig.outcome.is_some()), (Some(&last), !forgets));
    }
}

/// Install, or what follows, fails: each time all is installed anew from staging.
#[test]
fn an_install_is_repeated_from_its_beginning_as_often_as_there_are_retries() {
    for retries in [0, 2] {
        for step in [Install, PostProcess, Verify, Invalidate, Stamp] {
            let mut rig = UpdateRig::new(UpdateConfig { retries, ..config() });
            for _ in 0..retries {
                rig.go_to(step);
                rig.answer(1, FAILED);
                assert_eq!(rig.order.map(|order| order.step), Some(Begin), "{step}");
            }
            rig.go_to(step);
            rig.answer(0, FAILED);
            assert_eq!(rig.order.map(|order| order.step), Some(Inspect), "{step}");
            let begins = rig.steps.iter().filter(|step| **step == Begin).count();
            assert_eq!(begins, retries as usize + 1);
        }
    }
}

use super::*;
use crate::Span;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineReport, EngineState, FleetTransaction, StepFailure, UpdateReason,
};

fn report(ready: Option<Version>, serving: bool) -> StepAnswer {
    StepAnswer::Inspected(EngineReport {
        ready,
        serving,
        paused: !serving,
        life: LIFE,
        ..EngineReport::default()
    })
}

/// Plays an update to its end; the engine says this when it is asked.
fn finish(rig: &mut UpdateRig, ready: Option<Version>, serving: bool) -> UpdateOutcome {
    while rig.outcome.is_none() {
        let answer = match rig.order.expect("an order").step {
            Inspect => report(ready, serving),
            _ => StepAnswer::Done,
        };
        rig.answer(0, answer);
        if rig.outcome.is_none() && rig.order.is_some() {
            rig.answer(1, answer);
        }
    }
    rig.outcome.unwrap()
}

#[test]
fn each_means_has_its_order_of_steps() {
    let rest = [PostProcess, Verify, Invalidate, Stamp, Resume];
    for (means, prefetch, first) in [
        (InstallMeans::Staged, true, vec![Negotiate, Fetch, Pause, Begin, Install]),
        (InstallMeans::Staged, false, vec![Negotiate, Pause, Fetch, Begin, Install]),
        (InstallMeans::InPlace, false, vec![Negotiate, Pause, Begin, Fetch]),
    ] {
        let mut rig = UpdateRig::new(UpdateConfig { means, prefetch, ..config() });
        let outcome = finish(&mut rig, None, false);
        assert_eq!(rig.steps, [&first[..], &rest[..]].concat());
        assert_eq!(outcome.state, EngineState::New(version(2)));
        assert!(outcome.is_new() && outcome.failure.is_none());
        assert!(outcome.paused < outcome.total && outcome.paused > Span(0));
    }
}

/// Whichever step fails before parameters may have changed, the engine is resumed as it was, if it was paused.
#[test]
fn a_failure_before_the_install_loses_nothing() {
    for (means, failing) in [
        (InstallMeans::Staged, &[Negotiate, Fetch, Pause, Begin][..]),
        (InstallMeans::InPlace, &[Negotiate, Pause][..]),
    ] {
        for step in failing {
            let mut rig = UpdateRig::new(UpdateConfig { means, ..config() });
            rig.go_to(*step);
            rig.answer(1, StepAnswer::Failed(StepFailure::Engine));
            let before = rig.steps.len();
            let outcome = finish(&mut rig, Some(version(1)), true);
            let back = &rig.steps[before - 1..];
            let paused = matches!(step, Pause | Begin);
            assert_eq!(back, if paused { [Discard, Resume] } else { [Discard, Inspect] });
            assert_eq!((outcome.state, outcome.serving), (EngineState::Old(version(1)), true));
            let failed = UpdateReason::Failed(StepFailure::Engine);
            assert_eq!(outcome.failure, Some((*step, failed)));
        }
    }
}

#[test]
fn a_failed_install_is_repeated_from_staging_and_then_given_up() {
    let mut rig = UpdateRig::new(config());
    for _ in 0..2 {
        rig.go_to(Verify);
        rig.answer(0, StepAnswer::Failed(StepFailure::Digest));
    }
    assert_eq!(rig.order.map(|order| order.step), Some(Inspect));
    let outcome = finish(&mut rig, None, false);
    assert_eq!((outcome.state, outcome.serving), (EngineState::Empty, false));
    assert_eq!(rig.steps.iter().filter(|step| **step == Install).count(), 2);
    assert!(!rig.steps.contains(&Resume));
}

#[test]
fn in_place_nothing_is_left_to_repeat() {
    let mut rig = UpdateRig::new(UpdateConfig { means: InstallMeans::InPlace, ..config() });
    rig.go_to(Fetch);
    rig.answer(0, StepAnswer::Failed(StepFailure::Source));
    let outcome = finish(&mut rig, None, false);
    assert_eq!((outcome.state, outcome.serving), (EngineState::Empty, false));
    assert!(!rig.steps.contains(&Resume));
}

#[test]
fn every_step_ends_at_its_deadline_and_its_late_answer_is_ignored() {
    for step in [Negotiate, Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(step);
        let late = rig.order.unwrap().attempt;
        rig.let_pass();
        let steps = rig.steps.clone();
        for worker in 0..2 {
            rig.give(UpdateInput::Answered { worker, attempt: late, answer: StepAnswer::Done });
        }
        assert_eq!(rig.steps, steps, "{step}");
        assert!(rig.order.unwrap().attempt > late);
        while rig.outcome.is_none() {
            rig.let_pass();
        }
        let outcome = rig.outcome.unwrap();
        assert_eq!(outcome.failure, Some((step, UpdateReason::Deadline)));
        assert_eq!((outcome.state, outcome.serving), (EngineState::Gone, false));
        assert!(outcome.total <= config().bound());
    }
}

/// A lost answer to `Resume` leaves open whether the engine serves: the engine says so, and is resumed once more.
#[test]
fn an_engine_that_may_have_been_resumed_is_asked() {
    for serving in [true, false] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(Resume);
        rig.let_pass();
        assert_eq!(rig.order.map(|order| order.step), Some(Inspect));
        rig.answer(0, report(Some(version(2)), serving));
        rig.answer(1, report(Some(version(2)), serving));
        if !serving {
            assert_eq!(rig.order.map(|order| order.step), Some(Resume));
        }
        assert!(finish(&mut rig, None, false).is_new());
    }
}

#[test]
fn an_update_is_cancelled_up_to_the_install_and_no_further() {
    for (step, cancelled) in [(Fetch, true), (Begin, true), (Install, false), (Resume, false)] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(step);
        rig.give(UpdateInput::Cancel);
        let outcome = finish(&mut rig, Some(version(1)), true);
        assert_eq!(outcome.is_new(), !cancelled, "{step}");
        let why = cancelled.then_some((step, UpdateReason::Cancelled));
        assert_eq!(outcome.failure, why);
    }
}

#[test]
fn an_engine_that_dies_is_gone_whatever_it_did() {
    for step in [Negotiate, Install, Resume] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(step);
        rig.give(UpdateInput::Lost);
        let outcome = rig.outcome.expect("it ends at once");
        assert_eq!((outcome.state, outcome.serving), (EngineState::Gone, false));
        assert!(rig.order.is_none(), "nobody sends the order again");
    }
}

/// A driver whose orders are refused as fenced gives no further order, and says what it saw.
#[test]
fn a_superseded_driver_only_looks() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Install);
    rig.answer(0, StepAnswer::Failed(StepFailure::Fenced));
    let outcome = finish(&mut rig, Some(version(2)), false);
    assert!(outcome.is_superseded());
    assert_eq!(rig.steps.last(), Some(&Inspect));
}

/// The same where its order ended without an answer, and the engine says that it has heard a later driver.
#[test]
fn a_driver_learns_from_a_report_that_it_is_superseded() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Resume);
    rig.let_pass();
    for worker in 0..2 {
        let seen = UpdateAttempt::before(2, 0);
        let ready = Some(version(2));
        let report =
            EngineReport { seen, ready, paused: true, life: LIFE, ..EngineReport::default() };
        rig.answer(worker, StepAnswer::Inspected(report));
    }
    let outcome = rig.outcome.expect("it does not resume the engine");
    assert!(outcome.is_superseded() && !outcome.serving);
}

#[test]
fn an_engine_of_a_fleet_waits_before_it_changes_anything() {
    let transaction = Some(FleetTransaction::default());
    for prefetch in [false, true] {
        let config = UpdateConfig { transaction, prefetch, ..config() };
        let mut rig = UpdateRig::new(config);
        while !rig.prepared {
            rig.answer(0, StepAnswer::Done);
            rig.answer(1, StepAnswer::Done);
        }
        assert!(rig.update.is_prepared() && rig.update.next_timeout().is_none());
        assert!(!rig.steps.contains(&Begin));
        rig.give(UpdateInput::Cancel);
        assert!(rig.update.is_prepared(), "the fleet decides");
        let mut aborted = UpdateRig::of(rig.update.clone());
        aborted.give(UpdateInput::Abort);
        let outcome = finish(&mut aborted, None, false);
        assert_eq!((outcome.state, outcome.serving), (EngineState::Old(version(1)), true));
        // After the commit an engine never goes back, not even if nothing was installed.
        rig.give(UpdateInput::Proceed);
        for _ in 0..2 {
            rig.go_to(Begin);
            rig.answer(0, StepAnswer::Failed(StepFailure::Engine));
        }
        let outcome = finish(&mut rig, Some(version(1)), false);
        assert_eq!((outcome.state, outcome.serving), (EngineState::Old(version(1)), false));
        assert!(!rig.steps.contains(&Resume));
    }
}

#[test]
fn an_engine_that_has_started_is_verified_on_its_way_back() {
    let mut rig = UpdateRig::of(EngineUpdate::admit(config(), Time(0)));
    let outcome = finish(&mut rig, None, false);
    assert_eq!(rig.steps, [Discard, Verify, Resume]);
    assert_eq!((outcome.state, outcome.serving), (EngineState::Old(version(1)), true));
    let mut rig = UpdateRig::of(EngineUpdate::admit(config(), Time(0)));
    rig.go_to(Verify);
    rig.answer(0, StepAnswer::Failed(StepFailure::Digest));
    let outcome = finish(&mut rig, None, false);
    assert_eq!((outcome.state, outcome.serving), (EngineState::Empty, false));
    assert!(!rig.steps.contains(&Resume));
}

/// The fleet's next update can begin: the engine is told to forget this one, once, whatever it answers.
#[test]
fn an_engine_that_fails_for_good_is_let_out_of_its_fleets_update() {
    let transaction = Some(FleetTransaction::default());
    for (by_itself, fails) in [(false, false), (false, true), (true, false)] {
        let attempt = UpdateAttempt { by_itself, ..UpdateAttempt::before(1, 1) };
        let config = UpdateConfig { transaction, attempt, retries: 0, ..config() };
        let mut rig = UpdateRig::of(EngineUpdate::forward(config, Time(0)));
        rig.go_to(Verify);
        rig.answer(0, StepAnswer::Failed(StepFailure::Digest));
        let report =
            EngineReport { transaction, paused: true, life: LIFE, ..EngineReport::default() };
        let said = StepAnswer::Inspected(report);
        while rig.outcome.is_none() {
            let order = rig.order.expect("an order");
            let answer = match order.step {
                Discard if fails => StepAnswer::Failed(StepFailure::Engine),
                Discard => StepAnswer::Done,
                _ => said,
            };
            assert_eq!(order.old.is_none(), order.step == Discard);
            rig.answer(0, answer);
            if rig.outcome.is_none() && !matches!(answer, StepAnswer::Failed(_)) {
                rig.answer(1, answer);
            }
        }
        let discards = rig.steps.iter().filter(|step| **step == Discard).count();
        assert_eq!(discards, usize::from(!by_itself));
        assert_eq!(rig.outcome.map(|outcome| outcome.state), Some(EngineState::Empty));
    }
}

/// The engine that the update was about is gone, whatever else is at its address.
#[test]
fn an_update_ends_where_another_life_answers() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Install);
    rig.answer(1, StepAnswer::Failed(StepFailure::OtherLife));
    let outcome = rig.outcome.expect("it ends at once");
    assert_eq!((outcome.state, outcome.serving), (EngineState::Gone, false));
    assert!(rig.order.is_none(), "nobody sends the order again");
    // The same where workers of two lives answer a question.
    let config = UpdateConfig { life: None, ..config() };
    let mut rig = UpdateRig::of(EngineUpdate::ask(config, Time(0)));
    for (worker, life) in [(0, Some(1)), (1, Some(2))] {
        let report = EngineReport { life, ..EngineReport::default() };
        rig.answer(worker, StepAnswer::Inspected(report));
    }
    assert_eq!(rig.outcome.map(|outcome| outcome.state), Some(EngineState::Gone));
}

#[test]
fn an_answer_of_the_wrong_kind_is_none() {
    let mut rig = UpdateRig::new(config());
    rig.answer(0, report(Some(version(2)), true));
    rig.answer(1, report(Some(version(2)), true));
    assert_eq!(rig.steps, [Negotiate]);
    let mut rig = UpdateRig::of(EngineUpdate::ask(config(), Time(0)));
    rig.answer(0, StepAnswer::Done);
    rig.answer(1, StepAnswer::Done);
    assert_eq!(rig.outcome, None);
}

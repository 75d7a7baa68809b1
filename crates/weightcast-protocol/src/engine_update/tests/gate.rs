use super::{LIFE, version};
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineGate, GateOutput, InstallMeans, StepAnswer, StepFailure, StepOrder, UpdateAttempt,
    UpdateStep,
};
use crate::{Safeguards, Span};

pub(super) fn order(step: UpdateStep, number: u64, means: InstallMeans) -> StepOrder {
    StepOrder {
        attempt: UpdateAttempt { number, ..UpdateAttempt::before(1, 1) },
        life: LIFE,
        step,
        version: version(2),
        old: Some(version(1)),
        means,
        keep_caches: false,
        deadline: Span::from_secs(1),
        transaction: None,
    }
}

/// A gate that serves version 1.
pub(super) fn serving() -> EngineGate {
    let mut gate = EngineGate::new(1, Some(version(1)), 0, Safeguards::default());
    let mut attempt = UpdateAttempt::before(1, 0);
    for step in [Verify, Resume] {
        attempt = attempt.next();
        let order = StepOrder { version: version(1), ..order(step, 1, InstallMeans::Staged) };
        let admitted = take(&mut gate, StepOrder { attempt, ..order });
        assert_eq!(admitted, Some(StepAnswer::Done));
    }
    assert!(gate.may_serve());
    gate
}

/// Has a gate take a step; its answer.
pub(super) fn take(gate: &mut EngineGate, order: StepOrder) -> Option<StepAnswer> {
    gate.handle_order(order);
    let mut answered = None;
    while let Some(output) = gate.poll_output() {
        gate.validate().unwrap();
        match output {
            GateOutput::Perform(order) => gate.handle_performed(order.attempt, Ok(())),
            GateOutput::Answer { answer, .. } => answered = Some(answer),
        }
    }
    answered
}

pub(super) const REFUSED: Option<StepAnswer> = Some(StepAnswer::Failed(StepFailure::OutOfOrder));

#[test]
fn an_engine_serves_from_its_resume_to_its_pause() {
    for (means, course) in [
        (
            InstallMeans::Staged,
            &[Negotiate, Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp][..],
        ),
        (
            InstallMeans::InPlace,
            &[Negotiate, Pause, Begin, Fetch, PostProcess, Verify, Invalidate, Stamp][..],
        ),
    ] {
        let mut gate = serving();
        let mut paused = false;
        for (number, step) in course.iter().enumerate() {
            paused |= *step == Pause;
            let done = take(&mut gate, order(*step, number as u64 + 1, means));
            assert_eq!(done, Some(StepAnswer::Done), "{step}");
            assert_eq!(gate.may_serve(), !paused, "{step}");
        }
        assert_eq!(take(&mut gate, order(Resume, 20, means)), Some(StepAnswer::Done));
        assert!(gate.may_serve());
        assert_eq!(gate.report().ready, Some(version(2)));
    }
}

/// Every step that is left out makes a later one wrong, `Resume` at the latest.
#[test]
fn no_step_can_be_left_out() {
    let course =
        [Negotiate, Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume];
    for left_out in [Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp] {
        let mut gate = serving();
        let mut answers = Vec::new();
        for (number, step) in course.iter().enumerate() {
            if *step != left_out {
                answers
                    .push(take(&mut gate, order(*step, number as u64 + 1, InstallMeans::Staged)));
            }
        }
        assert_eq!(answers.last(), Some(&REFUSED), "{left_out}");
    }
}

#[test]
fn older_orders_are_refused_and_repeated_ones_answered_alike() {
    let mut gate = serving();
    let fetch = order(Fetch, 5, InstallMeans::Staged);
    assert_eq!(take(&mut gate, fetch), Some(StepAnswer::Done));
    assert_eq!(take(&mut gate, fetch), Some(StepAnswer::Done));
    let fenced = Some(StepAnswer::Failed(StepFailure::Fenced));
    for older in [order(Discard, 4, InstallMeans::Staged), order(Pause, 1, InstallMeans::Staged)] {
        assert_eq!(take(&mut gate, older), fenced);
    }
    // An order of a later driver is later, whatever its number.
    let attempt = UpdateAttempt::before(2, 0).next();
    let later = StepOrder { attempt, ..order(Pause, 0, InstallMeans::Staged) };
    assert_eq!(take(&mut gate, later), Some(StepAnswer::Done));
    assert_eq!(take(&mut gate, order(Resume, 9, InstallMeans::Staged)), fenced);
}

#[test]
fn a_newer_order_ends_the_changes_of_a_step() {
    let mut gate = serving();
    let fetch = order(Fetch, 1, InstallMeans::Staged);
    gate.handle_order(fetch);
    assert!(gate.may_act(fetch.attempt));
    assert_eq!(gate.busy(), fetch.deadline);
    gate.handle_order(order(Inspect, 2, InstallMeans::Staged));
    assert!(!gate.may_act(fetch.attempt));
    gate.handle_performed(fetch.attempt, Ok(()));
    assert_eq!(gate.report().staged, None, "what was fetched by a fenced step is not whole");
}

#[test]
fn half_an_install_is_no_version() {
    let mut gate = serving();
    for (number, step) in [Fetch, Pause, Begin].into_iter().enumerate() {
        take(&mut gate, order(step, number as u64 + 1, InstallMeans::Staged));
    }
    gate.handle_order(order(Install, 4, InstallMeans::Staged));
    assert_eq!((gate.report().ready, gate.may_serve()), (None, false));
    let back = StepOrder { version: version(1), ..order(Resume, 5, InstallMeans::Staged) };
    assert_eq!(take(&mut gate, back), REFUSED);
    // What was staged is still there.
    assert_eq!(take(&mut gate, order(Install, 6, InstallMeans::Staged)), Some(StepAnswer::Done));
}

#[test]
fn what_arrives_wrong_takes_nothing_from_what_is_served() {
    let mut gate = serving();
    let fetch = order(Fetch, 1, InstallMeans::Staged);
    gate.handle_order(fetch);
    gate.handle_performed(fetch.attempt, Err(StepFailure::Digest));
    assert_eq!((gate.report().ready, gate.may_serve()), (Some(version(1)), true));
}

#[test]
fn who_starts_or_wakes_serves_nothing_before_a_driver_says_so() {
    let mut gate = EngineGate::new(1, Some(version(1)), 3, Safeguards::default());
    assert!(!gate.may_serve());
    let fenced = Some(StepAnswer::Failed(StepFailure::Fenced));
    assert_eq!(take(&mut gate, order(Resume, 1, InstallMeans::Staged)), fenced, "a lost driver");
    let mut gate = serving();
    gate.handle_slept();
    let asleep = Some(StepAnswer::Failed(StepFailure::Asleep));
    let pause = order(Pause, 1, InstallMeans::Staged);
    assert_eq!(take(&mut gate, pause), asleep);
    gate.handle_woken();
    assert_eq!(take(&mut gate, pause), asleep, "repeated");
    assert!(!gate.may_serve());
}

#[test]
fn a_step_that_sleep_has_undone_is_not_done() {
    let mut gate = serving();
    let fetch = order(Fetch, 2, InstallMeans::Staged);
    assert_eq!(take(&mut gate, fetch), Some(StepAnswer::Done));
    gate.handle_slept();
    gate.handle_woken();
    assert_eq!(take(&mut gate, fetch), Some(StepAnswer::Failed(StepFailure::Asleep)));
}

/// What an engine has that starts or wakes is not known to be the version before it is compared.
#[test]
fn who_starts_or_wakes_is_verified_before_it_is_resumed() {
    let woken = || {
        let mut gate = serving();
        gate.handle_slept();
        gate.handle_woken();
        gate
    };
    let of_old = |step, number| StepOrder {
        version: version(1),
        ..order(step, number, InstallMeans::Staged)
    };
    for mut gate in [EngineGate::new(1, Some(version(1)), 0, Safeguards::default()), woken()] {
        assert_eq!((gate.report().ready, gate.report().held), (None, Some(version(1))));
        assert_eq!(take(&mut gate, of_old(Resume, 1)), REFUSED);
        assert_eq!(take(&mut gate, of_old(Verify, 2)), Some(StepAnswer::Done));
        assert_eq!(take(&mut gate, of_old(Resume, 3)), Some(StepAnswer::Done));
    }
    let mut gate = woken();
    let verify = of_old(Verify, 1);
    gate.handle_order(verify);
    gate.handle_performed(verify.attempt, Err(StepFailure::Digest));
    assert_eq!(gate.report().held, None, "it has no version");
}

/// An engine that is behind its fleet has no version that it may go back to, whatever it could go back to before.
#[test]
fn each_update_says_anew_what_an_engine_may_go_back_to() {
    let mut gate = serving();
    let mut offered = |number, old| {
        let order = StepOrder { old, ..order(Negotiate, number, InstallMeans::Staged) };
        assert_eq!(take(&mut gate, order), Some(StepAnswer::Done));
        gate.report().old
    };
    assert_eq!(offered(1, Some(version(1))), Some(version(1)));
    assert_eq!(offered(2, None), None);
}

/// An order that waited for an engine's address may reach another process there.
#[test]
fn an_order_for_another_life_has_no_effect() {
    let mut gate = serving();
    let before = gate.report();
    let other = Some(StepAnswer::Failed(StepFailure::OtherLife));
    for (life, steps) in [(None, &[Pause, Resume][..]), (Some(2), &[Pause, Discard, Inspect][..])] {
        for step in steps {
            let order = StepOrder { life, ..order(*step, 1, InstallMeans::Staged) };
            assert_eq!(take(&mut gate, order), other, "{step}");
        }
    }
    assert_eq!(gate.report(), before);
    let asked = StepOrder { life: None, ..order(Inspect, 1, InstallMeans::Staged) };
    assert!(matches!(take(&mut gate, asked), Some(StepAnswer::Inspected(_))));
}

#[test]
fn a_failure_is_found_by_its_name() {
    for failure in StepFailure::ALL {
        assert_eq!(StepFailure::named(failure.name()), Some(failure));
    }
    assert_eq!(StepFailure::named("Layouts"), None);
}

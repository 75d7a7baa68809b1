//! What the live parameters of a worker are worth, step by step.

use super::gate::{REFUSED, order, serving, take};
use super::version;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineGate, InstallMeans, StepAnswer, StepFailure, StepOrder, UpdateStep,
};

const DONE: Option<StepAnswer> = Some(StepAnswer::Done);

/// A gate that serves version 1 and is told to bring a version.
struct GateHands {
    gate: EngineGate,
    number: u64,
    brings: u64,
}

impl GateHands {
    fn bringing(brings: u64) -> Self {
        Self { gate: serving(), number: 0, brings }
    }

    fn order(&mut self, step: UpdateStep) -> StepOrder {
        self.number += 1;
        let order = order(step, self.number, InstallMeans::Staged);
        StepOrder { version: version(self.brings), ..order }
    }

    fn takes(&mut self, step: UpdateStep) -> Option<StepAnswer> {
        let order = self.order(step);
        take(&mut self.gate, order)
    }

    fn all(mut self, steps: &[UpdateStep]) -> Self {
        steps.iter().for_each(|step| assert_eq!(self.takes(*step), DONE, "{step}"));
        self
    }

    fn fails(&mut self, step: UpdateStep, failure: StepFailure) {
        let order = self.order(step);
        self.gate.handle_order(order);
        self.gate.handle_performed(order.attempt, Err(failure));
        while self.gate.poll_output().is_some() {}
    }
}

#[test]
fn a_step_that_another_one_has_to_precede_is_refused_before_that() {
    let installed = &[Fetch, Pause, Begin, Install][..];
    let with = |more: &[UpdateStep]| [installed, more].concat();
    for (taken, refused) in [
        (vec![], &[Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume][..]),
        (vec![Pause], &[Install, PostProcess, Verify, Stamp, Resume]),
        (vec![Fetch], &[Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume]),
        (vec![Pause, Begin], &[Install, PostProcess, Verify, Stamp, Resume]),
        (vec![Fetch, Pause], &[Install, PostProcess, Verify, Stamp, Resume]),
        (vec![Fetch, Pause, Begin], &[PostProcess, Verify, Stamp, Resume]),
        (installed.to_vec(), &[Verify, Stamp, Resume]),
        (with(&[Invalidate]), &[Verify, Stamp, Resume]),
        (with(&[PostProcess]), &[Stamp, Resume]),
        (with(&[PostProcess, Invalidate]), &[Stamp, Resume]),
        (with(&[PostProcess, Verify]), &[Stamp, Resume]),
        (with(&[PostProcess, Verify, Invalidate]), &[Resume]),
    ] {
        for step in refused {
            let mut hands = GateHands::bringing(2).all(&taken);
            assert_eq!(hands.takes(*step), REFUSED, "{step} after {taken:?}");
        }
    }
}

/// In place, bytes land in the live parameters: only once they were opened.
#[test]
fn nothing_is_fetched_in_place_before_the_parameters_are_open() {
    let in_place = |step, number| order(step, number, InstallMeans::InPlace);
    let mut gate = serving();
    assert_eq!(take(&mut gate, in_place(Fetch, 1)), REFUSED);
    assert_eq!(take(&mut gate, in_place(Pause, 2)), DONE);
    assert_eq!(take(&mut gate, in_place(Fetch, 3)), REFUSED);
    assert_eq!(gate.report().ready, Some(version(1)), "nothing has come in");
    assert_eq!(take(&mut gate, in_place(Begin, 4)), DONE);
    assert_eq!((gate.report().ready, gate.report().held), (None, None), "from now on bytes may");
    assert_eq!(take(&mut gate, in_place(Fetch, 5)), DONE);
}

/// Who serves is told what tokens are stamped with, and the stamp is the last that was set.
#[test]
fn the_stamp_stays_until_the_next_one_whatever_the_parameters_hold() {
    let mut hands = GateHands::bringing(2);
    assert_eq!(hands.gate.stamp(), Some(version(1)));
    for step in [Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate] {
        assert_eq!(hands.takes(step), DONE);
        let torn = matches!(step, Install | PostProcess | Verify | Invalidate);
        let held = Some(version(1)).filter(|_| !torn);
        let report = hands.gate.report();
        assert_eq!((hands.gate.stamp(), report.held), (Some(version(1)), held), "{step}");
        assert_eq!(report.ready, held);
    }
    assert_eq!(hands.takes(Stamp), DONE);
    let report = hands.gate.report();
    let new = Some(version(2));
    assert_eq!((hands.gate.stamp(), report.held, report.ready), (new, new, new));
}

/// The engine was not told yet which version it holds when it was installed for the first time.
#[test]
fn a_version_that_is_installed_twice_is_stamped_all_the_same() {
    let mut hands = GateHands::bringing(2).all(&[Fetch, Pause, Begin, Install, Begin, Install]);
    for step in [PostProcess, Verify, Invalidate] {
        assert_eq!(hands.takes(step), DONE);
        assert_eq!((hands.gate.stamp(), hands.gate.report().held), (Some(version(1)), None));
    }
    assert_eq!(hands.takes(Resume), REFUSED);
    assert_eq!(hands.takes(Stamp), DONE);
    assert_eq!(hands.takes(Resume), DONE);
}

/// It carries the right stamp already: nothing else may be left out for that.
#[test]
fn a_version_that_is_installed_again_is_whole_once_all_is_done_again() {
    let mut hands = GateHands::bringing(1).all(&[Fetch, Pause, Begin]);
    assert_eq!(hands.gate.report().ready, Some(version(1)));
    for step in [Install, PostProcess, Verify] {
        assert_eq!(hands.takes(step), DONE);
        let report = hands.gate.report();
        assert_eq!((report.ready, report.held), (None, Some(version(1))), "{step}");
        assert_eq!(hands.takes(Resume), REFUSED, "{step}");
    }
    assert_eq!(hands.takes(Invalidate), DONE);
    assert_eq!(hands.gate.report().ready, Some(version(1)));
    assert_eq!(hands.takes(Resume), DONE);
}

/// What a step may have changed counts as changed from its beginning on, also at an engine that nobody has paused.
#[test]
fn parameters_that_are_being_processed_or_compared_are_not_served() {
    for step in [PostProcess, Verify] {
        let mut hands = GateHands::bringing(1);
        let order = hands.order(step);
        hands.gate.handle_order(order);
        assert_eq!((hands.gate.may_serve(), hands.gate.report().ready), (false, None), "{step}");
        assert_eq!(hands.gate.report().held, Some(version(1)));
        hands.gate.handle_performed(order.attempt, Ok(()));
        assert_eq!(hands.gate.may_serve(), step == Verify, "what was processed is compared first");
        assert_eq!(hands.takes(Verify), DONE);
        assert!(hands.gate.may_serve());
    }
}

#[test]
fn parameters_whose_processing_or_comparison_failed_are_not_served() {
    let mut hands = GateHands::bringing(1);
    hands.fails(PostProcess, StepFailure::Engine);
    assert_eq!((hands.gate.may_serve(), hands.takes(Verify)), (false, REFUSED));
    assert_eq!(hands.takes(PostProcess), DONE);
    for (failure, held) in [(StepFailure::Engine, Some(version(1))), (StepFailure::Digest, None)] {
        hands.fails(Verify, failure);
        let report = hands.gate.report();
        assert_eq!((report.ready, report.held, report.serving), (None, held, false));
        assert_eq!(hands.takes(Resume), REFUSED);
    }
    assert_eq!(hands.gate.stamp(), Some(version(1)));
}

/// Bytes that arrive wrong are staged bytes; only what is compared in the live parameters takes these away.
#[test]
fn a_digest_that_is_wrong_at_another_step_tears_nothing() {
    for step in [Fetch, Negotiate, Pause] {
        let mut hands = GateHands::bringing(2);
        hands.fails(step, StepFailure::Digest);
        assert_eq!(hands.gate.report().ready, Some(version(1)), "{step}");
    }
}

#[test]
fn what_was_staged_before_is_gone_once_another_version_is_fetched() {
    let mut hands = GateHands::bringing(2).all(&[Fetch]);
    hands.brings = 3;
    hands.fails(Fetch, StepFailure::Source);
    assert_eq!(hands.gate.report().staged, None);
    let mut hands = GateHands::bringing(2).all(&[Fetch, Pause, Begin]);
    hands.brings = 3;
    assert_eq!(hands.takes(Install), REFUSED, "another version is staged");
}

//! What an update has its driver do, word by word and in order.

use super::*;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    EngineReport, EngineState, FleetTransaction, StepFailure, UpdateReason,
};
use crate::{Span, Version};

const OWN: FleetTransaction = FleetTransaction { driver: 1, number: 7 };

fn outputs(update: &mut EngineUpdate) -> Vec<UpdateOutput> {
    update.validate().unwrap();
    std::iter::from_fn(|| update.poll_output()).collect()
}

/// The order of this number in an update from [`config`], for its first way.
fn order(number: u64, step: UpdateStep) -> StepOrder {
    StepOrder {
        attempt: UpdateAttempt { number, ..UpdateAttempt::before(1, 1) },
        life: LIFE,
        step,
        version: version(2),
        old: Some(version(1)),
        means: InstallMeans::Staged,
        keep_caches: false,
        deadline: StepDeadlines::default().of(step),
        transaction: None,
    }
}

fn stands(ready: Option<Version>) -> StepAnswer {
    StepAnswer::Inspected(EngineReport { ready, life: LIFE, paused: true, ..Default::default() })
}

/// Both workers say this of an order.
fn say(update: &mut EngineUpdate, now: u64, attempt: UpdateAttempt, answer: StepAnswer) {
    for worker in 0..2 {
        update.handle(Time(now), UpdateInput::Answered { worker, attempt, answer });
    }
}

#[test]
fn orders_are_numbered_and_name_all_that_a_worker_has_to_know() {
    let mut update = EngineUpdate::new(config(), Time(0));
    let steps =
        [Negotiate, Fetch, Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume];
    for (number, step) in (1..).zip(steps) {
        let order = order(number, step);
        assert_eq!((outputs(&mut update), update.step()), (vec![UpdateOutput::Run(order)], step));
        assert_eq!(update.next_timeout(), Some(Time(number - 1) + order.deadline));
        say(&mut update, number, order.attempt, StepAnswer::Done);
    }
    assert_eq!(outputs(&mut update).len(), 1);
}

/// Deadlines that can be told apart.
const APART: StepDeadlines = StepDeadlines {
    bytes: Span::from_secs(9),
    pause: Span::from_secs(8),
    parameters: Span::from_secs(7),
    word: Span::from_secs(6),
};

#[test]
fn an_order_says_whether_caches_are_kept_and_how_long_it_may_take() {
    for (mode, keep_caches) in
        [(PauseMode::Keep { mixed: true }, true), (PauseMode::Keep { mixed: false }, false)]
    {
        let config = UpdateConfig {
            mode,
            deadlines: APART,
            transaction: Some(OWN),
            life: Some(9),
            old: None,
            ..config()
        };
        let mut rig = UpdateRig::new(config);
        for step in [Negotiate, Fetch, Pause] {
            let expected = StepOrder {
                keep_caches,
                deadline: APART.of(step),
                transaction: Some(OWN),
                life: Some(9),
                old: None,
                ..order(rig.steps.len() as u64, step)
            };
            assert_eq!(rig.order, Some(expected));
            rig.answer(0, StepAnswer::Done);
            rig.answer(1, StepAnswer::Done);
        }
    }
}

/// On the way back an order is about the old version; the last word of a fleet's update takes that version away.
#[test]
fn an_order_on_the_way_back_is_about_the_old_version() {
    let mut rig = UpdateRig::new(config());
    rig.go_to(Begin);
    rig.answer(0, StepAnswer::Failed(StepFailure::Engine));
    assert_eq!(rig.order, Some(StepOrder { version: version(1), ..order(5, Discard) }));
    rig.go_to(Resume);
    assert_eq!(rig.order, Some(StepOrder { version: version(1), ..order(6, Resume) }));
    let config = UpdateConfig { transaction: Some(OWN), retries: 0, ..config() };
    let mut rig = UpdateRig::of(EngineUpdate::forward(config, Time(0)));
    rig.answer(0, StepAnswer::Failed(StepFailure::Engine));
    let own = StepOrder { transaction: Some(OWN), ..order(2, Inspect) };
    assert_eq!(rig.order, Some(own));
    let report = EngineReport { transaction: Some(OWN), life: LIFE, ..Default::default() };
    rig.answer(0, StepAnswer::Inspected(report));
    rig.answer(1, StepAnswer::Inspected(report));
    let forget = StepOrder { old: None, transaction: Some(OWN), ..order(3, Discard) };
    assert_eq!(rig.order, Some(forget));
}

/// What is abandoned is what was ordered, word for word, and comes before what takes its place.
#[test]
fn an_order_that_is_given_up_is_abandoned_before_the_next_one_is_given() {
    for step in [Negotiate, Fetch, Pause, Begin, Install, Verify, Stamp, Resume] {
        let mut rig = UpdateRig::new(config());
        rig.go_to(step);
        let mut ran = rig.order.unwrap();
        let mut update = rig.update;
        // On the way back too, down to the last question.
        while !update.is_over() {
            let due = update.next_timeout().expect("a deadline");
            update.handle_timeout(due);
            let [abandoned, next] = outputs(&mut update)[..] else { panic!("{step}") };
            assert_eq!(abandoned, UpdateOutput::Abandon(ran));
            if let UpdateOutput::Run(order) = next {
                assert_eq!(order.attempt, ran.attempt.next());
                ran = order;
            }
        }
        assert_eq!(ran.step, Inspect);
    }
}

#[test]
fn what_an_update_wants_comes_in_the_order_in_which_it_was_wanted() {
    let config = UpdateConfig { transaction: Some(OWN), ..config() };
    let mut update = EngineUpdate::new(config, Time(0));
    let own = |number, step| StepOrder { transaction: Some(OWN), ..order(number, step) };
    let steps = [own(1, Negotiate), own(2, Fetch), own(3, Pause)];
    for order in steps {
        say(&mut update, 1, order.attempt, StepAnswer::Done);
    }
    update.handle(Time(2), UpdateInput::Proceed);
    update.handle(Time(3), UpdateInput::Lost);
    let begin = own(4, Begin);
    let all = outputs(&mut update);
    assert_eq!(all[..3], steps.map(UpdateOutput::Run));
    let last = [UpdateOutput::Prepared, UpdateOutput::Run(begin), UpdateOutput::Abandon(begin)];
    assert_eq!(all[3..6], last);
    assert!(matches!(all[6..], [UpdateOutput::Ended(_)]));
}

/// Nothing is under way at a prepared engine, so nothing is abandoned there.
#[test]
fn a_prepared_engine_is_told_what_follows_and_nothing_else() {
    for (input, step) in [
        (UpdateInput::Proceed, Begin),
        (UpdateInput::Abort, Discard),
        (UpdateInput::Leave, Inspect),
    ] {
        let config = UpdateConfig { transaction: Some(OWN), ..config() };
        let mut rig = UpdateRig::new(config);
        while !rig.prepared {
            rig.answer(0, StepAnswer::Done);
            rig.answer(1, StepAnswer::Done);
        }
        let mut update = rig.update;
        update.handle(Time(9), input);
        let told = outputs(&mut update);
        let [UpdateOutput::Run(order)] = told[..] else { panic!("{told:?}") };
        assert_eq!(order.step, step);
        assert!(!update.is_prepared() && !update.is_over());
    }
}

/// A fleet's verdict is for engines that wait for it, or still prepare.
#[test]
fn a_verdict_that_comes_at_another_time_changes_nothing() {
    let verdicts = [UpdateInput::Proceed, UpdateInput::Leave, UpdateInput::Abort];
    let config = || UpdateConfig { transaction: Some(OWN), ..config() };
    let begun = EngineUpdate::new(config(), Time(0));
    let forward = EngineUpdate::forward(config(), Time(0));
    let back = EngineUpdate::back(config(), Time(0));
    let asks = EngineUpdate::ask(config(), Time(0));
    for (mut update, tried) in [
        (begun, &verdicts[..2]),
        (forward, &verdicts[..]),
        (back, &verdicts[..]),
        (asks, &verdicts[..]),
    ] {
        outputs(&mut update);
        for input in tried {
            update.handle(Time(1), *input);
            assert_eq!(outputs(&mut update), [], "{input:?} at {}", update.step());
        }
    }
}

#[test]
fn an_answer_at_the_deadline_comes_too_late_and_one_just_before_counts() {
    let deadline = StepDeadlines::default().word.0;
    for (now, counts) in [(deadline - 1, true), (deadline, false)] {
        let mut update = EngineUpdate::new(config(), Time(0));
        outputs(&mut update);
        say(&mut update, now, order(1, Negotiate).attempt, StepAnswer::Done);
        assert_eq!(update.step(), if counts { Fetch } else { Discard });
        update.handle_timeout(Time(now));
        assert_eq!(outputs(&mut update).len(), if counts { 1 } else { 2 });
    }
}

#[test]
fn only_the_workers_that_an_engine_has_are_counted_and_each_of_them_once() {
    let mut update = EngineUpdate::new(config(), Time(0));
    outputs(&mut update);
    let attempt = order(1, Negotiate).attempt;
    for worker in [2, 3, u32::MAX, 0, 0] {
        let answer = StepAnswer::Done;
        update.handle(Time(1), UpdateInput::Answered { worker, attempt, answer });
        assert_eq!(outputs(&mut update), [], "worker {worker}");
    }
    let answer = StepAnswer::Failed(StepFailure::Engine);
    update.handle(Time(1), UpdateInput::Answered { worker: 2, attempt, answer });
    assert_eq!(outputs(&mut update), [], "nor does its failure count");
    let answer = StepAnswer::Done;
    update.handle(Time(1), UpdateInput::Answered { worker: 1, attempt, answer });
    assert_eq!(outputs(&mut update), [UpdateOutput::Run(order(2, Fetch))]);
}

#[test]
fn an_update_that_is_over_hears_nothing_any_more() {
    let mut update = EngineUpdate::new(config(), Time(0));
    assert!(!update.is_over());
    update.handle(Time(1), UpdateInput::Lost);
    assert!(update.is_over() && update.next_timeout().is_none());
    outputs(&mut update);
    for input in [UpdateInput::Lost, UpdateInput::Cancel, UpdateInput::Abort, UpdateInput::Proceed]
    {
        update.handle(Time(2), input);
    }
    say(&mut update, 3, order(1, Negotiate).attempt, StepAnswer::Done);
    update.handle_timeout(Time(u64::MAX));
    assert_eq!(outputs(&mut update), []);
}

/// Its bytes are staged: nothing is fetched, whether or not it would have been fetched ahead.
#[test]
fn an_update_that_goes_on_after_its_driver_was_lost_fetches_nothing() {
    for prefetch in [true, false] {
        let config = UpdateConfig { prefetch, transaction: Some(OWN), ..config() };
        let mut rig = UpdateRig::of(EngineUpdate::forward(config, Time(0)));
        rig.go_to(Resume);
        let steps = [Pause, Begin, Install, PostProcess, Verify, Invalidate, Stamp, Resume];
        assert_eq!(rig.steps, steps);
    }
}

/// Whoever only asks has nothing resumed, and says what the engine was.
#[test]
fn a_question_orders_nothing_whatever_the_engine_says() {
    for ready in [None, Some(version(1)), Some(version(2))] {
        let config = UpdateConfig { paused: true, ..config() };
        let mut rig = UpdateRig::of(EngineUpdate::ask(config, Time(0)));
        rig.answer(0, stands(ready));
        rig.answer(1, stands(ready));
        assert_eq!(rig.steps, [Inspect]);
        let outcome = rig.outcome.expect("it is over");
        let state = match ready {
            None => EngineState::Empty,
            Some(held) if held == version(2) => EngineState::New(held),
            Some(held) => EngineState::Old(held),
        };
        assert_eq!((outcome.state, outcome.serving, outcome.failure), (state, false, None));
        assert_eq!(outcome.report.map(StepAnswer::Inspected), Some(stands(ready)));
    }
    let mut rig = UpdateRig::of(EngineUpdate::ask(config(), Time(0)));
    rig.let_pass();
    let outcome = rig.outcome.expect("it is over");
    let late = Some((Inspect, UpdateReason::Deadline));
    assert_eq!((outcome.state, outcome.failure), (EngineState::Gone, late));
    assert_eq!((outcome.paused, outcome.total), (Span(0), StepDeadlines::default().word));
}

#[test]
fn an_order_of_an_engine_that_goes_on_by_itself_is_known_by_its_number() {
    let attempt = UpdateAttempt { number: 3, ..UpdateAttempt::before(1, 2) };
    assert_eq!(attempt.to_string(), "1.2.3");
    let own = UpdateAttempt { by_itself: true, ..attempt };
    assert_eq!(own.to_string(), "1.2.self.3");
    assert!(own > UpdateAttempt { number: 99, ..attempt } && own < UpdateAttempt::before(1, 3));
}

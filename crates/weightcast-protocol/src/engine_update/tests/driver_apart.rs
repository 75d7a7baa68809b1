//! Engines that a driver brings to a version each by itself.

use super::driver::config;
use super::hands::*;
use super::version;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    DriverConfig, DriverEnd, DriverInput, DriverOutput, EngineReport, EngineState, InstallMeans,
    StepAnswer, StepFailure, StepOrder, UpdateAttempt, UpdateConfig, UpdateInput, UpdateReason,
};
use crate::{Span, Time, Version};

/// A driver whose engines are no fleet.
fn apart() -> DriverConfig {
    DriverConfig { fleet: false, ..config(1) }
}

/// After the roll call, in which the engines say this in turn; what the driver wants then.
fn called(
    config: DriverConfig,
    wanted: Option<Version>,
    fleet: Option<Version>,
    reports: &[EngineReport],
) -> (DriverHands, Vec<Wish>) {
    let workers = vec![1; reports.len()];
    let mut hands = DriverHands::numbered(config, wanted, fleet, &workers);
    let said = (0..).zip(reports).map(|(engine, report)| hands.reports(engine, *report));
    let wants = told(&said.last().unwrap());
    (hands, wants)
}

/// The end of the one engine's update that an output tells of.
fn outcome(outputs: &[DriverOutput]) -> &crate::engine_update::UpdateOutcome {
    let found = outputs.iter().find_map(|output| match output {
        DriverOutput::Apart { outcome, .. } => Some(outcome),
        _ => None,
    });
    found.expect("an end")
}

#[test]
fn engines_that_are_no_fleet_are_left_alone_where_nobody_wants_a_version() {
    let (hands, wants) = called(apart(), None, Some(version(2)), &[serves(1), stands(1)]);
    assert_eq!(wants, [Wish::Ended(DriverEnd::Done)]);
    assert!(hands.driver.is_idle());
}

/// Those that serve the version already, and those that sleep, are left alone.
#[test]
fn each_engine_is_brought_to_the_version_from_where_it_is() {
    let asleep = EngineReport { asleep: true, ..stands(1) };
    let held = EngineReport { ready: None, ..stands(2) };
    let reports = [serves(2), serves(1), stands(2), held, asleep, empty()];
    let (mut hands, wants) = called(apart(), Some(version(2)), None, &reports);
    let begun = [(1, Negotiate), (2, Discard), (3, Discard), (5, Negotiate)];
    assert_eq!(wants, begun.map(|(engine, step)| Wish::Run(engine, step)));
    let done = StepAnswer::Done;
    assert_eq!(told(&hands.answers(2, done)), [Wish::Run(2, Resume)], "it is ready");
    assert_eq!(told(&hands.answers(2, done)), [Wish::Apart(2)]);
    assert_eq!(told(&hands.answers(3, done)), [Wish::Run(3, Verify)], "it was not compared yet");
    hands.go_to(&[3], Resume);
    assert_eq!(told(&hands.answers(3, done)), [Wish::Apart(3)]);
    for engine in [1, 5] {
        hands.go_to(&[engine], Resume);
        let ended = hands.answers(engine, done);
        assert_eq!(outcome(&ended).state, EngineState::New(version(2)));
        let all = [Wish::Apart(engine), Wish::Ended(DriverEnd::Done)];
        assert_eq!(told(&ended), all[..if engine == 5 { 2 } else { 1 }]);
    }
    assert!(hands.driver.is_idle());
}

#[test]
fn an_order_for_an_engine_apart_names_its_life_and_what_it_may_go_back_to() {
    let held = EngineReport { ready: None, ..stands(2) };
    let one = |report, fleet| {
        let config = DriverConfig { fleet, prefetch: false, ..apart() };
        let reports = [serves(2), report];
        called(config, Some(version(2)), Some(version(2)), &reports).0.orders[&1]
    };
    let order = |step, old| StepOrder {
        attempt: UpdateAttempt::before(NUMBER, 3).next(),
        life: Some(3),
        step,
        version: version(2),
        old,
        means: InstallMeans::Staged,
        keep_caches: false,
        deadline: Span::from_secs(10),
        transaction: None,
    };
    let new = Some(version(2));
    assert_eq!(one(serves(1), false), order(Negotiate, Some(version(1))));
    assert_eq!(one(empty(), false), order(Negotiate, None));
    // An engine that is behind its fleet has nothing to go back to: it would serve beside the others.
    assert_eq!(one(serves(1), true), order(Negotiate, None));
    for fleet in [false, true] {
        assert_eq!(one(stands(2), fleet), order(Discard, new));
        assert_eq!(one(held, fleet), order(Discard, new));
    }
}

/// Whoever was paused before is resumed if nothing comes of it, and has stood still since the update began.
#[test]
fn an_engine_apart_that_fails_goes_on_with_what_it_had() {
    for (report, steps) in [
        (serves(1), [Discard, Inspect]),
        (stands(1), [Discard, Resume]),
        (empty(), [Discard, Inspect]),
    ] {
        let (mut hands, _) = called(apart(), Some(version(2)), None, &[report]);
        hands.now = hands.now + Span::from_secs(1);
        let failed = told(&hands.fails(0));
        assert_eq!(failed, [Wish::Abandon(0, Negotiate), Wish::Run(0, steps[0])]);
        assert_eq!(told(&hands.answers(0, StepAnswer::Done)), [Wish::Run(0, steps[1])]);
        let answer =
            if steps[1] == Inspect { StepAnswer::Inspected(report) } else { StepAnswer::Done };
        let ended = hands.answers(0, answer);
        let found = outcome(&ended);
        let (state, serving) = match report.ready {
            Some(held) => (EngineState::Old(held), true),
            None => (EngineState::Empty, false),
        };
        assert_eq!((found.state, found.serving), (state, serving));
        assert_eq!(found.failure, Some((Negotiate, UpdateReason::Failed(StepFailure::Engine))));
        let paused = if report.paused { Span::from_secs(1) } else { Span(0) };
        assert_eq!((found.paused, found.total), (paused, Span::from_secs(1)));
        assert_eq!(told(&ended), [Wish::Apart(0), Wish::Ended(DriverEnd::Done)]);
    }
}

/// Both machines and both ends are told in the order of their engines.
#[test]
fn an_engine_apart_that_dies_is_gone_and_its_order_is_sent_no_more() {
    let (mut hands, _) = called(apart(), Some(version(2)), None, &[serves(1), serves(1)]);
    let first = hands.loses(0);
    assert_eq!(told(&first), [Wish::Abandon(0, Negotiate), Wish::Apart(0)]);
    assert_eq!(outcome(&first).state, EngineState::Gone);
    hands.go_to(&[1], Install);
    let last = hands.loses(1);
    let all = [Wish::Abandon(1, Install), Wish::Apart(1), Wish::Ended(DriverEnd::Done)];
    assert_eq!(told(&last), all);
}

#[test]
fn a_caller_that_cancels_stops_the_engines_that_can_still_go_back() {
    let reports = [serves(1), serves(1), serves(1)];
    let (mut hands, _) = called(apart(), Some(version(2)), None, &reports);
    hands.go_to(&[1], Install);
    hands.go_to(&[2], Fetch);
    let stopped = told(&hands.give(DriverInput::Cancel));
    let expected = [
        Wish::Abandon(0, Negotiate),
        Wish::Run(0, Discard),
        Wish::Abandon(2, Fetch),
        Wish::Run(2, Discard),
    ];
    assert_eq!(stopped, expected);
    assert!(!hands.driver.is_idle());
    for engine in [0, 2] {
        hands.answers(engine, StepAnswer::Done);
        let ended = hands.reports(engine, serves(1));
        let found = outcome(&ended);
        assert_eq!((found.state, found.serving), (EngineState::Old(version(1)), true));
        assert_eq!(found.failure.map(|(_, why)| why), Some(UpdateReason::Cancelled));
    }
    hands.go_to(&[1], Resume);
    let ended = told(&hands.answers(1, StepAnswer::Done));
    assert_eq!(ended, [Wish::Apart(1), Wish::Ended(DriverEnd::Done)]);
}

#[test]
fn updates_of_engines_apart_are_due_by_the_bound_of_the_latest() {
    let bound = |config: &DriverConfig| {
        let DriverConfig { means, mode, prefetch, deadlines, retries, safeguards, .. } = *config;
        let config = UpdateConfig {
            means,
            mode,
            prefetch,
            deadlines,
            retries,
            safeguards,
            ..super::config()
        };
        config.bound()
    };
    for means in [InstallMeans::Staged, InstallMeans::InPlace] {
        let config = DriverConfig { means, retries: 2, ..apart() };
        let due = Some(Time(0) + Span::from_secs(10) + bound(&config));
        let (mut hands, wants) = called(config, Some(version(2)), None, &[serves(1), stands(2)]);
        assert_eq!((wants.len(), hands.driver.due()), (2, due));
        assert_eq!(hands.orders[&0].means, means);
        hands.loses(0);
        assert_eq!(hands.driver.due(), due, "engine 1 is still under way");
        hands.loses(1);
        assert_eq!(hands.driver.due(), None);
    }
}

/// A step's deadline is the driver's next one; what the engine may still do is fenced by the next order.
#[test]
fn a_step_apart_that_takes_too_long_is_abandoned_at_its_deadline() {
    let (mut hands, _) = called(apart(), Some(version(2)), None, &[serves(1), serves(1)]);
    hands.go_to(&[1], Fetch);
    assert_eq!(hands.driver.next_timeout(), Some(Time(0) + Span::from_secs(20)));
    let late = told(&hands.waits_until(20));
    assert_eq!(late, [Wish::Abandon(0, Negotiate), Wish::Run(0, Discard)]);
    assert_eq!(hands.orders[&0].attempt.number, 2);
    assert_eq!(hands.driver.next_timeout(), Some(Time(0) + Span::from_secs(30)));
}

/// What an engine is to do next is for the driver alone to say.
#[test]
fn nobody_but_the_driver_tells_an_engine_apart_what_to_do_next() {
    let (mut hands, _) = called(apart(), Some(version(2)), None, &[serves(1)]);
    for input in [UpdateInput::Cancel, UpdateInput::Abort, UpdateInput::Proceed, UpdateInput::Leave]
    {
        assert_eq!(hands.give(DriverInput::Engine { engine: 0, input }), []);
    }
    assert_eq!(hands.give(DriverInput::Engine { engine: 7, input: UpdateInput::Lost }), []);
    assert_eq!(hands.orders[&0].step, Negotiate);
}

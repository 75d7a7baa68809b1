//! Engines that a driver brings to a version as one fleet, and what it ends of a lost driver before.

use std::collections::BTreeMap;

use super::driver::config;
use super::hands::*;
use super::version;
use crate::engine_update::UpdateStep::*;
use crate::engine_update::{
    DriverConfig, DriverEnd, DriverInput, DriverOutput, EngineReport, FleetEnd, FleetQuestion,
    FleetTransaction, FleetVerdict, InstallMeans, StepAnswer, StepOrder, UpdateAttempt,
    UpdateConfig,
};
use crate::{Span, Time, Version};

/// After the roll call, in which the engines say this in turn.
fn called(config: DriverConfig, fleet: Option<Version>, reports: &[EngineReport]) -> DriverHands {
    let workers = vec![1; reports.len()];
    let mut hands = DriverHands::numbered(config, Some(version(3)), fleet, &workers);
    for (engine, report) in (0..).zip(reports) {
        hands.reports(engine, *report);
    }
    hands
}

const fn transaction(number: u64) -> FleetTransaction {
    FleetTransaction { driver: NUMBER, number }
}

fn question(number: u64, wanted: FleetVerdict) -> FleetQuestion {
    FleetQuestion::Verdict { transaction: transaction(number), wanted, version: version(3) }
}

fn verdict(verdict: FleetVerdict) -> crate::engine_update::FleetAnswer {
    answer(None, Some(verdict))
}

/// All of these engines prepare; what the driver wants then.
fn prepare(hands: &mut DriverHands, engines: &[u32]) -> Vec<Wish> {
    hands.go_to(engines, Pause);
    let last = engines.iter().map(|engine| hands.answers(*engine, StepAnswer::Done)).last();
    told(&last.unwrap())
}

#[test]
fn a_fleets_update_goes_from_the_roll_call_over_the_verdict_to_its_end() {
    let mut hands = called(config(1), Some(version(1)), &[serves(1), serves(1), serves(1)]);
    assert_eq!(hands.driver.transaction(), Some(transaction(1)));
    let asked = prepare(&mut hands, &[2, 0, 1]);
    assert_eq!(asked, [Wish::Ask(question(1, FleetVerdict::Commit))]);
    let commit = hands.says(question(1, FleetVerdict::Commit), verdict(FleetVerdict::Commit));
    assert_eq!(told(&commit), [0, 1, 2].map(|engine| Wish::Run(engine, Begin)));
    hands.go_to(&[0, 1, 2], Resume);
    for engine in [1, 2] {
        assert_eq!(hands.answers(engine, StepAnswer::Done), [], "one is missing");
    }
    let ended = hands.answers(0, StepAnswer::Done);
    let [
        DriverOutput::Fleet { transaction: of, version: brought, result },
        DriverOutput::Ended(end),
    ] = &ended[..]
    else {
        panic!("{ended:?}")
    };
    assert_eq!((*of, *brought, end), (transaction(1), version(3), &DriverEnd::Done));
    assert_eq!((result.end, result.engines.len()), (FleetEnd::Committed, 3));
    assert!(result.engines.values().all(|outcome| outcome.is_new()));
    assert_eq!((hands.driver.transaction(), hands.driver.due()), (None, None));
    // The next one has the next number.
    assert!(hands.driver.bring(hands.now, Some(version(4)), BTreeMap::from([(0, 1)])));
    hands.wants();
    hands.says(FleetQuestion::State, answer(Some(version(3)), None));
    hands.reports(0, serves(3));
    assert_eq!(hands.driver.transaction(), Some(transaction(2)));
}

#[test]
fn an_order_for_an_engine_of_a_fleet_names_the_update_the_life_and_what_it_may_go_back_to() {
    let config = DriverConfig { means: InstallMeans::InPlace, ..config(1) };
    let reports = [serves(1), stands(1), serves(2), empty()];
    let hands = called(config, Some(version(1)), &reports);
    for (engine, old) in [(0, Some(version(1))), (1, Some(version(1))), (2, None), (3, None)] {
        let order = StepOrder {
            attempt: UpdateAttempt::before(NUMBER, 5).next(),
            life: Some(3),
            step: Negotiate,
            version: version(3),
            old,
            means: InstallMeans::Staged,
            keep_caches: false,
            deadline: Span::from_secs(10),
            transaction: Some(transaction(1)),
        };
        assert_eq!(hands.orders[&engine], order);
    }
}

/// Where the register knows no version, the one counts that all engines serve which serve.
#[test]
fn a_fleets_version_is_what_all_who_serve_serve_where_the_register_does_not_know() {
    let asleep = EngineReport { asleep: true, paused: true, serving: false, ..serves(2) };
    for (reports, old) in [
        ([serves(1), serves(1), stands(1)], [Some(1), Some(1), Some(1)]),
        ([serves(1), serves(1), stands(2)], [Some(1), Some(1), None]),
        ([serves(1), serves(2), stands(2)], [None, None, None]),
        ([serves(2), serves(1), stands(2)], [None, None, None]),
        ([stands(1), stands(1), stands(1)], [None, None, None]),
        ([serves(1), empty(), asleep], [Some(1), None, None]),
    ] {
        let hands = called(config(1), None, &reports);
        let found: Vec<_> = hands.orders.values().take(3).map(|order| order.old).collect();
        let asleep = usize::from(reports[2].asleep);
        let old = old.map(|number| number.map(version));
        // Whoever sleeps is asked and then left alone.
        assert_eq!(found[..3 - asleep], old[..3 - asleep], "{reports:?}");
        let preparing = hands.orders.values().filter(|order| order.step == Negotiate).count();
        assert_eq!(preparing, 3 - asleep);
    }
}

#[test]
fn a_fleets_update_is_due_by_its_bound_whatever_the_means_of_others() {
    let DriverConfig { means: _, mode, prefetch, deadlines, retries, safeguards, .. } = config(1);
    let update = UpdateConfig { mode, prefetch, deadlines, retries, safeguards, ..super::config() };
    let bound = 300 * 1_000_000_000 + 3 * 1_000_000_000 + 2 * update.bound().0;
    let config = DriverConfig { means: InstallMeans::InPlace, ..config(1) };
    let mut hands = called(config, Some(version(1)), &[serves(1)]);
    assert_eq!(hands.driver.due(), Some(Time(0) + Span::from_secs(10) + Span(bound)));
    assert_eq!(hands.driver.next_timeout(), Some(Time(0) + Span::from_secs(20)));
    hands.fails(0);
    hands.says(question(1, FleetVerdict::Abort), verdict(FleetVerdict::Abort));
    assert!(hands.driver.due().is_some());
    hands.answers(0, StepAnswer::Done);
    hands.reports(0, serves(1));
    assert_eq!((hands.driver.is_idle(), hands.driver.due()), (true, None));
}

/// Orders that nobody waits for any more come before those that take their place, engine by engine.
#[test]
fn what_a_fleets_engines_are_told_keeps_its_order() {
    let mut hands = called(config(1), Some(version(1)), &[serves(1), serves(1), serves(1)]);
    hands.go_to(&[1, 2], Fetch);
    let abort = Wish::Ask(question(1, FleetVerdict::Abort));
    let failed = told(&hands.fails(0));
    assert_eq!(failed, [Wish::Abandon(0, Negotiate), Wish::Run(0, Discard), abort]);
    let decided = hands.says(question(1, FleetVerdict::Abort), verdict(FleetVerdict::Abort));
    let back = [
        Wish::Abandon(1, Fetch),
        Wish::Run(1, Discard),
        Wish::Abandon(2, Fetch),
        Wish::Run(2, Discard),
    ];
    assert_eq!(told(&decided), back);
    for engine in [0, 1, 2] {
        hands.answers(engine, StepAnswer::Done);
    }
    hands.reports(0, serves(1));
    hands.reports(1, serves(1));
    let last = told(&hands.loses(2));
    assert_eq!(last, [Wish::Abandon(2, Inspect), Wish::Fleet, Wish::Ended(DriverEnd::Done)]);
}

#[test]
fn an_engine_that_dies_while_its_fleet_prepares_aborts_the_update() {
    let mut hands = called(config(1), Some(version(1)), &[serves(1), serves(1)]);
    let lost = told(&hands.loses(1));
    assert_eq!(lost, [Wish::Abandon(1, Negotiate), Wish::Ask(question(1, FleetVerdict::Abort))]);
}

#[test]
fn a_caller_that_cancels_while_a_fleet_prepares_has_it_aborted() {
    let mut hands = called(config(1), Some(version(1)), &[serves(1), serves(1)]);
    let asked = told(&hands.give(DriverInput::Cancel));
    assert_eq!(asked, [Wish::Ask(question(1, FleetVerdict::Abort))]);
    assert_eq!(hands.give(DriverInput::Cancel), [], "once");
    let back = hands.says(question(1, FleetVerdict::Abort), verdict(FleetVerdict::Abort));
    assert_eq!(back.len(), 4);
    for engine in [0, 1] {
        hands.answers(engine, StepAnswer::Done);
        hands.reports(engine, serves(1));
    }
    assert!(hands.driver.is_idle());
}

/// A lost driver's update is ended with the engines that are in it, then the own one begins with all.
#[test]
fn what_a_lost_driver_has_left_is_ended_by_those_who_are_in_it() {
    let lost = |number| FleetTransaction { driver: 3 << 32, number };
    let left = |number| EngineReport {
        transaction: Some(lost(number)),
        offered: Some(version(2)),
        old: Some(version(1)),
        staged: Some(version(2)),
        ..stands(1)
    };
    let mut hands = DriverHands::numbered(config(1), Some(version(3)), None, &[1; 3]);
    for (engine, report) in (0..).zip([left(1), left(2), serves(1)]) {
        hands.reports(engine, report);
    }
    let wanted = FleetVerdict::Abort;
    let asked = FleetQuestion::Verdict { transaction: lost(2), wanted, version: version(2) };
    assert_eq!(hands.driver.transaction(), Some(lost(2)), "the later one first");
    let recovered = hands.says(asked, verdict(FleetVerdict::Abort));
    assert_eq!(told(&recovered), [Wish::Run(1, Discard)], "engine 0 is in another update");
    let order = hands.orders[&1];
    assert_eq!(
        (order.transaction, order.life, order.old),
        (Some(lost(2)), Some(3), Some(version(1)))
    );
    assert_eq!((order.version, order.attempt.round), (version(1), 4));
    assert!(hands.driver.due().is_some() && hands.driver.transaction() == Some(lost(2)));
    hands.answers(1, StepAnswer::Done);
    let ended = hands.answers(1, StepAnswer::Done);
    assert_eq!(told(&ended), [Wish::Fleet, Wish::Ask(FleetQuestion::State)], "it goes on");
    let DriverOutput::Fleet { transaction, version: brought, .. } = &ended[0] else { panic!() };
    assert_eq!((*transaction, *brought), (lost(2), version(2)));
    assert_eq!((hands.driver.due(), hands.driver.transaction()), (None, None));
}

#[test]
fn a_register_that_says_nothing_is_asked_again_for_a_verdict() {
    let mut hands = called(config(1), Some(version(1)), &[serves(1)]);
    prepare(&mut hands, &[0]);
    let commit = question(1, FleetVerdict::Commit);
    assert_eq!(hands.driver.next_timeout(), Some(Time(0) + Span::from_secs(11)));
    assert_eq!(told(&hands.waits_until(11)), [Wish::Ask(commit)]);
    assert_eq!(told(&hands.waits_until(12)), [Wish::Ask(commit)]);
    assert_eq!(told(&hands.waits_until(13)), [Wish::Run(0, Inspect)], "it is in doubt");
    let ended = told(&hands.reports(0, EngineReport { staged: Some(version(3)), ..stands(1) }));
    let number = FleetQuestion::Number { key: 1_001, heard: None };
    assert_eq!(ended, [Wish::Fleet, Wish::Ask(number)], "its commit may be under way");
    assert_eq!((hands.driver.number(), hands.driver.due()), (None, None));
}

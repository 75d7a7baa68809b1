//! A driver asks the register and all engines what there is, and waits for neither for ever.

use std::collections::BTreeMap;

use super::driver::config;
use super::hands::*;
use super::version;
use crate::engine_update::UpdateStep::Inspect;
use crate::engine_update::{
    DriverConfig, DriverEnd, DriverInput, DriverOutput, EngineReport, FleetAnswer, FleetQuestion,
    FleetTransaction, FleetVerdict, InstallMeans, StepAnswer, StepOrder, UpdateAttempt,
};
use crate::{Span, Time};

const LOST: FleetTransaction = FleetTransaction { driver: 3 << 32, number: 4 };

fn patient() -> DriverConfig {
    DriverConfig { ask_every: Span::from_secs(4), reach: Span::from_secs(25), ..config(1) }
}

fn at(second: u64) -> Option<Time> {
    Some(Time(0) + Span::from_secs(second))
}

/// The register is asked at once and every 4 s, and not after 25 s.
fn is_asked_until_it_is_given_up(hands: &mut DriverHands, question: FleetQuestion) {
    for second in [14, 18, 22, 26, 30, 34] {
        assert_eq!(hands.driver.next_timeout(), at(second));
        hands.now = Time(at(second).unwrap().0 - 1);
        hands.driver.handle_timeout(hands.now);
        assert_eq!(hands.wants(), [], "not before second {second}");
        assert_eq!(told(&hands.waits_until(second)), [Wish::Ask(question)]);
        assert!(!hands.driver.is_idle());
    }
    assert_eq!(hands.driver.next_timeout(), at(35));
    assert_eq!(told(&hands.waits_until(35)), [Wish::Ended(DriverEnd::RegisterAway)]);
    assert!(hands.driver.is_idle());
    assert_eq!((hands.driver.next_timeout(), hands.driver.transaction()), (None, None));
    assert_eq!(hands.waits_until(99), []);
}

#[test]
fn a_register_that_does_not_answer_is_asked_again_and_given_up_in_time() {
    let mut hands = DriverHands::new(patient(), Some(version(2)), &[1]);
    assert_eq!(told(&hands.wants()), [Wish::Ask(FIRST_QUESTION)]);
    is_asked_until_it_is_given_up(&mut hands, FIRST_QUESTION);
    let late = hands.says(FIRST_QUESTION, answer(None, None));
    assert_eq!((late, hands.driver.number()), (vec![], None), "its work is over");
}

#[test]
fn a_register_that_does_not_say_what_became_of_a_lost_drivers_update_is_given_up_too() {
    let mut hands = DriverHands::numbered(patient(), None, None, &[1]);
    let left = EngineReport {
        transaction: Some(LOST),
        offered: Some(version(2)),
        old: Some(version(1)),
        ..stands(1)
    };
    let wanted = FleetVerdict::Abort;
    let question = FleetQuestion::Verdict { transaction: LOST, wanted, version: version(2) };
    assert_eq!(told(&hands.reports(0, left)), [Wish::Ask(question)]);
    assert_eq!((hands.driver.transaction(), hands.driver.due()), (Some(LOST), None));
    is_asked_until_it_is_given_up(&mut hands, question);
}

/// A driver that has a number asks for the state alone, and every engine anew.
#[test]
fn the_next_work_of_a_driver_begins_with_the_state_and_another_roll_call() {
    let mut hands = DriverHands::numbered(config(1), None, Some(version(1)), &[1, 1]);
    assert_eq!(hands.reports(0, serves(1)), []);
    assert_eq!(told(&hands.reports(1, serves(1))), [Wish::Ended(DriverEnd::Done)]);
    assert!(hands.driver.bring(hands.now, Some(version(1)), BTreeMap::from([(1, 1), (4, 1)])));
    assert_eq!(told(&hands.wants()), [Wish::Ask(FleetQuestion::State)]);
    let asked = told(&hands.says(FleetQuestion::State, answer(Some(version(1)), None)));
    assert_eq!(asked, [Wish::Run(1, Inspect), Wish::Run(4, Inspect)]);
    assert_eq!(hands.reports(1, serves(1)), [], "engine 4 has not answered");
    assert_eq!(told(&hands.reports(4, serves(1))), [Wish::Ended(DriverEnd::Done)]);
}

#[test]
fn a_driver_at_work_takes_no_other_work_in() {
    let mut hands = DriverHands::new(config(1), Some(version(1)), &[1]);
    hands.wants();
    assert!(!hands.driver.bring(hands.now, Some(version(9)), BTreeMap::from([(5, 1)])));
    assert_eq!(hands.wants(), []);
    let asked = told(&hands.says(FIRST_QUESTION, answer(None, None)));
    assert_eq!(asked, [Wish::Run(0, Inspect)]);
    assert_eq!(hands.orders[&0].version, version(1));
}

/// A question of the roll call is for whoever is there, and changes nothing.
#[test]
fn every_engine_is_asked_once_with_a_round_of_its_own() {
    for (wanted, named) in [(Some(version(2)), version(2)), (None, NONE_WANTED)] {
        let mut hands = DriverHands::new(config(1), wanted, &[1, 2, 1]);
        assert_eq!(told(&hands.wants()), [Wish::Ask(FIRST_QUESTION)]);
        let asked = hands.says(FIRST_QUESTION, answer(None, None));
        let run = |engine: u32| DriverOutput::Run {
            engine,
            order: StepOrder {
                attempt: UpdateAttempt::before(NUMBER, u64::from(engine) + 1).next(),
                life: None,
                step: Inspect,
                version: named,
                old: None,
                means: InstallMeans::Staged,
                keep_caches: false,
                deadline: Span::from_secs(10),
                transaction: None,
            },
        };
        assert_eq!(asked, [run(0), run(1), run(2)]);
    }
}

#[test]
fn an_engine_has_answered_once_all_of_its_workers_have() {
    let mut hands = DriverHands::numbered(config(1), None, Some(version(1)), &[2]);
    let report = StepAnswer::Inspected(serves(1));
    assert_eq!(hands.worker_answers(0, 0, report), []);
    assert_eq!(hands.worker_answers(0, 0, report), [], "the same one");
    assert_eq!(told(&hands.worker_answers(0, 1, report)), [Wish::Ended(DriverEnd::Done)]);
}

/// A word that was not answered is no longer brought, and the engine is asked by a new one.
#[test]
fn engines_that_do_not_answer_are_asked_again_until_the_roll_call_is_over() {
    let mut hands = DriverHands::numbered(patient(), Some(version(2)), None, &[1, 1, 1]);
    hands.reports(1, serves(1));
    for (second, round) in [(20, 4), (30, 6)] {
        assert_eq!(hands.driver.next_timeout(), at(second));
        let again = told(&hands.waits_until(second));
        let [abandoned, asked] = [Wish::Abandon as fn(u32, _) -> Wish, Wish::Run]
            .map(|of| [of(0, Inspect), of(2, Inspect)]);
        assert_eq!(again, abandoned.into_iter().chain(asked).collect::<Vec<_>>());
        let attempts = [0, 2].map(|engine| hands.orders[&engine].attempt);
        let expected = [round, round + 1].map(|round| UpdateAttempt::before(NUMBER, round).next());
        assert_eq!(attempts, expected);
    }
    assert_eq!(hands.driver.next_timeout(), at(35));
    let over = told(&hands.waits_until(35));
    assert_eq!(over, [Wish::Ended(DriverEnd::OutOfReach { engines: vec![0, 2] })]);
    assert_eq!(hands.driver.next_timeout(), None, "nobody is asked any more");
}

/// Somebody else may be there by now: what is said late is no word of an engine that takes part.
#[test]
fn what_an_engine_says_after_its_death_counts_for_nobody() {
    let mut hands = DriverHands::numbered(config(1), None, Some(version(1)), &[1, 1]);
    let order = hands.orders[&0];
    assert_eq!(hands.loses(0), []);
    hands.orders.insert(0, order);
    assert_eq!(hands.reports(0, serves(1)), [], "engine 1 has said nothing");
    assert_eq!(told(&hands.reports(1, serves(1))), [Wish::Ended(DriverEnd::Done)]);
}

/// The register says whether whoever was heard is the successor.
#[test]
fn a_driver_whose_engines_have_heard_a_later_one_asks_for_another_number() {
    let later = [6 << 32 | 7, 9 << 32 | 7, 8 << 32 | 7];
    for (rounds, heard) in [
        ([0, 0, 0], None),
        ([1, 0, 0], Some(later[0])),
        ([1, 1, 1], Some(later[1])),
        ([1, 0, 2], Some(later[2])),
    ] {
        let mut hands = DriverHands::numbered(config(1), None, None, &[1, 1, 1]);
        for engine in [0, 1, 2] {
            let seen = UpdateAttempt::before(later[engine], rounds[engine]);
            let asked = hands.reports(engine as u32, EngineReport { seen, ..serves(1) });
            let question = FleetQuestion::Number { key: 1_001, heard };
            let all = if engine == 2 { vec![Wish::Ask(question)] } else { vec![] };
            assert_eq!(told(&asked), all);
        }
        assert_eq!(hands.driver.number(), None);
        let no = FleetAnswer { superseded: true, ..answer(None, None) };
        let over = hands.says(FleetQuestion::Number { key: 1_001, heard }, no);
        assert_eq!(told(&over), [Wish::Ended(DriverEnd::Superseded)]);
    }
}

/// One engine that has heard it is enough.
#[test]
fn a_later_driver_that_one_engine_has_heard_counts() {
    let mut hands = DriverHands::numbered(config(1), None, None, &[1, 1]);
    let seen = UpdateAttempt::before(6 << 32, 0);
    hands.reports(0, EngineReport { seen, ..serves(1) });
    let asked = told(&hands.reports(1, serves(1)));
    let question = FleetQuestion::Number { key: 1_001, heard: None };
    assert_eq!(asked, [Wish::Ask(question)]);
    let number = FleetAnswer { driver: 7 << 32, ..answer(None, None) };
    assert_eq!(hands.says(question, number).len(), 2, "the roll call begins anew");
    assert_eq!(hands.driver.number(), Some(7 << 32));
    assert_eq!(hands.orders[&0].attempt.driver, 7 << 32);
}

/// It may have a successor that no engine has heard yet.
#[test]
fn a_driver_that_the_register_does_not_call_the_newest_takes_another_number() {
    for (newest, doubted) in [(NUMBER, false), (6 << 32, true)] {
        let mut hands = DriverHands::numbered(config(1), None, Some(version(1)), &[1]);
        hands.reports(0, serves(1));
        assert!(hands.driver.bring(hands.now, None, BTreeMap::from([(0, 1)])));
        hands.wants();
        let state = FleetAnswer { driver: newest, ..answer(Some(version(1)), None) };
        assert_eq!(told(&hands.says(FleetQuestion::State, state)), [Wish::Run(0, Inspect)]);
        let next = match doubted {
            true => Wish::Ask(FleetQuestion::Number { key: 1_001, heard: None }),
            false => Wish::Ended(DriverEnd::Done),
        };
        assert_eq!(told(&hands.reports(0, serves(1))), [next]);
    }
}

/// What the register says of the fleet's version counts anew with each work.
#[test]
fn a_driver_brings_engines_to_the_version_that_the_register_says_last() {
    let mut hands = DriverHands::numbered(config(1), None, Some(version(1)), &[1]);
    hands.reports(0, serves(1));
    assert!(hands.driver.bring(hands.now, None, BTreeMap::from([(0, 1)])));
    hands.wants();
    hands.says(FleetQuestion::State, answer(Some(version(2)), None));
    hands.reports(0, serves(1));
    assert_eq!(hands.orders[&0].version, version(2));
}

#[test]
fn a_caller_that_cancels_before_anything_has_begun_ends_the_work_at_once() {
    let begun = || DriverHands::new(config(1), Some(version(1)), &[1]);
    let called = || DriverHands::numbered(config(1), Some(version(1)), None, &[1]);
    let settles = || {
        let mut hands = called();
        let left = EngineReport { transaction: Some(LOST), offered: Some(version(2)), ..stands(1) };
        hands.reports(0, left);
        hands
    };
    for mut hands in [begun(), called(), settles()] {
        hands.wants();
        let ended = told(&hands.give(DriverInput::Cancel));
        assert_eq!(ended, [Wish::Ended(DriverEnd::Cancelled)]);
        assert_eq!((hands.driver.is_idle(), hands.driver.next_timeout()), (true, None));
        assert_eq!(hands.give(DriverInput::Cancel), [], "there is nothing to cancel");
        assert!(hands.driver.bring(hands.now, Some(version(1)), BTreeMap::from([(0, 1)])));
        assert_eq!(hands.wants().len(), 1, "what was cancelled is over");
        assert!(!hands.driver.is_idle());
    }
}

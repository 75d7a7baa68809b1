//! What a register of a fleet says, branch by branch.

use super::version;
use crate::Safeguards;
use crate::engine_update::FleetVerdict::{Abort, Commit};
use crate::engine_update::{
    FleetAnswer, FleetQuestion, FleetRegister, FleetTransaction, FleetVerdict,
};

const LIFE: u32 = 0xdead_beef;

fn register() -> FleetRegister {
    FleetRegister::new(LIFE, Safeguards::default())
}

/// A register with its first driver, and that driver's number.
fn driven() -> (FleetRegister, u64) {
    let mut register = register();
    let driver = register.next_driver(1, None).expect("it is the first");
    (register, driver)
}

const fn of(driver: u64, number: u64) -> FleetTransaction {
    FleetTransaction { driver, number }
}

fn asked(
    register: &mut FleetRegister,
    transaction: FleetTransaction,
    wanted: FleetVerdict,
) -> FleetAnswer {
    register.answer(FleetQuestion::Verdict { transaction, wanted, version: version(2) })
}

#[test]
fn a_register_that_was_asked_nothing_knows_nothing() {
    let mut register = register();
    assert_eq!(register.answer(FleetQuestion::State), FleetAnswer::default());
    assert_eq!((register.newest_driver(), register.version()), (0, None));
    assert_eq!(register.verdict(of(0, 0)), None);
}

#[test]
fn the_first_verdict_counts_whoever_writes_it() {
    for (first, second) in [(Commit, Abort), (Abort, Commit)] {
        let (mut register, driver) = driven();
        let answer = asked(&mut register, of(driver, 1), first);
        let version = (first == Commit).then(|| version(2));
        let written = FleetAnswer { driver, version, verdict: Some(first), superseded: false };
        assert_eq!(answer, written);
        assert_eq!(asked(&mut register, of(driver, 1), second), written, "it stays");
        assert_eq!(register.verdict(of(driver, 1)), Some(first));
        assert_eq!(register.verdict(of(driver, 2)), None, "of another update");
    }
}

#[test]
fn the_fleets_version_is_that_of_the_last_commit_also_an_earlier_one() {
    let (mut register, driver) = driven();
    for (number, brought) in [(1, 3), (2, 2)] {
        register.decide(of(driver, number), Commit, version(brought));
        assert_eq!(register.version(), Some(version(brought)));
    }
    register.decide(of(driver, 3), Abort, version(9));
    register.decide(of(driver, 1), Commit, version(3));
    assert_eq!(register.version(), Some(version(2)), "nothing was committed since");
}

#[test]
fn drivers_are_numbered_and_one_that_asks_again_has_its_number() {
    let (mut register, first) = driven();
    let mut ask = |key| register.answer(FleetQuestion::Number { key, heard: None });
    assert_eq!(ask(1).driver, first, "the answer was lost");
    let second = ask(2);
    assert!(second.driver > first && !second.superseded);
    assert_eq!(ask(2), second);
    assert!(ask(1).driver > second.driver, "a key from before is a new driver's");
}

/// The successor may have found no engine that remembers the update.
#[test]
fn a_late_commit_is_an_abort_and_what_was_decided_stays() {
    let (mut register, first) = driven();
    register.decide(of(first, 1), Commit, version(2));
    register.next_driver(2, None).expect("its successor");
    assert_eq!(register.decide(of(first, 2), Commit, version(3)), Some(Abort));
    assert_eq!(register.decide(of(first, 3), Abort, version(3)), Some(Abort));
    assert_eq!(register.decide(of(first, 1), Abort, version(2)), Some(Commit));
    assert_eq!(register.version(), Some(version(2)));
}

#[test]
fn of_updates_of_another_life_nothing_is_known_and_nothing_written() {
    let (mut former, lost) = driven();
    former.decide(of(lost, 1), Commit, version(2));
    let mut register = FleetRegister::new(LIFE + 1, Safeguards::default());
    for _ in 0..2 {
        for wanted in [Abort, Commit] {
            assert_eq!(asked(&mut register, of(lost, 1), wanted), FleetAnswer::default());
        }
    }
    let own = register.next_driver(1, Some(lost)).expect("it does not know that driver");
    assert!(own > lost, "engines obey it");
    assert_eq!(register.decide(of(lost, 1), Abort, version(2)), None, "still");
    assert_eq!(register.decide(of(own, 1), Commit, version(2)), Some(Commit));
}

#[test]
fn nobody_has_a_number_that_was_not_given_yet() {
    let (mut register, driver) = driven();
    let next = driver + (1 << 32);
    assert_eq!(register.decide(of(next, 1), Abort, version(2)), None);
    assert_eq!(register.next_driver(2, None), Some(next));
    assert_eq!(register.decide(of(next, 1), Commit, version(2)), Some(Commit));
}

#[test]
fn a_driver_whose_engines_have_heard_its_successor_gets_no_number() {
    let (mut register, first) = driven();
    let second = register.next_driver(2, None).expect("its successor");
    let question = FleetQuestion::Number { key: 3, heard: Some(second) };
    let answer = register.answer(question);
    assert_eq!((answer.superseded, answer.driver), (true, second));
    assert_eq!(register.newest_driver(), second, "none was given");
    // It is told so for its own number too: the caller says only what is later than that.
    assert_eq!(register.next_driver(3, Some(first)), None);
    // Whoever has a number already is told it again, whatever engines have heard meanwhile.
    assert_eq!(register.next_driver(2, Some(second)), Some(second));
}

#[test]
fn numbers_go_on_after_those_that_engines_have_heard_of_another_life() {
    let mut register = register();
    let heard = u64::from(7_u32) << 32 | 5;
    let number = register.next_driver(1, Some(heard)).expect("it is another life's");
    assert_eq!(number, u64::from(8_u32) << 32 | u64::from(LIFE));
    let early = u64::from(2_u32) << 32 | 5;
    assert_eq!(register.next_driver(2, Some(early)), Some(number + (1 << 32)), "and never back");
    // At the end of all numbers.
    assert_eq!(register.next_driver(3, Some(u64::MAX)), None);
    assert_eq!(register.newest_driver(), number + (1 << 32));
}

#[test]
fn the_numbers_of_two_lives_are_never_equal() {
    let numbers = |life| {
        let mut register = FleetRegister::new(life, Safeguards::default());
        (0..100).filter_map(move |key| register.next_driver(key, None))
    };
    let [mut one, other] = [LIFE, LIFE + 1].map(|life| numbers(life).collect::<Vec<_>>());
    assert!(one.is_sorted() && other.is_sorted() && one.len() == 100 && other.len() == 100);
    one.retain(|number| other.contains(number));
    assert_eq!(one, []);
}

#[test]
fn the_oldest_verdict_is_forgotten_and_said_to_be_unknown() {
    const KEPT: u64 = 256;
    let (mut register, driver) = driven();
    let mut decide = |number, wanted| register.decide(of(driver, number), wanted, version(9));
    for number in 1..=KEPT {
        assert_eq!(decide(number, Commit), Some(Commit));
    }
    assert_eq!(decide(1, Abort), Some(Commit), "all are known");
    assert_eq!(decide(KEPT + 1, Commit), Some(Commit));
    for wanted in [Abort, Commit] {
        assert_eq!(decide(1, wanted), None, "it is not known any more, and not written anew");
        assert_eq!(decide(0, wanted), None, "nor is one before, which may have been written");
        assert_eq!(decide(2, wanted), Some(Commit));
    }
    assert_eq!(decide(KEPT + 2, Abort), Some(Abort));
    assert_eq!(decide(2, Abort), None);
}

#[test]
fn drivers_of_pushes_are_numbered_apart() {
    let (mut register, driver) = driven();
    let push = |register: &mut FleetRegister, key, heard| {
        register.answer(FleetQuestion::PushNumber { key, heard })
    };
    let first = push(&mut register, 5, None);
    assert_eq!((first.driver, first.superseded), (driver, false), "the first of its kind too");
    assert_eq!(push(&mut register, 5, None), first, "whoever asks again gets the same");
    let second = push(&mut register, 6, None);
    assert!(second.driver > first.driver);
    assert_eq!(register.newest_driver(), driver, "no driver of updates has a successor");
    assert_eq!(register.answer(FleetQuestion::State).driver, driver);
    assert!(push(&mut register, 7, Some(second.driver)).superseded);
    let (lost, own) = (9 << 32 | 1, |of: FleetAnswer| (of.driver, of.superseded));
    let after = own(push(&mut register, 8, Some(lost)));
    assert_eq!(after, (10 << 32 | u64::from(LIFE), false), "after what another register gave");
    assert_eq!(asked(&mut register, of(driver, 1), Commit).verdict, Some(Commit));
}

/// The count of drivers comes first, then the life of the register.
#[test]
fn drivers_are_counted_from_one() {
    let mut register = register();
    for (key, count) in [(1, 1), (2, 2), (2, 2), (3, 3_u64)] {
        let number = register.next_driver(key, None);
        assert_eq!(number, Some(count << 32 | u64::from(LIFE)));
    }
}

//! Whom a word reaches.

use std::sync::mpsc::Receiver;

use weightcast_protocol::Generation;
use weightcast_protocol::push::{PushNumber, TargetState};

use super::*;
use crate::client::push::samples::{self, VERSION};
use crate::client::push::scene::*;
use crate::client::push::target::TargetEvent;

fn hears(scene: &PushScene, word: &PushWord) -> bool {
    hear(&scene.state, &word.encode().unwrap())
}

fn driver() -> (PushScene, Receiver<DriverWord>) {
    let scene = PushScene::sender(0);
    let words = scene.state.push.drive().unwrap();
    (scene, words)
}

#[test]
fn a_shard_that_is_meant_says_what_it_is() {
    let (target, (driver, words)) = (PushScene::target(), driver());
    let ask = |replica: &str, shard| {
        let (replica, driver) = (replica.to_owned(), driver.address());
        hears(&target, &PushWord::Ask(PushQuestion { replica, shard, driver }))
    };
    assert!(!ask("rollout", 1) && !ask("another", 0));
    for (accepts, holds) in [(false, None), (true, None), (false, Some(VERSION))] {
        let events = accepts.then(|| target.state.push.target.open().unwrap());
        target.holds(holds);
        assert!(ask("rollout", 0));
        let offer = PushOffer {
            replica: "rollout".to_owned(),
            shard: 0,
            target: TARGET,
            layouts: vec![WHOLE],
            accepts,
            holds,
        };
        assert_eq!(heard(&words), PushWord::Offer(offer));
        drop(events);
        target.state.push.target.close();
    }
    target.state.release();
    assert!(!ask("rollout", 0), "no memory is registered");
}

/// Nobody has to ask twice.
#[test]
fn a_driver_that_asked_too_early_hears_when_the_shard_accepts() {
    let (target, (driver, words)) = (PushScene::target(), driver());
    let question =
        PushQuestion { replica: "rollout".to_owned(), shard: 0, driver: driver.address() };
    assert!(hears(&target, &PushWord::Ask(question)));
    let accepts = || match heard(&words) {
        PushWord::Offer(offer) => offer.accepts,
        other => panic!("{other:?}"),
    };
    assert!(!accepts());
    let _events = target.state.push.target.open().unwrap();
    accepting(&target.state);
    assert!(accepts());
    accepting(&target.state);
    assert!(words.try_recv().is_err(), "once");
}

#[test]
fn an_order_that_comes_late_is_answered_by_the_machine_that_rests() {
    let (target, (driver, words)) = (PushScene::target(), driver());
    let push = PushNumber { driver: 3, number: 2 };
    let order = driver.order(push, 1);
    assert!(!hears(&target, &PushWord::Order(order.clone())), "nobody is here");
    let room = &target.state.push.target;
    let events = room.open().unwrap();
    assert!(hears(&target, &PushWord::Order(order.clone())));
    assert!(matches!(events.try_recv(), Ok(TargetEvent::Order(word)) if *word == order));
    room.close();
    let mut machine = room.take(TARGET, Generation(1));
    machine.handle_order(target.state.push.now(), order.order.clone());
    while machine.poll_output().is_some() {}
    machine.handle_slept();
    room.rest(TARGET, machine);
    assert!(hears(&target, &PushWord::Order(order)));
    // What rests says all that it had to say.
    let states = [(); 2].map(|()| match heard(&words) {
        PushWord::Report(word) => (word.report.push, word.report.state, word.opened.len()),
        other => panic!("{other:?}"),
    });
    assert_eq!(states, [(push, TargetState::Asleep, 0); 2]);
}

#[test]
fn what_is_written_and_granted_reaches_target_and_sender() {
    let (target, sender) = (PushScene::target(), PushScene::sender(0));
    let written = PushWord::Written(samples::written([0]));
    assert!(!hears(&target, &written));
    let events = target.state.push.target.open().unwrap();
    target.state.push.target.begin_fill();
    assert!(hears(&target, &written));
    assert!(matches!(events.try_recv(), Ok(TargetEvent::Written(_))));
    let granted = PushWord::Grant(samples::granted([0]));
    assert!(hears(&sender, &granted), "even if it is refused");
    sender.state.release();
    assert!(!hears(&sender, &granted));
}

#[test]
fn what_a_driver_is_told_reaches_the_driver_while_there_is_one() {
    let (scene, words) = driver();
    let told = samples::samples().into_iter().filter(|word| {
        use PushWord::{Offer, Over, Refused, Report};
        matches!(word, Offer(_) | Over(_) | Refused(_) | Report(_))
    });
    let told: Vec<PushWord> = told.collect();
    assert_eq!(told.len(), 4);
    for word in &told {
        assert!(hears(&scene, word));
        assert_eq!(heard(&words), *word);
    }
    scene.state.push.end_drive();
    assert!(told.iter().all(|word| !hears(&scene, word)));
    assert!(!hear(&scene.state, b"{}"), "no word");
}

/// Over its data port, as long as the handle lives.
#[test]
fn a_handle_hears_as_long_as_it_lives() {
    let (scene, words) = driver();
    let speaker = PushScene::target();
    let word = PushWord::Report(samples::report([0]));
    post(&speaker.state, &scene.address(), word.clone());
    assert_eq!(heard(&words), word);
    let weak = Arc::downgrade(&scene.state);
    drop(scene);
    // The word's own thread lets go of it soon; what listens does not keep it.
    while weak.strong_count() > 0 {
        std::thread::yield_now();
    }
}

//! The driver's place at a handle.

use super::*;
use crate::client::push::looking::Driving;
use crate::client::push::samples;
use crate::client::push::scene::PushScene;
use crate::limits::PUSH_EVENTS;

fn word() -> DriverWord {
    DriverWord::Said(Box::new(PushWord::Report(samples::report([0]))))
}

#[test]
fn a_handle_has_one_push_at_a_time() {
    let desk = PushDesk::new("10.0.0.1:1".to_owned());
    assert!(!desk.to_driver(word()), "nobody drives");
    let words = desk.drive().unwrap();
    let again = desk.drive().unwrap_err();
    assert!(again.to_string().contains("another push"), "{again}");
    assert!(desk.to_driver(word()) && words.try_recv().is_ok());
    desk.end_drive();
    assert!(!desk.to_driver(word()));
    drop(desk.drive().unwrap());
    assert!(!desk.to_driver(word()), "it hears no more");
}

#[test]
fn a_driver_that_is_busy_loses_words() {
    let desk = PushDesk::new("10.0.0.1:1".to_owned());
    let words = desk.drive().unwrap();
    for _ in 0..PUSH_EVENTS {
        assert!(desk.to_driver(DriverWord::Gone(String::new())));
    }
    assert!(!desk.to_driver(word()), "it comes again");
    assert_eq!(words.try_iter().count(), PUSH_EVENTS);
}

#[test]
fn a_push_is_over_when_its_driver_is_gone() {
    let scene = PushScene::sender(0);
    let words = scene.state.push.drive().unwrap();
    drop(Driving(&scene.state));
    assert!(words.recv().is_err() && scene.state.push.drive().is_ok());
}

#[test]
fn time_goes_on_from_the_opening() {
    let desk = PushDesk::new("10.0.0.1:1".to_owned());
    let (first, second) = (desk.now(), desk.now());
    let since = u64::try_from(desk.started.elapsed().as_nanos()).unwrap();
    assert!(first <= second && second.0 <= since && second.0 > 0);
    desk.registered(samples::names(2));
    assert_eq!(desk.layouts(), samples::names(2));
}

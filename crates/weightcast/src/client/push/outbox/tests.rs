//! Words on their way: in order, bounded, and lost alone.

use std::sync::mpsc::TryRecvError;

use weightcast_protocol::push::PushNumber;
use weightcast_transport::RequestRefusal;

use super::*;
use crate::client::push::samples;
use crate::client::push::scene::*;
use crate::client::push::word::{OverWord, PushOffer, TargetOver};

/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:1";

fn over(number: u64) -> PushWord {
    let push = PushNumber { driver: 1, number };
    PushWord::Over(OverWord::new(TARGET, push, TargetOver::Left, ""))
}

fn line(state: &HandleState, address: &str) -> Option<Vec<PushWord>> {
    let lines = state.push.words.0.lock().unwrap();
    lines.get(address).map(|line| line.iter().cloned().collect())
}

/// As if a thread had begun to say the words of a line.
fn begin(state: &HandleState, address: &str) {
    state.push.words.0.lock().unwrap().insert(address.to_owned(), VecDeque::new());
}

#[test]
fn words_come_in_the_order_in_which_they_were_posted() {
    let (speaker, driver) = (PushScene::target(), PushScene::sender(0));
    let words = driver.state.push.drive().unwrap();
    for number in 0..20 {
        post(&speaker.state, &driver.address(), over(number));
    }
    for number in 0..20 {
        assert_eq!(heard(&words), over(number));
    }
}

#[test]
fn a_line_keeps_the_newest_words_and_there_are_so_many_lines() {
    let scene = PushScene::target();
    let state = &scene.state;
    begin(state, NOBODY);
    for number in 0..PUSH_WORDS as u64 + 2 {
        post(state, NOBODY, over(number));
    }
    let kept = line(state, NOBODY).unwrap();
    assert_eq!((kept.len(), &kept[0]), (PUSH_WORDS, &over(2)));
    assert_eq!(kept.last(), Some(&over(PUSH_WORDS as u64 + 1)));
    for number in 1..PUSH_LINES {
        begin(state, &format!("10.0.0.1:{number}"));
    }
    post(state, "10.0.0.2:1", over(1));
    assert_eq!(line(state, "10.0.0.2:1"), None, "it comes again");
    post(state, "10.0.0.1:1", over(1));
    assert_eq!(line(state, "10.0.0.1:1"), Some(vec![over(1)]));
}

#[test]
fn a_line_ends_with_its_last_word() {
    let scene = PushScene::target();
    let lines = &scene.state.push.words;
    assert_eq!(lines.next(NOBODY), None);
    begin(&scene.state, NOBODY);
    begin(&scene.state, "10.0.0.1:1");
    post(&scene.state, NOBODY, over(1));
    post(&scene.state, NOBODY, over(2));
    assert_eq!((lines.next(NOBODY), lines.next(NOBODY)), (Some(over(1)), Some(over(2))));
    assert_eq!(line(&scene.state, NOBODY), Some(Vec::new()), "somebody says the last one");
    assert_eq!(lines.next(NOBODY), None);
    assert_eq!(line(&scene.state, NOBODY), None);
    assert_eq!(line(&scene.state, "10.0.0.1:1"), Some(Vec::new()), "of another line");
}

/// A word that is none any more loses itself alone.
#[test]
fn a_word_that_is_too_large_holds_up_no_other() {
    let (speaker, driver) = (PushScene::target(), PushScene::sender(0));
    let words = driver.state.push.drive().unwrap();
    begin(&speaker.state, &driver.address());
    let replica = "x".repeat(weightcast_transport::limits::MAX_WORD_BYTES);
    post(
        &speaker.state,
        &driver.address(),
        PushWord::Offer(PushOffer { replica, ..samples::offer(1) }),
    );
    post(&speaker.state, &driver.address(), over(1));
    say_all(&speaker.state, &driver.address());
    assert_eq!(heard(&words), over(1));
    assert_eq!(line(&speaker.state, &driver.address()), None);
}

#[test]
fn a_driver_learns_of_ports_where_nobody_listens() {
    let scene = PushScene::sender(0);
    let words = scene.state.push.drive().unwrap();
    post(&scene.state, NOBODY, over(1));
    match words.recv_timeout(LONG) {
        Ok(DriverWord::Gone(address)) => assert_eq!(address, NOBODY),
        other => panic!("{other:?}"),
    }
    // A text that is no address says nothing of who is there, and neither does a port that refuses.
    let deaf = PushScene::target();
    deaf.state.exports.stop_listening();
    for address in ["no address".to_owned(), deaf.address()] {
        begin(&scene.state, &address);
        post(&scene.state, &address, over(1));
        say_all(&scene.state, &address);
        assert!(matches!(words.try_recv(), Err(TryRecvError::Empty)), "{address}");
    }
}

#[test]
fn a_port_that_refuses_is_still_connected_and_one_that_breaks_off_is_not() {
    let (scene, deaf) = (PushScene::sender(0), PushScene::target());
    let at = deaf.address();
    let reached = || scene.state.routes.reach(&at, Instant::now() + LONG).unwrap();
    let first = reached();
    deaf.state.exports.stop_listening();
    match say(&scene.state, &at, b"{}") {
        Err(Unsaid::Peer(TransportError::Refused(RequestRefusal::NotHeard))) => {}
        other => panic!("{other:?}"),
    }
    assert!(Arc::ptr_eq(&first, &reached()));
    let late = scene.state.routes.reach("no address", Instant::now() + LONG);
    assert!(
        late.is_err() && matches!(say(&scene.state, "no address", b"{}"), Err(Unsaid::Address(_)))
    );
    drop(deaf);
    assert!(matches!(say(&scene.state, &at, b"{}"), Err(Unsaid::Peer(_))));
    let again = scene.state.routes.reach(&at, Instant::now() + LONG);
    assert!(again.is_err(), "it is connected to anew, and nobody is there");
}

//! What comes to a target, before, during and after a call.

use weightcast_protocol::ContentDigest;
use weightcast_protocol::push::{PushNumber, TargetState};

use super::*;
use crate::client::push::samples::{self, VERSION};

const ID: TargetId = TargetId(1);
const NOW: Time = Time(5);

fn read() -> (PushedRead, Receiver<Result<(), ReadFailure>>) {
    let (told, tells) = sync_channel(1);
    let assignment = Assignment {
        version: VERSION,
        catalog: ContentDigest::default(),
        replica: "trainer".to_owned(),
        in_flight: false,
        staged: false,
        helpers: Vec::new(),
        shards: [].into(),
    };
    let report: ReportRead = Box::new(move |result| told.send(result.map(drop)).unwrap());
    (PushedRead { assignment, keep: true, cancelled: Arc::default(), report }, tells)
}

fn asked(driver: &str) -> PushQuestion {
    PushQuestion { replica: "rollout".to_owned(), shard: 0, driver: driver.to_owned() }
}

/// A machine that has heard an order.
fn ordered() -> PushTarget {
    let mut machine = PushTarget::new(ID, Generation(4), Safeguards::default());
    machine.handle_order(NOW, samples::order([0]).order);
    while machine.poll_output().is_some() {}
    machine
}

#[test]
fn a_machine_that_rests_goes_on_with_its_own_memory_alone() {
    let room = TargetRoom::default();
    let heard = |machine: &PushTarget| (machine.report().push, machine.report().generation);
    let fresh = (PushNumber::default(), Generation(9));
    assert_eq!(heard(&room.take(ID, Generation(9))), fresh, "none rests");
    room.rest(ID, ordered());
    let kept = room.take(ID, Generation(9));
    assert_eq!(heard(&kept), (samples::PUSH, Generation(4)), "the memory is the same");
    assert_eq!(heard(&room.take(ID, Generation(9))), fresh, "it was taken");
    // Registered anew: other addresses, and perhaps other lengths.
    for other in [0, 2] {
        room.rest(ID, ordered());
        let machine = room.take(TargetId(other), Generation(9));
        assert_eq!((heard(&machine), machine.report().target), (fresh, TargetId(other)));
        assert_eq!(heard(&room.take(ID, Generation(9))), fresh, "what rested is gone");
    }
}

#[test]
fn questions_are_kept_as_long_as_nobody_accepts() {
    let room = TargetRoom::default();
    for driver in ["a", "b", "a"] {
        assert!(!room.accepts(&asked(driver)));
    }
    assert_eq!(room.take_asked(), [asked("b"), asked("a")]);
    assert_eq!(room.take_asked(), []);
    let events = room.open().unwrap();
    assert!(room.accepts(&asked("a")));
    assert_eq!(room.take_asked(), [], "it was answered");
    room.begin_fill();
    assert!(!room.accepts(&asked("c")));
    drop(events);
    room.close();
    let drivers: Vec<_> = (0..ASKED).map(|number| asked(&number.to_string())).collect();
    drivers.iter().for_each(|question| assert!(!room.accepts(question)));
    assert_eq!(room.take_asked(), drivers, "the last ones");
}

#[test]
fn a_target_listens_once_and_accepts_until_it_is_filled() {
    let (room, exports) = (TargetRoom::default(), ExportTable::new());
    assert!(!room.accepts(&asked("a")) && !room.fills());
    let events = room.open().unwrap();
    assert!(room.accepts(&asked("a")) && !room.fills());
    assert!(room.open().err().is_some_and(|error| error.to_string().contains("accepts already")));
    assert!(!room.written(samples::written([0])), "nobody writes yet");
    room.begin_fill();
    assert!(!room.accepts(&asked("a")) && room.fills());
    assert!(room.written(samples::written([0])));
    assert!(
        matches!(events.try_recv(), Ok(TargetEvent::Written(word)) if word == samples::written([0]))
    );
    room.end_fill(&exports);
    assert!(!room.fills() && room.accepts(&asked("a")) && !room.written(samples::written([0])));
    room.ended(Ok(()));
    assert!(matches!(events.try_recv(), Ok(TargetEvent::Ended(Ok(())))));
    room.close();
    assert!(!room.accepts(&asked("a")) && events.try_recv().is_err());
    room.ended(Ok(()));
    assert!(room.open().is_ok());
}

#[test]
fn grants_may_be_opened_while_senders_fill() {
    let (room, exports) = (TargetRoom::default(), ExportTable::new());
    let auth = weightcast_transport::Auth::default();
    let regions = [weightcast_transport::Region::allocate(8).unwrap()];
    let hour = std::time::Duration::from_secs(3_600);
    let open = || room.opened.open(&exports, &auth, &samples::grant([0]), &regions, hour).unwrap();
    assert!(!open());
    room.begin_fill();
    assert!(open() && exports.grants() == 1);
    room.end_fill(&exports);
    assert!(!open() && exports.grants() == 0);
}

#[test]
fn a_read_is_left_to_senders_while_they_fill() {
    let room = TargetRoom::default();
    assert!(room.take_read(read().0).is_some(), "nobody listens");
    let events = room.open().unwrap();
    assert!(room.take_read(read().0).is_some(), "nobody fills");
    room.begin_fill();
    assert!(room.take_read(read().0).is_none());
    let Ok(TargetEvent::Read(taken)) = events.try_recv() else { panic!("no read") };
    assert_eq!((taken.assignment.version, taken.keep), (VERSION, true));
    for _ in 0..PUSH_EVENTS {
        assert!(room.written(samples::written([0])));
    }
    assert!(!room.written(samples::written([0])), "too many wait");
    assert!(room.take_read(read().0).is_some(), "it is made here instead");
    assert_eq!(room.order(NOW, samples::order([0])), None, "it comes again");
    drop(events);
    assert!(room.take_read(read().0).is_some(), "nobody hears");
}

#[test]
fn orders_go_to_the_call_or_to_the_machine_that_rests() {
    let room = TargetRoom::default();
    assert_eq!(room.order(NOW, samples::order([0])), None, "nobody is here");
    let events = room.open().unwrap();
    assert_eq!(room.order(NOW, samples::order([0])), Some(Vec::new()));
    assert!(
        matches!(events.try_recv(), Ok(TargetEvent::Order(word)) if *word == samples::order([0]))
    );
    room.rest(ID, ordered());
    room.close();
    let mut word = samples::order([0]);
    for push in [
        PushNumber { number: samples::PUSH.number + 1, ..samples::PUSH },
        PushNumber { number: samples::PUSH.number - 1, ..samples::PUSH },
        PushNumber { driver: samples::PUSH.driver - 1, ..samples::PUSH },
    ] {
        word.order.push = push;
        assert_eq!(room.order(NOW, word.clone()), None, "its push waits for the next call");
    }
    let said = room.order(NOW, samples::order([0])).expect("its driver asks how it ended");
    let [TargetOutput::Tell { driver, report }] = &said[..] else { panic!("{said:?}") };
    assert_eq!(
        (*driver, report.push, report.state),
        (u64::MAX, samples::PUSH, TargetState::Pausing)
    );
}

//! How much is kept, and that what is kept goes as it went.

use super::*;
use crate::limits::IMAGE_BYTES;

#[test]
fn a_machine_without_a_recorder_has_no_recording_and_neither_has_one_to_which_nothing_happened() {
    let mut machine = RecordedMachine::unrecorded(Counter::default());
    assert_eq!(step(&mut machine, 1, CounterInput::Up(3, 2)), [3, 3]);
    for machine in [machine, counter(WIDE)] {
        let none = machine.recording(RecordingCause::Asked, 0);
        assert!(matches!(none, Err(RecordingError::Empty { .. })), "{none:?}");
    }
}

#[test]
fn what_was_put_out_is_put_out_again() {
    let mut machine = counter(WIDE);
    for (at, by) in [(1, 1), (2, 0), (5, 4)] {
        step(&mut machine, at, CounterInput::Up(by, by as usize));
    }
    let (came, end) = played(&recorded(&machine));
    assert_eq!(came, [settled(&[1]), settled(&[]), settled(&[5; 4])]);
    assert_eq!(end.count, machine.count);
}

/// What a machine put out before the first event belongs to none.
#[test]
fn what_is_said_before_anything_happens_is_not_looked_for() {
    let mut counter = Counter { says: vec![7], ..Counter::default() };
    let mut machine = RecordedMachine::new(counter.clone(), WIDE);
    while machine.poll_output().is_some() {}
    step(&mut machine, 1, CounterInput::Up(1, 1));
    counter.says.clear();
    assert_eq!(played(&recorded(&machine)).0, [settled(&[1])]);
}

/// A runtime that does what it is told may find that something happens.
#[test]
fn events_between_two_outputs_are_played_before_outputs_are_taken() {
    let mut machine = counter(WIDE);
    machine.take(Time(1), CounterInput::Up(1, 2));
    assert_eq!(machine.poll_output(), Some(1));
    assert_eq!(step(&mut machine, 2, CounterInput::Up(1, 1)), [1, 2]);
    let (came, _) = played(&recorded(&machine));
    assert_eq!(came, [PlayedEvent::Pending, settled(&[1, 1, 2])]);
}

#[test]
fn numbers_that_were_drawn_with_a_secret_are_drawn_again() {
    let mut machine = counter(ReelLimits { bytes: 60, ..WIDE });
    for at in 0..40 {
        step(&mut machine, at, CounterInput::Drawn);
    }
    let (came, end) = played(&recorded(&machine));
    let faithful = |came: &PlayedEvent<u64>| match came {
        PlayedEvent::Settled { outputs, as_recorded } => *as_recorded && outputs.len() == 1,
        _ => false,
    };
    assert!(came.iter().all(faithful) && came.len() < 40, "{came:?}");
    assert_eq!(end.count, machine.count);
}

#[test]
fn a_machine_that_fails_fails_again_in_the_same_event() {
    let mut machine = counter(WIDE);
    for at in 1..=12 {
        step(&mut machine, at, CounterInput::Up(1, 1));
    }
    let last = std::panic::AssertUnwindSafe(|| machine.take(Time(13), CounterInput::Up(1, 1)));
    assert!(std::panic::catch_unwind(last).is_err());
    let recording = machine.recording(RecordingCause::Panic, 0).expect("there was something");
    let mut playback = recording.play::<Counter>().unwrap();
    while let Some(event) = playback.next().unwrap() {
        let last = event.number == 13;
        assert_eq!(playback.ends_here(), last);
        let play = std::panic::AssertUnwindSafe(|| playback.play(event));
        assert_eq!(std::panic::catch_unwind(play).is_err(), last);
    }
    assert_eq!(recording.head.events, 13);
}

/// Of a machine that does not fail where the recorded one did.
#[test]
fn an_event_that_the_recording_ends_in_has_no_outputs_to_compare() {
    let mut machine = counter(WIDE);
    machine.take(Time(1), CounterInput::Up(2, 1));
    let (came, _) = played(&recorded(&machine));
    assert_eq!(came, [PlayedEvent::Unfinished { outputs: vec![2] }]);
}

#[test]
fn the_next_reel_begins_when_one_is_full_and_the_one_before_the_last_is_forgotten() {
    let mut machine = counter(ReelLimits { bytes: 100, ..WIDE });
    let mut most = 0;
    for at in 0..2_000 {
        step(&mut machine, at, CounterInput::Up(20, 1));
        let recording = recorded(&machine);
        most = most.max(recording.head.events);
        let (came, end) = played(&recording);
        assert_eq!(came.len() as u64, recording.head.events);
        assert!(at < 8 || came.len() >= 8, "{at}: {}", came.len());
        assert_eq!(end.count, machine.count);
    }
    // An event has about ten bytes here: two reels of a hundred.
    assert!((16..30).contains(&most), "{most}");
}

#[test]
fn a_reel_is_over_with_the_byte_that_fills_it() {
    let entries = |machine: &RecordedMachine<Counter>| recorded(machine).entries.len();
    let mut machine = counter(WIDE);
    for at in 0..3 {
        step(&mut machine, at, CounterInput::Up(20, 1));
    }
    let bytes = entries(&machine);
    for (limit, begins) in [(bytes - 1, true), (bytes, true), (bytes + 1, false)] {
        let mut machine = counter(ReelLimits { bytes: limit, ..WIDE });
        // Of two reels the first is in the file until the third begins.
        for at in 0..6 {
            step(&mut machine, at, CounterInput::Up(20, 1));
        }
        let of_seventh = |machine: &mut RecordedMachine<Counter>| {
            step(machine, 6, CounterInput::Up(20, 1));
            recorded(machine).head.events
        };
        let expected = if begins { 4 } else { 7 };
        assert_eq!(of_seventh(&mut machine), expected, "{limit} of {bytes} bytes");
    }
}

#[test]
fn the_next_reel_begins_when_one_is_old() {
    let mut machine = counter(ReelLimits { span: Span(100), ..WIDE });
    for (at, events) in [(0, 1), (99, 2), (100, 3), (199, 4), (200, 3), (1_000, 2)] {
        step(&mut machine, at, CounterInput::Up(20, 1));
        assert_eq!(recorded(&machine).head.events, events, "at {at}");
    }
}

/// Outputs that are not taken belong to what has happened: an image has none.
#[test]
fn no_reel_begins_before_all_outputs_are_taken() {
    let mut machine = counter(ReelLimits { bytes: 1, ..WIDE });
    for at in 0..10 {
        machine.take(Time(at), CounterInput::Up(20, 1));
        assert_eq!(recorded(&machine).head.events, at + 1);
    }
    while machine.poll_output().is_some() {}
    let (came, _) = played(&recorded(&machine));
    assert!(came[..9].iter().all(|came| *came == PlayedEvent::Pending), "{came:?}");
    assert!(matches!(&came[9], PlayedEvent::Settled { as_recorded: true, .. }));
    step(&mut machine, 10, CounterInput::Up(20, 1));
    step(&mut machine, 11, CounterInput::Up(20, 1));
    assert_eq!(recorded(&machine).head.events, 2);
}

#[test]
fn a_machine_that_is_too_large_is_not_recorded_until_it_is_smaller() {
    let large = Counter { ballast: "x".repeat(IMAGE_BYTES), ..Counter::default() };
    let mut machine = RecordedMachine::new(large, ReelLimits { span: Span(10), ..WIDE });
    for at in 0..3 {
        assert_eq!(step(&mut machine, at, CounterInput::Up(20, 1)), [20 * (at + 1)]);
        assert!(machine.recording(RecordingCause::Asked, 0).is_err());
    }
    machine.noted().ballast.clear();
    step(&mut machine, 9, CounterInput::Up(20, 1));
    assert!(machine.recording(RecordingCause::Asked, 0).is_err(), "it is looked at now and then");
    step(&mut machine, 10, CounterInput::Up(20, 1));
    assert_eq!(played(&recorded(&machine)).1, *machine);
}

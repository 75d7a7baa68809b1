//! Recordings of servers whose safeguards are off: what their books show is shown again, in the same event each time.

use weightcast_mutants::MUTANTS;
use weightcast_protocol::Span;
use weightcast_protocol::limits::ReelLimits;
use weightcast_protocol::recording::{Recording, RecordingCause};
use weightcast_sim::{RetoldEnd, WorldOptions, record, retell};

use crate::SEEDS;

/// The first violation that playing a world's recordings back shows, in the first of these seeds that has one.
fn violation(mutant: &str, bytes: usize, paranoid: bool) -> (Recording, RetoldEnd) {
    let mutant = MUTANTS.iter().find(|row| row.name == mutant).expect("it is in the table");
    let limits = ReelLimits { bytes, span: Span::from_secs(3_600) };
    for seed in SEEDS {
        let options = WorldOptions { recorders: Some(limits), paranoid, ..mutant.options(seed) };
        for recording in record(seed, &options) {
            let (_, end) = retell(&recording).expect("the build is the same");
            if matches!(end, RetoldEnd::Violated { .. }) {
                return (recording, end);
            }
        }
    }
    panic!("{} shows in none", mutant.name)
}

#[test]
fn a_recorded_violation_is_shown_again_ten_times_of_ten() {
    for (mutant, expected) in [("no_fanout", "D1"), ("unstriped_kept", "T5")] {
        let (recording, end) = violation(mutant, usize::MAX, false);
        let RetoldEnd::Violated { event, invariant, .. } = &end else { unreachable!() };
        assert_eq!(invariant, expected, "{end}");
        assert!(*event > 1, "{end}");
        for _ in 0..10 {
            let read = Recording::decode(&recording.encode()).expect("it was just written");
            assert_eq!(retell(&read).expect("the build is the same").1, end);
        }
    }
}

/// What `serve --paranoid` does: the server gives up within the event that breaks an invariant, and this event is the last
/// of the recording.
#[test]
fn a_server_that_gave_up_gives_up_again_in_the_same_event_ten_times_of_ten() {
    let (recording, end) = violation("unstriped_kept", usize::MAX, true);
    let RetoldEnd::Violated { event, recorded, .. } = &end else { unreachable!() };
    assert!(*recorded, "{end}");
    assert_eq!(*event, recording.head.events, "{end}");
    assert_eq!(recording.head.cause, RecordingCause::Panic);
    for _ in 0..10 {
        let read = Recording::decode(&recording.encode()).expect("it was just written");
        assert_eq!(retell(&read).expect("the build is the same").1, end);
    }
}

/// A state that is wrong already is told of, and nothing is played from it.
#[test]
fn a_recording_that_begins_after_the_violation_says_so() {
    let short = SEEDS.into_iter().find_map(|seed| {
        let mutant =
            MUTANTS.iter().find(|row| row.name == "no_fanout").expect("it is in the table");
        let limits = ReelLimits { bytes: 2_000, span: Span::from_secs(3_600) };
        let options = WorldOptions { recorders: Some(limits), ..mutant.options(seed) };
        let recordings = record(seed, &options).into_iter();
        recordings
            .map(|of| retell(&of).expect("the build is the same").1)
            .find(|end| matches!(end, RetoldEnd::Violated { event: 0, .. }))
    });
    let end = short.expect("some world ends while it is violated");
    assert!(end.to_string().starts_with("D1 broken in event 0"), "{end}");
}

//! What is taken for a recording, and what is not.

use proptest::prelude::*;

use super::*;
use crate::limits::RECORDING_BYTES;
use crate::server::{Server, ServerConfig, ServerInput};
use crate::session::Session;

fn some() -> Recording {
    let mut machine = counter(WIDE);
    for at in 1..6 {
        step(&mut machine, at, CounterInput::Up(1, 1));
    }
    let cause = RecordingCause::FailedCall("timed out".to_owned());
    machine.recording(cause, 1_700_000_000).expect("something has happened")
}

/// A file that says what it likes, with the digest of that.
fn sealed(body: &[u8]) -> Vec<u8> {
    let digest = blake3::hash(body);
    [body, &digest.as_bytes()[..16]].concat()
}

#[test]
fn a_file_comes_back_as_it_was_written() {
    let written = some();
    let bytes = written.encode();
    assert!(bytes.starts_with(b"weightcast recording 1\n"), "so that `head -1` says what it is");
    let read = Recording::decode(&bytes).expect("it was just written");
    assert_eq!(read, written);
    assert_eq!((read.head.events, read.head.kind), (5, MachineKind::Session));
    assert_eq!(read.head.machines, MACHINES);
    assert_eq!(read.head.cause.to_string(), "written as a call failed: timed out");
}

#[test]
fn a_file_that_is_cut_short_anywhere_is_refused() {
    let bytes = some().encode();
    for end in 0..bytes.len() {
        let error = Recording::decode(&bytes[..end]).expect_err("it is not whole");
        let foreign = end < 23;
        assert_eq!(error == RecordingError::Damaged, !foreign, "{end}: {error}");
        assert!(!error.to_string().is_empty());
    }
    let longer = [&bytes[..], &[0]].concat();
    assert_eq!(Recording::decode(&longer), Err(RecordingError::Damaged));
}

#[test]
fn a_file_that_is_changed_anywhere_is_refused() {
    let bytes = some().encode();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.clone();
            changed[at] ^= 1 << bit;
            let error = Recording::decode(&changed).expect_err("it was changed");
            let expected = match at {
                0..21 => RecordingError::Foreign,
                21..23 => RecordingError::Format,
                _ => RecordingError::Damaged,
            };
            assert_eq!(error, expected, "bit {bit} of byte {at}");
        }
    }
}

#[test]
fn a_file_has_at_most_so_many_bytes() {
    let (limit, name) = (RECORDING_BYTES, b"weightcast recording 1\n");
    let mut bytes = name.to_vec();
    bytes.resize(limit, 0);
    assert_eq!(Recording::decode(&bytes), Err(RecordingError::Damaged), "of the largest size");
    bytes.push(0);
    let got = limit as u64 + 1;
    assert_eq!(Recording::decode(&bytes), Err(RecordingError::TooLarge { limit, got }));
}

#[test]
fn the_recording_of_one_machine_is_none_of_another() {
    let session = some();
    let other = RecordingError::OtherKind { kind: MachineKind::Session };
    assert_eq!(session.play::<Server>().map(drop).unwrap_err(), other);
    // Of the same kind by its word, and of other types.
    let unreadable = session.play::<Session>().map(drop).unwrap_err();
    assert!(unreadable.to_string().contains(MACHINES), "{unreadable}");
}

/// Also where the machine of the same kind is of another build.
#[test]
fn events_that_make_no_sense_are_refused_where_they_are() {
    let mut server = RecordedMachine::new(Server::new(ServerConfig::default()), WIDE);
    for at in 0..3 {
        server.take(Time(at), ServerInput::Timeout);
        while server.poll_output().is_some() {}
    }
    let whole = server.recording(RecordingCause::Asked, 0).unwrap();
    let (mut played, mut refused) = (0, 0);
    for cut in 0..whole.entries.len() {
        let mut short = whole.clone();
        short.entries.truncate(cut);
        let mut playback = short.play::<Server>().expect("the image is whole");
        loop {
            match playback.next() {
                Ok(Some(event)) => drop(playback.play(event)),
                Ok(None) => break played += 1,
                Err(RecordingError::Unreadable { .. }) => break refused += 1,
                Err(other) => panic!("{other}"),
            }
        }
    }
    assert!(played > 3 && refused > 3, "{played} {refused}");
}

proptest! {
    #[test]
    fn whatever_a_file_says_it_is_taken_or_refused(
        body in prop::collection::vec(any::<u8>(), 0..200),
        at in any::<prop::sample::Index>(),
        byte in any::<u8>(),
    ) {
        let real = some().encode();
        let (body_of_real, _) = real.split_at(real.len() - 16);
        let mut changed = body_of_real.to_vec();
        *at.get_mut(&mut changed) = byte;
        for body in [[b"weightcast recording 1\n", &body[..]].concat(), changed] {
            let Ok(read) = Recording::decode(&sealed(&body)) else { continue };
            prop_assert_eq!(Recording::decode(&read.encode()), Ok(read.clone()));
            let Ok(mut playback) = read.play::<Counter>() else { continue };
            while let Ok(Some(_)) = playback.next() {}
        }
    }
}

/// Else a file could have any number of events decoded before one is played.
#[test]
fn so_many_events_may_come_before_outputs_are_taken_and_no_more() {
    let mut machine = counter(WIDE);
    for at in 0..1 << 15 {
        machine.take(Time(at), CounterInput::Up(20, 0));
    }
    assert!(recorded(&machine).play::<Counter>().unwrap().next().is_ok());
    machine.take(Time(1 << 15), CounterInput::Up(20, 0));
    let recording = recorded(&machine);
    let error = recording.play::<Counter>().unwrap().next().unwrap_err();
    assert!(matches!(error, RecordingError::Unreadable { .. }), "{error}");
}

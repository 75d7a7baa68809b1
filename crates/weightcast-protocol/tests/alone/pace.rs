//! When a read is so slow that the server hears of it (L2).

use super::*;
use weightcast_protocol::session::ReadProgress;

const WINDOW: Span = Span::from_secs(2);
const MUCH: u64 = 1 << 40;

/// A read that is slow below 1,000 bytes a second, if more than 5 s of it are left.
fn reading() -> (Alone, OpSeq) {
    let slow_patience = Span::from_secs(5);
    let config = SessionConfig { slow_pace: 1_000, slow_patience, ..lonely() };
    let mut alone = Alone::open(SessionConfig { pace_window: WINDOW, ..config });
    let seq = alone.reads(1, false);
    (alone, seq)
}

/// So much has arrived by the end of the next window: what the server hears.
fn passes(alone: &mut Alone, (seq, attempt): (OpSeq, u64), arrived: u64, left: u64) -> Option<u64> {
    let beat = ServerMessage::HeartbeatAck { sent_at: alone.now.0 };
    alone.say(beat);
    let outputs = alone.at(alone.now + WINDOW);
    let attempt = Attempt(attempt);
    assert!(outputs.contains(&Output::Measure { seq, attempt }), "{outputs:?}");
    said(alone, (seq, attempt.0), arrived, left)
}

fn said(alone: &mut Alone, of: (OpSeq, u64), arrived: u64, left: u64) -> Option<u64> {
    let progress = ReadProgress { arrived, left, shard: 1 };
    alone.session.handle_progress(alone.now, of.0, Attempt(of.1), progress);
    let outputs = alone.take();
    let pace = sent(&outputs).into_iter().map(|message| match message {
        ClientMessage::Slow { seq, attempt, shard: 1, bytes_per_s } => {
            assert_eq!((*seq, attempt.0), of);
            *bytes_per_s
        }
        other => panic!("{other:?}"),
    });
    pace.collect::<Vec<u64>>().last().copied()
}

#[test]
fn a_read_is_slow_below_its_limit_and_told_of_if_enough_is_left() {
    for (arrives, left, expected) in [
        (2_000, MUCH, None),
        (1_999, MUCH, Some(999)),
        (1_998, MUCH, Some(999)),
        (1_998, 4_995, Some(999)),
        (1_998, 4_994, None),
        (2, 5, Some(1)),
        (2, 4, None),
        (0, 5, Some(0)),
        (0, 4, None),
        (0, 0, None),
    ] {
        let (mut alone, seq) = reading();
        assert_eq!(passes(&mut alone, (seq, 1), 10_000, MUCH), None, "nothing to compare with");
        let said = passes(&mut alone, (seq, 1), 10_000 + arrives, left);
        assert_eq!(said, expected, "{arrives} bytes, {left} left");
    }
}

#[test]
fn where_nobody_is_patient_only_what_is_through_goes_unsaid() {
    for (left, expected) in [(1, Some(5)), (0, None)] {
        let config = SessionConfig { slow_patience: Span(0), pace_window: WINDOW, ..lonely() };
        let mut alone = Alone::open(config);
        let seq = alone.reads(1, false);
        assert_eq!(passes(&mut alone, (seq, 1), 0, MUCH), None);
        assert_eq!(passes(&mut alone, (seq, 1), 10, left), expected);
    }
}

#[test]
fn slow_is_also_what_gets_an_eighth_of_the_best_that_there_was() {
    for (pace, expected) in [(2_000, None), (1_999, Some(1_999))] {
        let (mut alone, seq) = reading();
        passes(&mut alone, (seq, 1), 0, MUCH);
        assert_eq!(passes(&mut alone, (seq, 1), 32_000, MUCH), None, "16,000 a second");
        assert_eq!(passes(&mut alone, (seq, 1), 32_000 + 2 * pace, MUCH), expected);
        // A worse window takes nothing back.
        assert_eq!(passes(&mut alone, (seq, 1), 32_000 + 4 * pace, MUCH), expected);
        // It counts for the next source too, and for the next call.
        alone.assign(seq, 2, 2, assignment(1, false));
        assert_eq!(
            passes(&mut alone, (seq, 2), 5, MUCH),
            None,
            "another read's bytes do not count"
        );
        assert_eq!(passes(&mut alone, (seq, 2), 5 + 2 * pace, MUCH), expected);
        let error = CallError::Timeout {
            call: "replicate".into(),
            waiting_for: "it".into(),
            detail: String::new(),
        };
        alone.say(ServerMessage::Answered { seq, result: Err(error) });
        let next = alone.reads(1, false);
        assert_eq!(passes(&mut alone, (next, 1), 5, MUCH), None);
        assert_eq!(passes(&mut alone, (next, 1), 5 + 2 * pace, MUCH), expected);
    }
}

#[test]
fn a_pace_is_over_the_time_that_has_passed_since_the_last_look() {
    let (mut alone, seq) = reading();
    passes(&mut alone, (seq, 1), 0, MUCH);
    // The timer came late: 1,500 bytes in 3 s, and the next look is a window later.
    alone.now = alone.now + SECOND;
    assert_eq!(passes(&mut alone, (seq, 1), 1_500, MUCH), Some(500));
    alone.say(ServerMessage::HeartbeatAck { sent_at: alone.now.0 });
    let early = alone.at(Time((alone.now + WINDOW).0 - 1));
    assert!(!early.iter().any(|output| matches!(output, Output::Measure { .. })));
    alone.now = Time(alone.now.0 + 1 - WINDOW.0);
    assert_eq!(passes(&mut alone, (seq, 1), 2_500, MUCH), Some(500));
    assert_eq!(said(&mut alone, (seq, 1), 2_500, MUCH), None, "no time has passed");
    assert_eq!(passes(&mut alone, (seq, 1), 9, MUCH), Some(0), "less than there was is nothing");
}

/// With reports between the ends of windows, the pace is what it is without.
#[test]
fn the_server_is_told_how_far_a_read_is_in_place_of_a_heartbeat() {
    let progress_every = Some(SECOND);
    let config = SessionConfig { slow_pace: 1_000, slow_patience: SECOND, ..lonely() };
    let mut alone = Alone::open(SessionConfig { progress_every, pace_window: WINDOW, ..config });
    let seq = alone.reads(1, false);
    let mut told = Vec::new();
    for second in 1..=8 {
        let at = START + Span::from_secs(second);
        assert_eq!(alone.session.next_timeout(), Some(at), "heartbeats are due later");
        let outputs = alone.at(at);
        assert_eq!(outputs, [Output::Measure { seq, attempt: Attempt(1) }], "{second}");
        alone.say(ServerMessage::HeartbeatAck { sent_at: at.0 });
        let progress = ReadProgress { arrived: 500 * second, left: MUCH, shard: 1 };
        alone.session.handle_progress(alone.now, seq, Attempt(1), progress);
        told.extend(sent(&alone.take()).into_iter().cloned());
    }
    let progress = |second: u64| ClientMessage::Progress {
        sent_at: (START + Span::from_secs(second)).0,
        seq,
        attempt: Attempt(1),
        arrived: 500 * second,
        total: 500 * second + MUCH,
    };
    let slow = ClientMessage::Slow { seq, attempt: Attempt(1), shard: 1, bytes_per_s: 500 };
    let mut expected: Vec<ClientMessage> = (1..=8).map(progress).collect();
    // The first window has nothing to compare with; the others end with every second report.
    [8, 6, 4].into_iter().for_each(|after| expected.insert(after, slow.clone()));
    assert_eq!(told, expected);
}

/// Where the runtime has nothing to say, or the read is over, heartbeats go on as ever.
#[test]
fn a_read_without_progress_is_kept_alive_by_heartbeats() {
    let config = SessionConfig { progress_every: Some(SECOND), ..lonely() };
    let mut alone = Alone::open(config);
    let seq = alone.reads(1, false);
    let beats = |alone: &mut Alone, second: u64| {
        let at = START + Span::from_secs(second);
        let outputs = alone.at(at);
        alone.say(ServerMessage::HeartbeatAck { sent_at: at.0 });
        outputs.iter().any(|o| matches!(o, Output::Send(ClientMessage::Heartbeat { .. })))
    };
    assert!((1..=4).any(|second| beats(&mut alone, second)));
    let progress = ReadProgress { arrived: u64::MAX, left: u64::MAX, shard: 0 };
    alone.session.handle_progress(alone.now, seq, Attempt(2), progress);
    assert!(sent(&alone.take()).is_empty(), "of another read");
    alone.session.handle_progress(alone.now, seq, Attempt(1), progress);
    let outputs = alone.take();
    let said = sent(&outputs);
    assert!(matches!(*said[0], ClientMessage::Progress { total: u64::MAX, .. }), "{said:?}");
}

#[test]
fn nobody_is_told_of_a_read_that_is_over_or_was_replaced() {
    let (mut alone, seq) = reading();
    passes(&mut alone, (seq, 1), 0, MUCH);
    for void in [(OpSeq(seq.0 + 1), 1), (OpSeq(0), 1), (seq, 2), (seq, 0)] {
        alone.now = alone.now + Span::from_millis(10);
        assert_eq!(said(&mut alone, void, 0, MUCH), None, "{void:?}");
    }
    alone.assign(seq, 2, 1, assignment(1, false));
    alone.now = alone.now + Span::from_millis(10);
    assert_eq!(said(&mut alone, (seq, 1), 0, MUCH), None);
    passes(&mut alone, (seq, 2), 0, MUCH);
    let failure = ReadFailure::Source { shard: 0, reason: "gone".into() };
    alone.session.handle_read(alone.now, seq, Attempt(2), Err(failure));
    alone.take();
    alone.now = alone.now + Span::from_millis(10);
    assert_eq!(said(&mut alone, (seq, 2), 0, MUCH), None, "the server has heard that it failed");
    let later = alone.now + WINDOW;
    assert!(!alone.at(later).iter().any(|output| matches!(output, Output::Measure { .. })));
}

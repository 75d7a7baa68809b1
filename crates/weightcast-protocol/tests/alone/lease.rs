//! When a session may act no more (T1), and when it looks for whom.

use super::*;
use weightcast_protocol::limits::{PACE_WINDOW, SLOW_PACE, SLOW_PATIENCE};
use weightcast_protocol::message::Holding;
use weightcast_protocol::session::SessionState;

#[test]
fn a_session_is_configured_as_is_written() {
    let config = config("a:1,b:1,c:1");
    assert_eq!((config.server.as_str(), config.servers), ("a:1,b:1,c:1", 3));
    assert_eq!(super::config("a:1").servers, 1);
    assert_eq!(config.reconnect, Span::from_secs(60));
    assert_eq!(config.connect_patience, Span::from_secs(10));
    assert_eq!(config.patience, Span::from_secs(2));
    assert_eq!((config.margin_percent, config.heartbeats_per_lease), (10, 3));
    assert_eq!(config.grace, SECOND);
    assert_eq!((config.backoff, config.backoff_max), (Span::from_millis(50), SECOND));
    assert_eq!((config.pace_window, config.slow_pace), (PACE_WINDOW, SLOW_PACE));
    assert_eq!(config.slow_patience, SLOW_PATIENCE);
    assert!(!config.relays, "it is for the runtime to say that it can");
}

#[test]
fn a_lease_ends_by_its_margin_earlier_and_not_a_moment_before() {
    for (margin_percent, left) in [(0, 100), (10, 90), (99, 1), (100, 0), (150, 0)] {
        let mut alone = Alone::open(SessionConfig { margin_percent, ..lonely() });
        let until = START + LEASE.scaled(left, 100);
        if left > 0 {
            assert!(!has_ended(&alone.at(Time(until.0 - 1))), "{margin_percent} %");
        }
        assert!(has_ended(&alone.at(until)), "{margin_percent} %");
        let error = alone.session.error().expect("it has failed").to_string();
        assert!(error.contains("within its lease of 5000 ms"), "{error}");
        assert_eq!(
            (alone.session.state(), alone.session.next_timeout()),
            (SessionState::Ended, None)
        );
    }
}

/// A second in which the answer was on its way is not the session's.
#[test]
fn a_lease_counts_from_when_it_was_asked_for() {
    let part = |from: Time| from + LEASE.scaled(90, 100);
    let ack = |sent_at: Time| ServerMessage::HeartbeatAck { sent_at: sent_at.0 };
    let mut alone = Alone::new(lonely());
    alone.session.handle_connected(START);
    alone.now = START + SECOND;
    alone.say(opened(1));
    let ends = |alone: &Alone, at: Time| {
        let mut early = alone.session.clone();
        early.handle_timeout(Time(at.0 - 1));
        let mut late = alone.session.clone();
        late.handle_timeout(at);
        (early.state(), late.state()) == (SessionState::Empty, SessionState::Ended)
    };
    assert!(ends(&alone, part(START)));
    let asked = START + Span::from_secs(2);
    alone.now = START + Span::from_secs(3);
    alone.say(ack(asked));
    assert!(ends(&alone, part(asked)));
    alone.say(ack(START));
    assert!(ends(&alone, part(asked)), "an answer that was overtaken takes nothing back");
    alone.say(ack(alone.now + Span::from_secs(9)));
    assert!(ends(&alone, part(alone.now)), "nothing was asked later than now");
}

#[test]
fn heartbeats_are_so_many_a_lease_and_counted_from_the_last() {
    let ends = LEASE.scaled(90, 100);
    let each = |millis| Span::from_millis(millis);
    for (heartbeats_per_lease, pause) in
        [(0, ends), (1, ends), (2, each(2_500)), (4, each(1_250)), (5, each(1_000))]
    {
        let mut alone = Alone::open(SessionConfig { heartbeats_per_lease, ..lonely() });
        assert_eq!(alone.session.next_timeout(), Some(START + pause), "{heartbeats_per_lease}");
        if pause == ends {
            continue;
        }
        // It comes late to it, once.
        let late = START + pause + each(300);
        let beat = Output::Send(ClientMessage::Heartbeat { sent_at: late.0 });
        assert_eq!(alone.at(late), [beat]);
        assert_eq!(alone.at(late), []);
        alone.say(ServerMessage::HeartbeatAck { sent_at: late.0 });
        assert_eq!(alone.session.next_timeout(), Some(late + pause));
    }
}

#[test]
fn nobody_s_heartbeat_is_sent_while_there_is_no_stream() {
    let mut alone = Alone::open(lonely());
    alone.session.handle_disconnected(START);
    alone.take();
    let outputs = alone.at(START + LEASE.scaled(1, 2));
    assert_eq!(outputs, [Output::Connect { server: 0 }]);
    let sends = |o: &Output| matches!(o, Output::Send(_));
    assert!(!alone.at(START + LEASE.scaled(3, 5)).iter().any(sends));
}

/// The pauses double, but never beyond what a number can hold, however large the bound is.
#[test]
fn pauses_double_sixteen_times_and_then_stay() {
    for servers in [1, 3] {
        let names = vec!["a:1"; servers].join(",");
        let (backoff, backoff_max) = (Span(1_000), Span::from_secs(1 << 20));
        let mut session =
            Session::new(SessionConfig { backoff, backoff_max, ..config(&names) }, START);
        let mut now = START;
        for tries in 0..100 * servers {
            assert!(matches!(session.poll_output(), Some(Output::Connect { .. })));
            session.handle_disconnected(now);
            let factor = 1 << (tries / servers).min(16);
            let next = now + Span(1_000 * factor);
            assert_eq!(session.next_timeout(), Some(next), "after {tries} tries of {servers}");
            session.handle_timeout(Time(next.0 - 1));
            assert_eq!(session.poll_output(), None);
            session.handle_timeout(next);
            now = next;
        }
    }
}

#[test]
fn a_stream_and_an_answer_are_waited_for_as_long_as_is_configured() {
    let mut alone = Alone::new(config("a:1,b:1"));
    let (stream, answer) = (Span::from_secs(10), Span::from_secs(2));
    assert_eq!(alone.session.next_timeout(), Some(START + stream));
    assert_eq!(alone.at(Time((START + stream).0 - 1)), []);
    alone.at(START + stream);
    let next = alone.now + Span::from_millis(50);
    assert_eq!(alone.at(next), [Output::Connect { server: 1 }], "the next of the list");
    alone.session.handle_connected(next);
    assert_eq!(sent(&alone.take()).len(), 1);
    assert_eq!(alone.session.next_timeout(), Some(next + answer));
    assert_eq!(alone.at(Time((next + answer).0 - 1)), []);
    alone.at(next + answer);
    let again = alone.now + Span::from_millis(50);
    assert_eq!(alone.at(again), [Output::Connect { server: 0 }]);
}

/// What each server after the first is told: what the memory holds, and nothing that it was only to hold.
#[test]
fn a_shard_brings_what_its_memory_holds_to_the_next_server() {
    let brings = |prepare: fn(&mut Alone)| {
        let mut alone = Alone::open(config("a:1,b:1"));
        alone.holds(1);
        prepare(&mut alone);
        let generation = alone.session.generation();
        let outputs = alone.goes_over(2);
        let announced = sent(&outputs).into_iter().find_map(|message| match message {
            ClientMessage::Announce(announcement) => Some(announcement.clone()),
            _ => None,
        });
        let announced = announced.expect("it brings its group along");
        let served = outputs.contains(&Output::Expose(announced.generation));
        assert_eq!(served, announced.held.is_some(), "what it says it holds it serves");
        assert!(announced.generation > generation, "what was served before is not any more");
        (announced.answered, announced.held)
    };
    let held = |number| Holding {
        version: version(1, number),
        catalog: catalog(number),
        sums: Some(sums(7)),
        refused: false,
        withdrawn: false,
    };
    assert_eq!(brings(|_| ()), (OpSeq(1), Some(held(1))));
    assert_eq!(brings(|alone| _ = alone.reads(2, true)), (OpSeq(1), Some(held(1))));
    assert_eq!(brings(|alone| _ = alone.reads(2, false)), (OpSeq(1), None));
    let installs = |alone: &mut Alone| {
        let seq = alone.reads(2, true);
        alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(7)));
        alone.say(ServerMessage::Install { seq, attempt: Attempt(1), deadline: DEADLINE });
    };
    assert_eq!(brings(installs), (OpSeq(1), None));
    let went_over = |alone: &mut Alone| {
        let seq = alone.reads(2, true);
        alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(7)));
        alone.say(ServerMessage::Install { seq, attempt: Attempt(1), deadline: DEADLINE });
        alone.session.handle_installed(alone.now, seq, Attempt(1));
        alone.commit(seq, 2);
    };
    assert_eq!(brings(went_over), (OpSeq(2), Some(held(2))));
    let withdraws = |alone: &mut Alone| _ = alone.call(Call::Unpublish);
    assert_eq!(brings(withdraws), (OpSeq(1), Some(Holding { withdrawn: true, ..held(1) })));
    // The copy stays withdrawn when that ends in vain, whatever is asked next.
    let withdrew_in_vain = |alone: &mut Alone| {
        let seq = alone.call(Call::Unpublish);
        let waiting_for = "its readers".into();
        let result = Err(CallError::Timeout {
            call: "unpublish".into(),
            waiting_for,
            detail: String::new(),
        });
        alone.say(ServerMessage::Answered { seq, result });
        alone.call(Call::List);
    };
    assert_eq!(brings(withdrew_in_vain), (OpSeq(2), Some(Holding { withdrawn: true, ..held(1) })));
    let gave_up = |alone: &mut Alone| {
        let seq = alone.call(Call::Unpublish);
        alone.answer(seq, Answer::Unpublished);
    };
    assert_eq!(brings(gave_up), (OpSeq(2), None));
    let published = |alone: &mut Alone| {
        let seq = alone.call(Call::Unpublish);
        alone.answer(seq, Answer::Unpublished);
        alone.publishes(3);
    };
    let undigested = Holding { catalog: CATALOG, sums: None, ..held(3) };
    assert_eq!(brings(published), (OpSeq(3), Some(undigested)));
    // Nothing was held when that was withdrawn, so what is published next is not.
    let withdrew_nothing = |alone: &mut Alone| {
        let seq = alone.call(Call::Unpublish);
        alone.answer(seq, Answer::Unpublished);
        let seq = alone.call(Call::Unpublish);
        let result = Err(CallError::Misuse { detail: "nothing is published".into() });
        alone.say(ServerMessage::Answered { seq, result });
        alone.publishes(3);
    };
    assert_eq!(brings(withdrew_nothing), (OpSeq(4), Some(undigested)));
}

//! Every way out, once.

use super::*;
use weightcast_protocol::session::SessionState;

const CLOSED: Output = Output::Closed { error: None };

fn close(alone: &mut Alone, deadline: Span) -> Vec<Output> {
    alone.session.close(alone.now, deadline);
    alone.take()
}

#[test]
fn who_closes_waits_for_its_server_until_a_grace_after_its_readers_time() {
    let mut alone = Alone::open(lonely());
    let deadline = Span::from_secs(2);
    let message = ClientMessage::Close { deadline };
    assert_eq!(close(&mut alone, deadline), [Output::Send(message)]);
    assert_eq!(close(&mut alone, DEADLINE), [], "once");
    let last = START + Span::from_secs(3);
    assert!(!has_ended(&alone.at(Time(last.0 - 1))));
    assert_eq!(alone.at(last), [CLOSED]);
    assert_eq!((alone.session.error(), alone.session.state()), (None, SessionState::Ended));
    assert_eq!(close(&mut alone, DEADLINE), []);

    let mut alone = Alone::open(lonely());
    close(&mut alone, deadline);
    assert_eq!(alone.say(ServerMessage::Closed), [CLOSED], "or until it says so");
}

#[test]
fn who_was_never_open_has_nobody_to_take_leave_of() {
    assert_eq!(close(&mut Alone::new(lonely()), DEADLINE), [CLOSED], "while it connects");
    let mut alone = Alone::new(lonely());
    alone.session.handle_disconnected(START);
    assert_eq!(close(&mut alone, DEADLINE), [CLOSED], "between two tries");

    // The server may have opened it: what becomes of the stream tells.
    let opening = || {
        let mut alone = Alone::new(lonely());
        alone.session.handle_connected(START);
        alone.take();
        assert_eq!(close(&mut alone, SECOND), [], "there is nothing to send it on");
        alone
    };
    let mut alone = opening();
    alone.session.handle_disconnected(START);
    assert_eq!(alone.take(), [CLOSED]);
    let mut alone = opening();
    assert_eq!(sent(&alone.say(opened(1))), [&ClientMessage::Close { deadline: SECOND }]);
    assert_eq!(alone.say(ServerMessage::Closed), [CLOSED]);
    assert_eq!(opening().say(ServerMessage::Superseded), [CLOSED]);
    let error = CallError::Misuse { detail: "taken".into() };
    for retry in [false, true] {
        let error = error.clone();
        assert_eq!(opening().say(ServerMessage::Refused { error, retry }), [CLOSED]);
    }
}

#[test]
fn who_closes_while_its_stream_is_broken_says_so_on_the_next_with_the_time_that_is_left() {
    let mut alone = Alone::open(lonely());
    alone.session.handle_disconnected(START);
    alone.take();
    assert_eq!(close(&mut alone, Span::from_secs(3)), []);
    let outputs = alone.at(START + SECOND);
    assert_eq!(outputs, [Output::Connect { server: 0 }]);
    alone.session.handle_connected(alone.now);
    alone.take();
    let message = ClientMessage::Close { deadline: Span::from_secs(2) };
    assert_eq!(sent(&alone.say(opened(1))), [&message]);
}

#[test]
fn between_two_servers_a_close_ends_at_once_and_the_next_one_is_told_if_it_can_be() {
    let told = Output::Send(ClientMessage::Close { deadline: DEADLINE });
    let mut alone = Alone::open(config("a:1,b:1"));
    alone.holds(1);
    alone.say(ServerMessage::Superseded);
    assert_eq!(alone.session.state(), SessionState::Suspended);
    let outputs = close(&mut alone, DEADLINE);
    assert!(!outputs.contains(&told) && outputs.last() == Some(&CLOSED), "{outputs:?}");

    let mut alone = Alone::open(config("a:1,b:1"));
    alone.holds(1);
    alone.goes_over(2);
    assert_eq!(alone.session.state(), SessionState::Suspended, "its group is not whole yet");
    let outputs = close(&mut alone, DEADLINE);
    assert!(outputs.contains(&told) && outputs.last() == Some(&CLOSED), "{outputs:?}");
}

#[test]
fn a_session_ends_once_whatever_else_goes_wrong() {
    let refused = |detail: &str| CallError::Misuse { detail: detail.into() };
    let mut alone = Alone::open(lonely());
    let seq = alone.reads(1, false);
    alone.session.handle_refused(refused("the first"));
    let outputs = alone.take();
    let error = Some(refused("the first"));
    assert_eq!(outputs.last(), Some(&Output::Closed { error }));
    assert!(outputs.contains(&Output::Done { seq, result: Err(refused("the first")) }));
    assert_eq!(outputs.first(), Some(&Output::StopRead), "before anything else");
    alone.session.handle_refused(refused("the second"));
    alone.say(ServerMessage::Broken { error: refused("the third") });
    alone.session.handle_disconnected(alone.now);
    alone.at(START + Span::from_secs(99));
    assert_eq!((alone.take(), alone.session.error()), (vec![], Some(&refused("the first"))));
    assert_eq!(alone.session.next_timeout(), None);
}

#[test]
fn who_closes_during_a_call_has_it_ended_and_its_read_stopped_first() {
    let mut alone = Alone::open(SessionConfig { relays: true, ..lonely() });
    let seq = alone.reads(1, false);
    alone.take();
    let generation = alone.session.generation();
    let outputs = close(&mut alone, SECOND);
    assert_eq!(outputs[..2], [Output::StopRead, Output::Fence(generation)]);
    assert!(matches!(
        &outputs[2],
        Output::Done { seq: of, result: Err(CallError::Misuse { .. }) } if *of == seq
    ));
    assert_eq!(outputs[3..], [Output::Send(ClientMessage::Close { deadline: SECOND })]);
}

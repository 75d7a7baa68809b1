//! What a call comes to, and when.

use super::*;
use weightcast_protocol::session::SessionState;

fn misuse(result: Result<OpSeq, CallError>) -> String {
    match result {
        Err(CallError::Misuse { detail }) => detail,
        other => panic!("{other:?}"),
    }
}

#[test]
fn who_may_not_call_is_told_why() {
    let list = |alone: &mut Alone| alone.session.call(alone.now, Call::List, DEADLINE);
    let mut alone = Alone::open(lonely());
    assert_eq!(list(&mut alone), Ok(OpSeq(1)));
    assert!(misuse(list(&mut alone)).contains("another call of this handle is running"));
    alone.session.close(alone.now, DEADLINE);
    assert_eq!(alone.session.state(), SessionState::Closing);
    assert!(misuse(list(&mut alone)).contains("is being closed"));
    alone.say(ServerMessage::Closed);
    assert!(misuse(list(&mut alone)).contains("is closed; open it again"));
    assert_eq!(alone.session.error(), None);

    let mut alone = Alone::open(lonely());
    let error = CallError::GroupBroken { replica: "r".into(), reason: "lost".into() };
    alone.say(ServerMessage::Broken { error: error.clone() });
    assert_eq!(list(&mut alone), Err(error));
}

/// How a call that nobody answers ends: nothing a moment before, the error when its time has come.
fn ends_at(alone: &mut Alone, seq: OpSeq, at: Time) -> String {
    alone.at(Time(at.0 - 1));
    assert_ne!(alone.session.state(), SessionState::Ended);
    let done = alone.at(at).into_iter().find_map(|output| match output {
        Output::Done { seq: of, result: Err(error) } if of == seq => Some(error.to_string()),
        _ => None,
    });
    done.expect("its time has come")
}

#[test]
fn a_call_ends_at_its_deadline_and_a_grace_later_where_the_server_has_the_first_word() {
    let list = |alone: &mut Alone| alone.session.call(alone.now, Call::List, SECOND).expect("ok");
    let mut alone = Alone::new(lonely());
    let seq = list(&mut alone);
    let error = ends_at(&mut alone, seq, START + SECOND);
    assert!(error.contains("could not connect within the deadline"), "{error}");

    let mut alone = Alone::open(lonely());
    let seq = list(&mut alone);
    let error = ends_at(&mut alone, seq, START + Span::from_secs(2));
    assert!(error.contains("did not answer within the deadline"), "{error}");

    let mut alone = Alone::new(lonely());
    let seq = list(&mut alone);
    alone.session.handle_connected(START);
    let error = CallError::Misuse { detail: "the name is taken".into() };
    alone.say(ServerMessage::Refused { error, retry: true });
    let mut outputs = Vec::new();
    while let Some(at) = alone.session.next_timeout() {
        outputs = alone.at(at);
    }
    assert_eq!(alone.now, START + SECOND, "it is asked again until then");
    let taken = |error: &CallError| error.to_string().contains("the name is taken");
    assert!(outputs.iter().any(|output| matches!(
        output,
        Output::Done { seq: of, result: Err(error) } if *of == seq && taken(error)
    )));
}

/// That it was not taken in for a while does not count any more once it was.
#[test]
fn who_was_refused_and_then_taken_in_is_told_of_what_went_wrong_afterwards() {
    let mut alone = Alone::new(SessionConfig { margin_percent: 0, ..lonely() });
    alone.session.handle_connected(START);
    let error = CallError::Misuse { detail: "the name is taken".into() };
    alone.say(ServerMessage::Refused { error, retry: true });
    let again = alone.session.next_timeout().expect("it tries again");
    assert!(sent(&alone.at(again)).iter().any(|message| matches!(message, ClientMessage::Open(_))));
    alone.say(opened(1));
    let seq = alone.session.call(again, Call::List, SECOND).expect("callable");
    let error = ends_at(&mut alone, seq, again + Span::from_secs(2));
    assert!(error.contains("did not answer within the deadline"), "{error}");
}

/// Of what is held, and at the generation at which it is: else it says nothing.
#[test]
fn what_is_held_is_accepted_or_refused_once_and_nothing_else_is() {
    let error = || CallError::ContentMismatch {
        version: version(1, 1),
        replica: "r".into(),
        detail: "it differs".into(),
    };
    let sealed = |alone: &mut Alone, generation| alone.say(ServerMessage::Sealed { generation });
    let fenced = |alone: &mut Alone, generation| {
        let witnesses = Box::default();
        let message = ServerMessage::Fenced { generation, error: error(), witnesses };
        alone.say(message).iter().any(|output| matches!(output, Output::Refused { .. }))
    };
    let mut alone = Alone::open(config("a:1"));
    let other = |alone: &Alone| Generation(alone.session.generation().0 + 1);
    let own = |alone: &Alone| alone.session.generation();
    let (at, beyond) = (own(&alone), other(&alone));
    sealed(&mut alone, at);
    assert!(!fenced(&mut alone, at) && !fenced(&mut alone, beyond), "it holds nothing");
    alone.publishes(1);
    assert_eq!(alone.session.verdict(), None, "what was said before is not of this");
    sealed(&mut alone, beyond);
    assert!(!fenced(&mut alone, beyond));
    assert_eq!((alone.session.verdict(), alone.session.state()), (None, SessionState::Holding));
    let mut good = Alone { session: alone.session.clone(), now: alone.now };
    sealed(&mut good, at);
    assert_eq!(good.session.verdict(), Some(Ok(())));
    sealed(&mut good, at);
    assert_eq!(good.session.verdict(), Some(Ok(())));

    assert!(fenced(&mut alone, at));
    assert_eq!(alone.session.verdict(), Some(Err(error())));
    assert_eq!(alone.session.state(), SessionState::Refused);
    assert!(own(&alone) > at, "nobody reads it any more");
    assert!(!fenced(&mut alone, at), "once");
    let at = own(&alone);
    sealed(&mut alone, at);
    assert_eq!(alone.session.verdict(), Some(Err(error())), "it is not accepted after all");
    let seq = alone.call(Call::Unpublish);
    alone.say(ServerMessage::Answered { seq, result: Err(error()) });
    assert_eq!((alone.session.version(), alone.session.state()), (None, SessionState::Empty));

    let mut alone = Alone::open(config("a:1"));
    alone.holds(1);
    assert_eq!(alone.session.verdict(), Some(Ok(())), "the server has compared it before");
}

#[test]
fn what_is_put_in_place_has_the_time_that_the_server_gives_and_never_less() {
    for (given, expected) in [(60, 60), (1, 30)] {
        let mut alone = Alone::open(SessionConfig { margin_percent: 0, ..lonely() });
        alone.holds(1);
        let seq = alone.reads(2, true);
        alone.session.handle_read(START, seq, Attempt(1), Ok(sums(8)));
        let deadline = Span::from_secs(given);
        let outputs = alone.say(ServerMessage::Install { seq, attempt: Attempt(1), deadline });
        assert_eq!(outputs.last(), Some(&Output::Install { seq, attempt: Attempt(1) }));
        // Its own word is the last: a grace after that time.
        let last = START + Span::from_secs(expected + 1);
        while alone.session.state() != SessionState::Ended {
            let at = alone.session.next_timeout().expect("it waits");
            alone.at(at);
            if at < last {
                assert_eq!(alone.session.state(), SessionState::Reading, "at {at:?}");
                alone.say(ServerMessage::HeartbeatAck { sent_at: at.0 });
            }
        }
        assert_eq!(alone.now, last);
    }
}

#[test]
fn a_call_that_is_sent_again_says_how_much_of_its_time_is_left() {
    let mut alone = Alone::open(lonely());
    alone.call(Call::List);
    let deadline = |outputs: &[Output]| match sent(outputs)[..] {
        [ClientMessage::Call { seq: OpSeq(1), deadline, call: Call::List }] => *deadline,
        ref other => panic!("{other:?}"),
    };
    assert_eq!(deadline(&alone.take()), DEADLINE);
    alone.now = START + SECOND;
    alone.session.handle_disconnected(alone.now);
    alone.at(alone.now + SECOND);
    alone.session.handle_connected(alone.now);
    alone.take();
    assert_eq!(deadline(&alone.say(opened(1))), Span::from_secs(28));
}

/// Nothing is done on a lease that ran out while the process stood still, whatever wakes it.
#[test]
fn whatever_comes_after_the_lease_has_run_out_is_too_late() {
    type Case = (&'static str, fn(&mut Alone) -> OpSeq, fn(&mut Alone, OpSeq));
    fn holding(alone: &mut Alone) -> OpSeq {
        alone.publishes(1);
        OpSeq(0)
    }
    fn reading(alone: &mut Alone) -> OpSeq {
        alone.reads(1, false)
    }
    fn installing(alone: &mut Alone) -> OpSeq {
        alone.holds(1);
        let seq = alone.reads(2, true);
        alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(8)));
        alone.say(ServerMessage::Install { seq, attempt: Attempt(1), deadline: DEADLINE });
        seq
    }
    fn measured(alone: &mut Alone) -> OpSeq {
        let seq = reading(alone);
        progress(alone, seq);
        seq
    }
    fn progress(alone: &mut Alone, seq: OpSeq) {
        let left = 1 << 40;
        let progress = weightcast_protocol::session::ReadProgress { arrived: 0, left, shard: 0 };
        alone.session.handle_progress(alone.now, seq, Attempt(1), progress);
    }
    fn asked(alone: &mut Alone) -> OpSeq {
        alone.publishes(1);
        let (version, generation) = (version(1, 1), alone.session.generation());
        alone.say(ServerMessage::Offload { version, generation });
        alone.say(ServerMessage::Seed { version, ask: 3, deadline: DEADLINE });
        OpSeq(0)
    }
    let cases: [Case; 11] = [
        ("sealed", holding, |alone, _| {
            alone.session.handle_sealed(alone.now, alone.session.generation(), sums(1));
        }),
        ("not sealed", holding, |alone, _| {
            alone.session.handle_seal_failed(alone.now, alone.session.generation(), "a bug");
        }),
        ("proved", holding, |alone, _| {
            let generation = alone.session.generation();
            alone.session.handle_proved(alone.now, generation, weightcast_protocol::Nonce(1), 1);
        }),
        ("read", reading, |alone, seq| {
            alone.session.handle_read(alone.now, seq, Attempt(1), Ok(sums(1)));
        }),
        ("slow", measured, progress),
        ("installed", installing, |alone, seq| {
            alone.session.handle_installed(alone.now, seq, Attempt(1));
        }),
        ("not offloaded", asked, |alone, _| {
            let generation = alone.session.generation();
            let reason = "full".into();
            alone.session.handle_offload_failed(alone.now, version(1, 1), generation, reason);
        }),
        ("no seed", asked, |alone, _| alone.session.handle_seed_failed(alone.now, 3)),
        ("closed", holding, |alone, _| alone.session.close(alone.now, DEADLINE)),
        ("called", holding, |alone, _| {
            let _ = alone.session.call(alone.now, Call::List, DEADLINE);
        }),
        ("told", asked, |alone, _| {
            let (version, generation) = (version(1, 2), Generation(99));
            alone.session.handle_message(alone.now, ServerMessage::Offload { version, generation });
        }),
    ];
    let until = START + LEASE.scaled(90, 100);
    for (name, prepare, input) in cases {
        let mut alone = Alone::open(lonely());
        let seq = prepare(&mut alone);
        alone.take();
        let mut late = Alone { session: alone.session.clone(), now: until };
        alone.now = Time(until.0 - 1);
        input(&mut alone, seq);
        assert!(!sent(&alone.take()).is_empty(), "{name}: in time");
        input(&mut late, seq);
        let outputs = late.take();
        assert_eq!(sent(&outputs).len(), 0, "{name}: {outputs:?}");
        let error = late.session.error();
        assert!(matches!(error, Some(CallError::ServerUnreachable { .. })), "{name}: {error:?}");
    }
}
